//! Turns: the warps of a block run one after another until each waits, polls or has ended.
//!
//! A turn ends when the warp reaches a barrier, exits, or has executed its share of instructions.
//! The schedule chooses which warp runs next. It may choose any, because nothing orders warps
//! between barriers.
//!
//! A warp polls when it executes its share of instructions and does nothing that another thread can
//! see. It stays where it is when a few more instructions bring it back to the same place with the
//! same registers: then only another thread can end its loop. If only some of its lanes poll, the
//! others [run first](crate::machine::interp::diverged_lanes).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::fault::SourcePlace;
use crate::launch::Order;
use crate::machine::async_copy::{copy, unfinished};
use crate::machine::interp::lane_meetings;
use crate::machine::scheduler::stationary_loops::Iteration;
use crate::machine::scheduler::warp_steps::{note_asked, run, state};
use crate::machine::scheduler::{stationary_loops, wait_reasons, warp_end};
use crate::machine::seeded_choice::mix;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::standstill::Polled;
use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::{Pause, Polling};
use crate::{Class, Fault};

/// The number of instructions after which the next warp runs, so that a warp may wait for another
/// one.
const TURN: u64 = 10_000;

/// The number of instructions after which the next warp runs, if lanes of the warp run apart. Some
/// of them may wait for others.
const SPLIT_TURN: u64 = 512;

/// The number of instructions after which the next warp runs, if the warp polled in its last turn.
const SHORT_TURN: u64 = 64;

/// Parameters for loops that may end by themselves: the number of examinations before turns become
/// longer, the length of longer turns, and the number of turns between examinations.
const FEW_UNKNOWN: u32 = 8;
const UNKNOWN_TURN: u64 = 2048;
const UNKNOWN_LOOKS: u32 = 64;

/// The number of instructions within which a polling loop returns to its start.
const PROBE: u32 = 256;

/// The number of turns without an effect after which a warp counts as polling.
const MOST_QUIET: u32 = 16;

/// The number of idle rounds after which waits for an mbarrier time out.
const PATIENCE: u32 = 4;

/// The number of failed waits for an mbarrier after which a warp with diverged lanes polls.
const MOST_YIELDS: u32 = 8;

/// The lengths of turns if blocks are interleaved. Short turns let other blocks run within a
/// critical section.
const MIXED_TURNS: [u64; 4] = [30, 300, 3000, TURN];

/// The maximum number of instructions of the other warps after a fault that may be a consequence.
const MOST_AFTER_FAULT: u64 = 1 << 20;

/// The number of rounds between looks at the clock.
const LOOKS: u64 = 8;

/// The state of a block after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockProgress {
    /// All its threads have exited.
    Ended,
    /// It has used its share of rounds.
    Paused,
    /// All its warps poll, sleep or wait. `proven` is set if they are in their previous state.
    Waits { proven: bool },
}

/// The outcome of a round in which each ready warp had a turn.
enum Round {
    /// A warp had an effect, or may have one in the next round.
    Continues,
    /// All warps poll or wait, and another block or the outside may end that.
    Waits { proven: bool },
    /// All warps wait for something that only the block itself could do.
    Stuck,
}

/// Gives warps `most` rounds of turns. Returns earlier if all have exited, or if all poll or
/// wait.
///
/// A race or an uninitialized value may follow from a barrier that other warps miss. The warp
/// with such a fault stops, and the other warps continue. If one of them reaches such a
/// barrier, that is the fault, and the first one stays postponed.
pub(crate) fn advance(block: &mut Block<'_, '_>, most: u64) -> Checked<BlockProgress> {
    let progress = advance_warps(block, most);
    match (progress, block.turns.postponed.take()) {
        (progress, None) => progress,
        (Ok(BlockProgress::Paused), Some(first)) => {
            block.turns.postponed = Some(first);
            Ok(BlockProgress::Paused)
        }
        (Ok(BlockProgress::Ended | BlockProgress::Waits { .. }), Some(first)) => Err(first),
        (Err(fault), Some(mut first)) => {
            if fault.class.rank() != Class::DivergentBarrier.rank() {
                return Err(first);
            }

            first.instead = match fault.class {
                Class::InactiveLane => {
                    "correct the mask first: the lanes do not meet, and this may follow from that"
                }
                _ => "correct the barrier first: it orders nothing, and this may follow from that",
            };
            block.turns.postponed = Some(first);
            Err(fault)
        }
    }
}

fn advance_warps(block: &mut Block<'_, '_>, most: u64) -> Checked<BlockProgress> {
    let end = block.turns.round.saturating_add(most);
    // A block whose warps all sleep is not stuck yet, because a `try_wait` times out.
    while !block.turns.ready.is_empty() || end_patience(block)? {
        if block.grid.stop.load(Relaxed) {
            // Another block has found a fault, and that one is reported.
            return Ok(BlockProgress::Ended);
        }

        if block.turns.round.is_multiple_of(LOOKS) {
            in_time(block)?;
        }

        match take_turns(block)? {
            Round::Continues => {}
            Round::Waits { proven } => return Ok(BlockProgress::Waits { proven }),
            Round::Stuck => break,
        }

        if block.turns.round >= end && !block.turns.ready.is_empty() {
            return Ok(BlockProgress::Paused);
        }
    }
    match block.turns.postponed.take() {
        None => stuck(block).map(|()| BlockProgress::Ended),
        Some(mut fault) => {
            if misses_barrier(block, &fault) {
                fault.instead = "not all threads of the block reach the barrier between the two: move it out of the branch";
            }
            Err(fault)
        }
    }
}

/// Returns true if a warp waits at a barrier between the two accesses of a race in the text.
/// The barrier would have ordered them if all warps had reached it.
fn misses_barrier(block: &Block<'_, '_>, race: &Fault) -> bool {
    let (Some(place), Some(other)) = (&race.place, &race.other) else {
        return false;
    };

    let waiting = block
        .warps
        .iter()
        .filter_map(|w| block.barriers.waiting_at(w.index));
    let position = |place: &SourcePlace| (place.line, place.column);
    let mut positions = waiting.map(|(_, pc, ..)| position(&block.place(pc)));
    positions.any(|at| position(&other.place) < at && at < position(place))
}

/// Gives each warp that is ready a turn.
fn take_turns(block: &mut Block<'_, '_>) -> Checked<Round> {
    let mut ready = std::mem::take(&mut block.turns.ready);
    order(block, &mut ready, block.turns.round);
    block.turns.round += 1;
    let before = block.turns.effects;
    let mut all_poll = true;
    let mut all_stay = true;
    let mut all_await_mbarriers = true;
    for w in ready {
        if copy::land_due(block)? {
            block.turns.effects += 1;
        }

        let pause = match turn(block, w as usize) {
            Ok(pause) => pause,
            Err(fault) => {
                postpone(block, fault)?;
                continue;
            }
        };
        let polling = &block.warps[w as usize].polling;
        all_poll &= match pause {
            Pause::Sleeps | Pause::Spins | Pause::Stays => true,
            Pause::Yields => polling.again,
            Pause::Turn | Pause::Waits | Pause::Ended => false,
        };
        all_stay &= pause == Pause::Stays;
        all_await_mbarriers &= polling.awaits_mbarrier();
        after_turn(block, w, pause)?;
    }

    wake(block)?;
    all_poll &= !block.turns.ready.is_empty();
    let idle = all_poll && block.turns.effects == before && nothing_on_its_way(block);
    block.turns.idle_rounds = if idle { block.turns.idle_rounds + 1 } else { 0 };
    if !all_poll || block.turns.idle_rounds >= PATIENCE && end_patience(block)? {
        return Ok(Round::Continues);
    }

    let stays = idle && all_stay && !block.mbarriers.has_sleepers();
    block.turns.proven_rounds = if stays {
        block.turns.proven_rounds + 1
    } else {
        0
    };

    // In each round, one group of diverged lanes of each warp has its turn.
    let strands = block.warps.iter().map(|w| w.apart.len() as u32 + 1).max();
    let strands = strands.unwrap_or(1);
    let proven = block.turns.proven_rounds >= strands;

    // Only threads of the block arrive at its mbarriers, so a loop that looks at nothing else
    // waits for the block.
    if all_await_mbarriers && polled(block) == Polled::Block {
        // A loop may have been seen to stay where it is before all that it reads was noted.
        return Ok(if block.turns.proven_rounds > 2 * strands {
            Round::Stuck
        } else {
            Round::Continues
        });
    }

    Ok(Round::Waits { proven })
}

/// Lets every wait for an mbarrier time out, because nothing in the block completes a phase.
///
/// A loop around `try_wait` may have a second condition, such as a flag that the host sets. A
/// warp that looks at it must not sleep until the phase completes. From now on the warp polls,
/// until it does something that others can see. Returns false if all warps were impatient
/// already.
fn end_patience(block: &mut Block<'_, '_>) -> Checked<bool> {
    let mut ends = false;
    for w in &mut block.warps {
        if w.present() == 0 || w.polling.impatient {
            continue;
        }
        let sleeps = block.mbarriers.time_out(w.index);
        if sleeps {
            block.turns.ready.push(w.index);
        }
        w.polling.impatient = sleeps || w.polling.awaits_mbarrier();
        ends |= w.polling.impatient;
    }
    Ok(ends)
}

/// Keeps a fault that may be a consequence, and stops its warp.
fn postpone(block: &mut Block<'_, '_>, fault: Box<Fault>) -> Checked<()> {
    if !fault.class.may_follow_from_barriers() || block.warps.len() == 1 {
        return Err(fault);
    }
    if block.turns.postponed.is_none() {
        block.turns.postponed = Some(fault);
        block.turns.fuel = block.turns.fuel.min(MOST_AFTER_FAULT);
    }
    Ok(())
}

fn after_turn(block: &mut Block<'_, '_>, w: u32, pause: Pause) -> Checked<()> {
    match pause {
        Pause::Waits => {}
        Pause::Ended => {
            warp_end::ended(block, w)?;
            block.turns.effects += 1;
        }
        Pause::Turn | Pause::Yields | Pause::Sleeps | Pause::Spins | Pause::Stays => {
            block.turns.ready.push(w);
        }
    }
    Ok(())
}

/// Moves the warps that can continue to the ready list.
fn wake(block: &mut Block<'_, '_>) -> Checked<()> {
    let mut ready = std::mem::take(&mut block.turns.ready);
    ready.extend(block.barriers.released());
    block.mbarriers.awake(&mut ready);
    block.cluster.awake(&mut ready);
    while ready.is_empty() && copy::land_next(block)? {
        block.mbarriers.awake(&mut ready);
    }
    block.turns.ready = ready;
    Ok(())
}

/// Orders the ready warps by the schedule.
fn order(block: &Block<'_, '_>, ready: &mut [u32], round: u64) {
    ready.sort_unstable();
    match block.grid.schedule.order {
        Order::InOrder => {}
        Order::Reversed => ready.reverse(),
        Order::Shuffled => {
            let seed = mix(block.grid.schedule.seed ^ round << 32) ^ u64::from(block.blocks[0][0]);
            ready.sort_by_key(|w| mix(seed ^ u64::from(*w)));
        }
    }
}

fn turn(block: &mut Block<'_, '_>, index: usize) -> Checked<Pause> {
    let mut warp = std::mem::take(&mut block.warps[index]);
    let before = warp.effects;
    let pause = match (warp.polling.again, warp.apart.is_empty()) {
        (true, true) if warp.polling.unknown > FEW_UNKNOWN => run(block, &mut warp, UNKNOWN_TURN),
        (true, _) => run_noting(block, &mut warp),
        (_, true) => run(block, &mut warp, turn_length(block, index)),
        (_, false) => run(block, &mut warp, SPLIT_TURN),
    };
    let pause = pause.and_then(|pause| judge(block, &mut warp, pause, before));
    block.turns.effects += warp.effects - before;
    warp.executed = 0;
    block.warps[index] = warp;
    pause
}

fn turn_length(block: &Block<'_, '_>, warp: usize) -> u64 {
    if block.grid.interleaves {
        MIXED_TURNS
            [(mix(block.grid.schedule.seed ^ block.turns.round << 32 ^ warp as u64) % 4) as usize]
    } else {
        TURN
    }
}

/// Runs a short turn and records the memory that the warp reads.
fn run_noting(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<Pause> {
    for _ in 0..SHORT_TURN {
        note_asked(block, w);
        let pause = run(block, w, 1)?;
        if pause != Pause::Turn {
            return Ok(pause);
        }
    }
    Ok(Pause::Turn)
}

/// Finds out whether a warp whose turn is over polls.
fn judge(block: &mut Block<'_, '_>, w: &mut Warp, pause: Pause, before: u64) -> Checked<Pause> {
    let polls = matches!(pause, Pause::Turn | Pause::Sleeps | Pause::Yields);
    if !polls || w.effects != before {
        w.polling = Polling::default();
        w.others_may_run();
        return Ok(pause);
    }

    w.polling.note_failed(pause);

    // Most waits for an mbarrier succeed soon, so the loop is not looked at before.
    if pause == Pause::Yields && !w.polling.impatient {
        if w.runnable().is_some() {
            return poll(block, w, pause);
        }
        w.polling.again = true;
        w.polling.yields += 1;
        // Groups of lanes that take turns may never be idle in the same rounds.
        w.polling.impatient = !w.apart.is_empty() && w.polling.yields > MOST_YIELDS;
        w.others_may_run();
        return Ok(pause);
    }

    w.polling.quiet += 1;

    // Looking at the loop takes longer than a turn.
    if w.polling.unknown > FEW_UNKNOWN && !w.polling.quiet.is_multiple_of(UNKNOWN_LOOKS) {
        return poll(block, w, Pause::Spins);
    }

    if matches!(pause, Pause::Sleeps | Pause::Yields) {
        let state = state(w);
        if std::mem::replace(&mut w.polling.slept, state) == state {
            return poll(block, w, Pause::Stays);
        }
        if w.polling.quiet < MOST_QUIET {
            return poll(block, w, Pause::Sleeps);
        }
        return judge_iteration(block, w, before, Pause::Sleeps);
    }

    // A warp that computes for long is looked at ever less often.
    let quiet = w.polling.quiet;
    if w.polling.again || quiet.is_power_of_two() || quiet.is_multiple_of(MOST_QUIET) {
        probe(block, w, before)
    } else {
        Ok(Pause::Turn)
    }
}

/// Executes some instructions more, to see whether they lead back to where the warp is.
fn probe(block: &mut Block<'_, '_>, w: &mut Warp, before: u64) -> Checked<Pause> {
    let pc = w.now.pc;
    let start = state(w);
    w.polling.asks = false;
    for _ in 0..PROBE {
        note_asked(block, w);
        let pause = run(block, w, 1)?;
        if w.effects != before {
            return Ok(pause);
        }

        match pause {
            Pause::Turn => {}
            // The loop is longer than a turn, and sleeps or waits for an mbarrier.
            Pause::Sleeps | Pause::Yields if w.polling.quiet >= MOST_QUIET => {
                w.polling.note_failed(pause);
                return judge_iteration(block, w, before, Pause::Sleeps);
            }
            _ => return Ok(pause),
        }

        if w.now.pc == pc && state(w) == start {
            w.polling.failed = false;
            return poll(block, w, Pause::Stays);
        }
    }

    if w.polling.quiet >= MOST_QUIET && w.polling.asks {
        return judge_iteration(block, w, before, Pause::Spins);
    }

    Ok(Pause::Turn)
}

/// Examines one iteration of the loop of a polling warp that is never twice in the same state.
fn judge_iteration(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    before: u64,
    unknown: Pause,
) -> Checked<Pause> {
    match stationary_loops::iterate(block, w, before)? {
        Iteration::Bound => {
            w.polling.unknown = 0;
            poll(block, w, Pause::Stays)
        }
        Iteration::Unknown if w.effects == before => {
            w.polling.unknown = w.polling.unknown.saturating_add(1);
            poll(block, w, unknown)
        }
        Iteration::Unknown => Ok(Pause::Turn),
        Iteration::Paused(pause) => Ok(pause),
    }
}

/// Records that a warp polls, unless other lanes of the warp can run.
fn poll(block: &mut Block<'_, '_>, w: &mut Warp, pause: Pause) -> Checked<Pause> {
    w.polling.again = !lane_meetings::run_others(block, w, pause)?;
    Ok(if w.polling.again { pause } else { Pause::Turn })
}

/// Returns the fault of a launch that has reached its deadline.
fn in_time(block: &Block<'_, '_>) -> Checked<()> {
    if block
        .grid
        .watch
        .deadline
        .is_none_or(|end| Instant::now() < end)
    {
        return Ok(());
    }

    let Some(warp) = block.warps.iter().find(|w| w.present() != 0) else {
        return Ok(());
    };

    let what = "the launch has not ended within its time limit; this warp is still running";
    let mut fault = block.fault(warp, warp.present(), Class::TimeLimit, what);
    fault.instead = "look for a loop that waits for what never comes, or raise the limit";
    Err(fault)
}

/// Returns the fault of a block in which no warp is ready, unless all warps have exited and
/// nothing is incomplete.
fn stuck(block: &Block<'_, '_>) -> Checked<()> {
    let Some(first) = block.warps.iter().find(|w| w.present() != 0) else {
        return left_over(block);
    };

    let what = format!(
        "no warp can continue: {}",
        wait_reasons::wait_reasons(block)
    );
    let at_barrier = |w: &Warp| w.present() == 0 || block.barriers.waiting_at(w.index).is_some();
    let (class, instead) = if block.warps.iter().all(at_barrier) {
        (
            Class::BarrierMismatch,
            "all warps must reach the same barriers with the same thread counts",
        )
    } else {
        (
            Class::Deadlock,
            "every phase needs its arrivals, and copies of exactly the bytes it expects",
        )
    };
    let mut fault = block.fault(first, first.now.mask, class, what);
    let barrier = block.barriers.waiting_at(first.index).map(|(_, pc, ..)| pc);
    let wait = wait_reasons::mbarrier_wait_at(block, first);
    fault.place = Some(block.place(barrier.or(wait).unwrap_or(first.now.pc)));
    fault.instead = instead;
    Err(fault)
}

/// Checks that no barrier is incomplete after all warps have exited.
fn left_over(block: &Block<'_, '_>) -> Checked<()> {
    unfinished::unfinished(block, None)?;
    let Some((id, pc, warp, arrived, expected)) = block.barriers.left_over() else {
        return Ok(());
    };

    let warp = &block.warps[warp as usize];
    let what = format!(
        "the block has ended, and {arrived} of {expected} threads have arrived at barrier {id}"
    );
    let mut fault = block.fault(warp, warp.live, Class::BarrierMismatch, what);
    fault.place = Some(block.place(pc));
    fault.instead = "all warps must reach the same barriers with the same thread counts";
    Err(fault)
}

/// Returns the memory that the warps poll.
pub(crate) fn polled(block: &Block<'_, '_>) -> Polled {
    let waiting = block.warps.iter().filter(|w| w.present() != 0);
    waiting
        .map(|w| w.polling.polled())
        .max()
        .unwrap_or_default()
}

/// Returns true if no asynchronous work can change memory that the warps read.
fn nothing_on_its_way(block: &Block<'_, '_>) -> bool {
    block.pending.copies.is_idle() && block.pending.stores.is_idle()
}
