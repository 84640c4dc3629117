//! Turns: the warps of a block run one after another until each waits, polls or has ended.
//!
//! A warp polls when it executes its share of instructions and does nothing that another thread can see. It stays where
//! it is when a few more instructions bring it back to the same place with the same registers: then only another thread
//! can end its loop. If only some of its lanes poll, the others [run first](super::strands).

use std::hash::Hasher;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustc_hash::FxHasher;

use super::block::{Checked, Pause, Worker};
use super::grid::mix;
use super::lanes;
use super::loops::Iteration;
use super::standstill::Polled;
use super::warp::Warp;
use crate::code::{Op, Space};
use crate::fault::SourcePlace;
use crate::launch::Order;
use crate::{Class, Fault};

/// Instructions a warp may execute before another gets its turn, so that a warp may wait for another.
const TURN: u64 = 10_000;

/// The same where lanes of the warp run apart, as some of them may wait for others.
const SPLIT_TURN: u64 = 512;

/// The same for a warp that polled in its last turn.
const SHORT_TURN: u64 = 64;

/// Looks at a loop that may end by itself, after which turns are longer, the length of such turns, and the number of them
/// after which the loop is looked at again.
const FEW_UNKNOWN: u32 = 8;
const UNKNOWN_TURN: u64 = 2048;
const UNKNOWN_LOOKS: u32 = 64;

/// Instructions within which a loop that only asks comes back to where it was.
const PROBE: u32 = 256;

/// Turns without an effect after which a warp counts as one that polls.
const MOST_QUIET: u32 = 16;

/// Turns in a row that end in a failed wait, after which the block is considered stuck.
const MOST_FAILED_WAITS: u32 = 1 << 16;

/// Lengths of turns where blocks are interleaved: some are so short that others run within a critical section.
const MIXED_TURNS: [u64; 4] = [30, 300, 3000, TURN];

/// Instructions that the other warps execute after a fault that may be a consequence.
const MOST_AFTER_FAULT: u64 = 1 << 20;

/// Rounds of turns between looks at the clock.
const LOOKS: u64 = 8;

/// How far a block has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All its threads have exited.
    Ended,
    /// It has had its share of rounds.
    Paused,
    /// All its warps poll, sleep or wait; `proven` if they are in the state in which they were before.
    Waits { proven: bool },
}

/// What a warp does that polls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polling {
    /// Turns without an effect.
    quiet: u32,
    /// Whether its last turn had none.
    again: bool,
    /// The state in which it last slept.
    slept: u64,
    /// The last instruction that read memory, and the address.
    asked: Option<(u32, u64)>,
    /// Whether it has read by a strong load or an atomic, as one does who waits.
    asks: bool,
    /// The memory that it has read since it last did something else than polling.
    polled: Polled,
    /// Looks in a row that did not show whether its loop ends by itself.
    unknown: u32,
    /// Failed waits for an mbarrier in a row, and whether the state at the last one was that at the one before.
    yields: u32,
    yields_alike: bool,
}

impl Polling {
    /// Returns true if the warp polled in its last turn.
    pub(super) fn is_again(&self) -> bool {
        self.again
    }

    /// Returns the memory that the warp polls.
    pub(super) fn polled(&self) -> Polled {
        if self.again {
            self.polled
        } else {
            Polled::Block
        }
    }

    /// Returns the last instruction that read memory while the warp polled, and the address.
    pub(super) fn asked(&self) -> Option<(u32, u64)> {
        self.asked
    }
}

impl Worker<'_, '_> {
    /// Gives warps `most` rounds of turns, or runs them until all have exited, or until all poll or wait.
    ///
    /// A race or a missing value may follow from a barrier that other warps miss. The warp that showed it stops, and the
    /// other warps go on: if one of them comes to such a barrier, this is the fault, and the first one stays postponed.
    pub(super) fn advance(&mut self, most: u64) -> Checked<Progress> {
        let progress = self.advance_warps(most);
        match (progress, self.postponed.take()) {
            (progress, None) => progress,
            (Ok(Progress::Paused), Some(first)) => {
                self.postponed = Some(first);
                Ok(Progress::Paused)
            }
            (Ok(Progress::Ended | Progress::Waits { .. }), Some(first)) => Err(first),
            (Err(fault), Some(mut first)) => {
                if fault.class.rank() != Class::DivergentBarrier.rank() {
                    return Err(first);
                }
                first.instead = match fault.class {
                    Class::InactiveLane => {
                        "correct the mask first: the lanes do not meet, and this may follow from that"
                    }
                    _ => {
                        "correct the barrier first: it orders nothing, and this may follow from that"
                    }
                };
                self.postponed = Some(first);
                Err(fault)
            }
        }
    }

    fn advance_warps(&mut self, most: u64) -> Checked<Progress> {
        let end = self.round.saturating_add(most);
        while !self.ready.is_empty() && self.failed_waits < MOST_FAILED_WAITS {
            if self.grid.stop.load(Relaxed) {
                // Another block has found a fault, which is the one to report.
                return Ok(Progress::Ended);
            }
            if self.round.is_multiple_of(LOOKS) {
                self.in_time()?;
            }
            if let Some(proven) = self.take_turns()? {
                self.failed_waits = 0;
                return Ok(Progress::Waits { proven });
            }
            if self.round >= end && !self.ready.is_empty() {
                return Ok(Progress::Paused);
            }
        }
        match self.postponed.take() {
            None => self.stuck().map(|()| Progress::Ended),
            Some(mut fault) => {
                if self.misses_barrier(&fault) {
                    fault.instead = "not all threads of the block reach the barrier between the two: move it out of the branch";
                }
                Err(fault)
            }
        }
    }

    /// Returns true if a warp waits at a barrier that lies between the two accesses of a race in the text. It would have ordered
    /// them if all warps had reached it.
    fn misses_barrier(&self, race: &Fault) -> bool {
        let (Some(place), Some(other)) = (&race.place, &race.other) else {
            return false;
        };
        let waiting = self
            .warps
            .iter()
            .filter_map(|w| self.barriers.waiting_at(w.index));
        let position = |place: &SourcePlace| (place.line, place.column);
        let mut positions = waiting.map(|(_, pc, ..)| position(&self.place(pc)));
        positions.any(|at| position(&other.place) < at && at < position(place))
    }

    /// One turn for each warp that is ready; where all of them poll, whether each is as it was before.
    fn take_turns(&mut self) -> Checked<Option<bool>> {
        let mut ready = std::mem::take(&mut self.ready);
        self.order(&mut ready, self.round);
        self.round += 1;
        let before = self.effects;
        let mut all_poll = true;
        let mut all_stay = true;
        let mut one_polls = false;
        for w in ready {
            if self.land_due()? {
                (self.failed_waits, self.effects) = (0, self.effects + 1);
            }
            let pause = match self.turn(w as usize) {
                Ok(pause) => pause,
                Err(fault) => {
                    self.postpone(fault)?;
                    continue;
                }
            };
            // A failed wait for an mbarrier counts as polling only next to a warp that polls memory: without one, no
            // other block can end the wait.
            let polls = matches!(pause, Pause::Sleeps | Pause::Spins | Pause::Stays);
            let polling = &self.warps[w as usize].polling;
            let yields = pause == Pause::Yields && polling.again;
            one_polls |= polls;
            all_poll &= polls || yields;
            all_stay &= pause == Pause::Stays || yields && polling.yields_alike;
            self.after_turn(w, pause)?;
        }
        all_poll &= one_polls && !self.ready.is_empty();
        self.wake()?;
        let idle = all_poll && self.effects == before;
        Ok((all_poll).then_some(idle && all_stay && self.nothing_on_its_way()))
    }

    /// Keeps a fault that may be a consequence. The warp does not run any more.
    fn postpone(&mut self, fault: Box<Fault>) -> Checked<()> {
        if !fault.class.may_follow_from_barriers() || self.warps.len() == 1 {
            return Err(fault);
        }
        if self.postponed.is_none() {
            self.postponed = Some(fault);
            self.fuel = self.fuel.min(MOST_AFTER_FAULT);
        }
        Ok(())
    }

    fn after_turn(&mut self, w: u32, pause: Pause) -> Checked<()> {
        match pause {
            Pause::Yields => {
                self.failed_waits += 1;
                self.ready.push(w);
            }
            Pause::Waits => self.failed_waits = 0,
            Pause::Ended => {
                self.ended(w)?;
                (self.failed_waits, self.effects) = (0, self.effects + 1);
            }
            Pause::Turn => {
                self.failed_waits = 0;
                self.ready.push(w);
            }
            // A loop that waits for an mbarrier may sleep or look at a clock in between.
            Pause::Sleeps | Pause::Spins | Pause::Stays => self.ready.push(w),
        }
        Ok(())
    }

    /// Moves the warps that may go on to those that are ready.
    fn wake(&mut self) -> Checked<()> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.barriers.released());
        self.mbarriers.awake(&mut ready);
        self.cluster.awake(&mut ready);
        while ready.is_empty() && self.land_next()? {
            self.mbarriers.awake(&mut ready);
        }
        self.ready = ready;
        Ok(())
    }

    /// Orders the warps that are ready, as the schedule says.
    fn order(&self, ready: &mut [u32], round: u64) {
        ready.sort_unstable();
        match self.grid.schedule.order {
            Order::InOrder => {}
            Order::Reversed => ready.reverse(),
            Order::Shuffled => {
                let seed =
                    mix(self.grid.schedule.seed ^ round << 32) ^ u64::from(self.blocks[0][0]);
                ready.sort_by_key(|w| mix(seed ^ u64::from(*w)));
            }
        }
    }

    fn turn(&mut self, index: usize) -> Checked<Pause> {
        let mut warp = std::mem::take(&mut self.warps[index]);
        let before = warp.effects;
        let pause = match (warp.polling.again, warp.apart.is_empty()) {
            (true, true) if warp.polling.unknown > FEW_UNKNOWN => self.run(&mut warp, UNKNOWN_TURN),
            (true, _) => self.run_noting(&mut warp),
            (_, true) => self.run(&mut warp, self.turn_length(index)),
            (_, false) => self.run(&mut warp, SPLIT_TURN),
        };
        let pause = pause.and_then(|pause| self.judge(&mut warp, pause, before));
        self.effects += warp.effects - before;
        warp.executed = 0;
        self.warps[index] = warp;
        pause
    }

    /// Lets a warp execute up to `most` instructions.
    pub(super) fn run(&mut self, warp: &mut Warp, most: u64) -> Checked<Pause> {
        let turn = most.min(self.fuel.saturating_add(1));
        let before = warp.executed;
        let result = match self.observer.is_some() {
            true => self.execute::<true>(warp, before + turn),
            false => self.execute::<false>(warp, before + turn),
        };
        let used = warp.executed - before;
        self.stats.warp_instructions += used;
        self.stats.lane_instructions += std::mem::take(&mut warp.lane_count);
        let pause = result?;
        match self.fuel.checked_sub(used) {
            Some(left) => self.fuel = left,
            None => return Err(self.out_of_fuel(warp)),
        }
        Ok(pause)
    }

    fn turn_length(&self, warp: usize) -> u64 {
        match self.grid.interleaves {
            true => {
                MIXED_TURNS
                    [(mix(self.grid.schedule.seed ^ self.round << 32 ^ warp as u64) % 4) as usize]
            }
            false => TURN,
        }
    }

    /// A short turn, in which what the warp asks for is noted.
    fn run_noting(&mut self, w: &mut Warp) -> Checked<Pause> {
        for _ in 0..SHORT_TURN {
            self.note_asked(w);
            let pause = self.run(w, 1)?;
            if pause != Pause::Turn {
                return Ok(pause);
            }
        }
        Ok(Pause::Turn)
    }

    /// Whether a warp whose turn is over polls.
    fn judge(&mut self, w: &mut Warp, pause: Pause, before: u64) -> Checked<Pause> {
        let polls = matches!(pause, Pause::Turn | Pause::Sleeps) && w.effects == before;
        if !polls {
            w.polling.quiet = 0;
            w.polling.unknown = 0;
            w.polling.polled = Polled::Block;
            w.polling.again = pause == Pause::Yields && w.effects == before;
            w.polling.yields = if w.polling.again {
                w.polling.yields + 1
            } else {
                0
            };
            w.polling.yields_alike = false;
            // Most waits succeed soon, so the state is not looked at before.
            if w.polling.yields > MOST_QUIET {
                let state = state(w);
                w.polling.yields_alike = std::mem::replace(&mut w.polling.slept, state) == state;
            }
            w.others_may_run();
            return Ok(pause);
        }
        w.polling.quiet += 1;
        // Looking at the loop takes longer than a turn.
        if w.polling.unknown > FEW_UNKNOWN && !w.polling.quiet.is_multiple_of(UNKNOWN_LOOKS) {
            return self.poll(w, Pause::Spins);
        }
        if pause == Pause::Sleeps {
            let state = state(w);
            if std::mem::replace(&mut w.polling.slept, state) == state {
                return self.poll(w, Pause::Stays);
            }
            if w.polling.quiet < MOST_QUIET {
                return self.poll(w, Pause::Sleeps);
            }
            return self.judge_iteration(w, before, Pause::Sleeps);
        }
        // A warp that computes for long is looked at ever less often.
        let quiet = w.polling.quiet;
        match w.polling.again || quiet.is_power_of_two() || quiet.is_multiple_of(MOST_QUIET) {
            true => self.probe(w, before),
            false => Ok(Pause::Turn),
        }
    }

    /// Executes some instructions more, to see whether they lead back to where the warp is.
    fn probe(&mut self, w: &mut Warp, before: u64) -> Checked<Pause> {
        let (pc, start) = (w.now.pc, state(w));
        w.polling.asks = false;
        for _ in 0..PROBE {
            self.note_asked(w);
            let pause = self.run(w, 1)?;
            if pause != Pause::Turn || w.effects != before {
                return Ok(pause);
            }
            if w.now.pc == pc && state(w) == start {
                return self.poll(w, Pause::Stays);
            }
        }
        if w.polling.quiet >= MOST_QUIET && w.polling.asks {
            return self.judge_iteration(w, before, Pause::Spins);
        }
        Ok(Pause::Turn)
    }

    /// Judges a warp that polls and is never twice in the same state, by one iteration of its loop.
    fn judge_iteration(&mut self, w: &mut Warp, before: u64, unknown: Pause) -> Checked<Pause> {
        match self.iterate(w, before)? {
            Iteration::Bound => {
                w.polling.unknown = 0;
                self.poll(w, Pause::Stays)
            }
            Iteration::Unknown if w.effects == before => {
                w.polling.unknown = w.polling.unknown.saturating_add(1);
                self.poll(w, unknown)
            }
            Iteration::Unknown => Ok(Pause::Turn),
            Iteration::Paused(pause) => Ok(pause),
        }
    }

    /// A warp polls, unless others of its lanes can run.
    fn poll(&mut self, w: &mut Warp, pause: Pause) -> Checked<Pause> {
        w.polling.again = !self.run_others(w)?;
        Ok(if w.polling.again { pause } else { Pause::Turn })
    }

    pub(super) fn note_asked(&self, w: &mut Warp) {
        let step = &self.grid.code.ops[w.now.pc as usize];
        let (address, strong) = match &step.op {
            Op::Load(t) if t.space != Space::Local => (&t.address, t.order.is_strong()),
            Op::Atomic(a) => (&a.address, true),
            // Textures and surfaces may lie over memory of the host.
            Op::Image(_) => {
                w.polling.polled = Polled::Host;
                return;
            }
            _ => return,
        };
        let mut addresses = [0; 32];
        w.polling.asks |= strong;
        let known = self
            .addresses(w, w.now.mask, address, &mut addresses)
            .is_ok();
        if known && w.now.mask != 0 {
            let first = addresses[w.now.mask.trailing_zeros() as usize];
            w.polling.asked = Some((w.now.pc, first));
            if self.grid.standstill.is_open() && w.polling.polled != Polled::Host {
                let polled = lanes(w.now.mask)
                    .map(|lane| self.polled_at(addresses[lane]))
                    .max();
                w.polling.polled = w.polling.polled.max(polled.unwrap_or_default());
            }
        }
    }

    /// Returns the memory in which an address lies.
    fn polled_at(&self, address: u64) -> Polled {
        match self.grid.table.reach(address).map(|a| a.owner) {
            None => Polled::Block,
            Some(Some(_)) => Polled::Device,
            Some(None) => Polled::Host,
        }
    }

    fn out_of_fuel(&self, warp: &Warp) -> Box<Fault> {
        let what = format!(
            "the block has executed {} warp instructions and not ended",
            self.grid.schedule.fuel
        );
        let mut fault = self.fault(warp, warp.now.mask, Class::OutOfFuel, what);
        fault.instead = "look for a loop that never ends, or raise the schedule's fuel";
        fault
    }

    /// The fault of a launch that has not ended in its time.
    fn in_time(&self) -> Checked<()> {
        if self
            .grid
            .watch
            .deadline
            .is_none_or(|end| Instant::now() < end)
        {
            return Ok(());
        }
        let Some(warp) = self.warps.iter().find(|w| w.present() != 0) else {
            return Ok(());
        };
        let what = "the launch has not ended within its time limit; this warp is still running";
        let mut fault = self.fault(warp, warp.present(), Class::TimeLimit, what);
        fault.instead = "look for a loop that waits for what never comes, or raise the limit";
        Err(fault)
    }

    /// No warp is ready. This is fine if all have exited and nothing is left incomplete.
    fn stuck(&self) -> Checked<()> {
        let Some(first) = self.warps.iter().find(|w| w.present() != 0) else {
            return self.left_over();
        };
        let what = format!("no warp can continue: {}", self.wait_reasons());
        let at_barrier = |w: &Warp| w.present() == 0 || self.barriers.waiting_at(w.index).is_some();
        let (class, instead) = match self.warps.iter().all(at_barrier) {
            true => (
                Class::BarrierMismatch,
                "all warps must reach the same barriers with the same thread counts",
            ),
            false => (
                Class::Deadlock,
                "every phase needs its arrivals, and copies of exactly the bytes it expects",
            ),
        };
        let mut fault = self.fault(first, first.now.mask, class, what);
        let barrier = self.barriers.waiting_at(first.index).map(|(_, pc, ..)| pc);
        fault.place = Some(self.place(barrier.unwrap_or(first.now.pc)));
        fault.instead = instead;
        Err(fault)
    }

    /// All warps have exited; a barrier at which some only arrived must have been completed.
    fn left_over(&self) -> Checked<()> {
        self.unfinished(None)?;
        let Some((id, pc, warp, arrived, expected)) = self.barriers.left_over() else {
            return Ok(());
        };
        let warp = &self.warps[warp as usize];
        let what = format!(
            "the block has ended, and {arrived} of {expected} threads have arrived at barrier {id}"
        );
        let mut fault = self.fault(warp, warp.live, Class::BarrierMismatch, what);
        fault.place = Some(self.place(pc));
        fault.instead = "all warps must reach the same barriers with the same thread counts";
        Err(fault)
    }

    /// Returns the memory that the warps poll.
    pub(super) fn polled(&self) -> Polled {
        let waiting = self.warps.iter().filter(|w| w.present() != 0);
        waiting
            .map(|w| w.polling.polled())
            .max()
            .unwrap_or_default()
    }

    /// Whether nothing that runs beside the warps can still change what they see.
    fn nothing_on_its_way(&self) -> bool {
        self.copies.is_idle() && self.stores.is_idle()
    }
}

/// A number that differs, as good as always, where a warp is at another place or has other values.
fn state(w: &Warp) -> u64 {
    let mut hasher = FxHasher::default();
    for frame in w.frames() {
        [frame.pc, frame.join, frame.mask]
            .iter()
            .for_each(|n| hasher.write_u32(*n));
    }
    w.regs
        .w32
        .defined
        .iter()
        .zip(&w.regs.w32.lanes)
        .filter(|(known, _)| **known != 0)
        .for_each(|(_, lanes)| {
            lanes.iter().for_each(|value| hasher.write_u32(*value));
        });
    w.regs
        .w64
        .defined
        .iter()
        .zip(&w.regs.w64.lanes)
        .filter(|(known, _)| **known != 0)
        .for_each(|(_, lanes)| {
            lanes.iter().for_each(|value| hasher.write_u64(*value));
        });
    w.regs
        .pred
        .iter()
        .zip(&w.regs.pred_defined)
        .for_each(|(value, known)| hasher.write_u32(value & known));
    hasher.write_usize(w.calls.len());
    w.local
        .iter()
        .take(w.top.div_ceil(4) as usize)
        .flatten()
        .for_each(|word| hasher.write_u32(*word));
    hasher.finish()
}
