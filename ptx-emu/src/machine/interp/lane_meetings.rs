//! Lanes of a warp that meet at different instructions (manual, "shfl.sync", "barrier").
//!
//! From sm_70 on, a lane that executes a `.sync` instruction waits until all lanes of its mask that
//! have not exited execute an instruction of the same kind, with the same qualifiers and the same
//! mask. It may be another instruction of the text, in another branch, in another round of a loop
//! or in another function. A barrier without `.aligned` waits in the same way for the other lanes
//! of the warp, before the warp arrives at the barrier of the block.
//!
//! Lanes that must wait become a [strand](crate::machine::interp::diverged_lanes), and the rest
//! of the warp goes on. When the last lane arrives, the operands of all lanes are copied to the
//! registers of an auxiliary warp, which executes the instruction once. Lanes whose group is
//! complete from the start do not come here.
//!
//! It is a fault if all lanes of the warp have exited or wait, and no group is complete. A lane
//! that exits is not waited for, unless it went past the place where it would have reconverged with
//! those that wait: then it has missed them. On the GPU such a launch may hang, and whether it does
//! depends on the compiler.

use crate::fault::OtherPlace;
use crate::machine::interp::calls;
use crate::machine::observation;
use crate::machine::predicates::pred;
use crate::machine::state::barrier_state::BarrierUse;
use crate::machine::state::block::{Block, Checked, show_lanes};
use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::{Meeting, MeetingPlace, Pause, Strand, StrandState};
use crate::machine::sync::barrier::reduces;
use crate::machine::sync::{barrier, cluster, warp_exchange};
use crate::module::code::{
    Barrier, EXECUTING, Exchange, Instruction, Op, PredSource, Shuffle, Vote,
};
use crate::module::lane_mask::lanes;
use crate::module::registers::{Regs, Undefined};
use crate::sanitize::race::tolerated_races::parts;
use crate::{Class, Fault};

/// The outcome of the check before an instruction that lanes execute together.
pub(crate) enum Gathering {
    /// The running lanes execute the instruction.
    Executes,
    /// Other lanes run, or the running ones have become more.
    Elsewhere,
    /// All lanes of the warp have arrived at a barrier, and wait for other warps.
    Waits,
}

/// The next step of a warp whose running lanes have ended.
pub(crate) enum Scheduled {
    Running,
    Waits,
    Ended,
}

/// Registers of the auxiliary warp.
const A: u32 = 0;
const B: u32 = 1;
const C: u32 = 2;
const D: u32 = 3;
const MASK: u32 = 4;
/// Predicates of the auxiliary warp.
const HOLDS: u32 = 0;
const P: u32 = 1;

/// Returns true if all lanes of the warp must execute an instruction together.
fn is_aligned(op: &Op) -> bool {
    matches!(
        op,
        Op::Barrier(_)
            | Op::ClusterArrive { aligned: true, .. }
            | Op::ClusterWait { aligned: true }
            | Op::SetMaxRegisters { .. }
            | Op::Mma(_)
            | Op::LoadMatrix(_)
            | Op::StoreMatrix(_)
            | Op::MoveMatrix { .. }
            | Op::Product(_)
            | Op::LoadFragment(_)
            | Op::StoreFragment(_)
            | Op::Wgmma(_)
            | Op::WgmmaFence
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. }
    )
}

/// Returns the register and the predicate that an instruction writes.
fn results(op: &Exchange) -> (Option<u32>, Option<u32>) {
    match op {
        Exchange::Shuffle(s) => (s.d, s.p),
        Exchange::Vote {
            mode: Vote::Ballot,
            d,
            ..
        } => (Some(*d), None),
        Exchange::Vote { d, .. } => (None, Some(*d)),
        Exchange::Match { d, p, .. } => (Some(*d), *p),
        Exchange::Redux { d, .. } => (Some(*d), None),
        Exchange::Elect { d, p, .. } => (*d, Some(*p)),
        Exchange::WarpBarrier { .. } => (None, None),
    }
}

/// Returns an instruction with the registers of the auxiliary warp.
fn auxiliary(op: &Exchange) -> Exchange {
    match op {
        Exchange::Shuffle(s) => Exchange::Shuffle(Box::new(Shuffle {
            mode: s.mode,
            d: Some(D),
            p: Some(P),
            a: A,
            b: B,
            c: C,
            mask: MASK,
        })),
        Exchange::Vote { mode, .. } => Exchange::Vote {
            mode: *mode,
            d: if *mode == Vote::Ballot { D } else { P },
            pred: PredSource::Register {
                slot: HOLDS,
                negated: false,
            },
            mask: MASK,
        },
        Exchange::Match { all, wide, .. } => Exchange::Match {
            all: *all,
            d: D,
            p: all.then_some(P),
            a: A,
            wide: *wide,
            mask: MASK,
        },
        Exchange::Redux { f, .. } => Exchange::Redux {
            f: *f,
            d: D,
            a: A,
            mask: MASK,
        },
        Exchange::Elect { .. } => Exchange::Elect {
            d: Some(D),
            p: P,
            mask: MASK,
        },
        Exchange::WarpBarrier { .. } => Exchange::WarpBarrier { mask: MASK },
    }
}

/// Reads the operands that lanes must have written. The register that a shuffle passes on may lack
/// a value.
fn check_operands(regs: &Regs, mask: u32, op: &Exchange) -> Result<(), Undefined> {
    match op {
        Exchange::Shuffle(s) => {
            regs.get::<u32>(s.b, mask)?;
            regs.get::<u32>(s.c, mask)?;
        }
        Exchange::Vote { pred: source, .. } => {
            pred(regs, *source, mask)?;
        }
        Exchange::Match { a, wide: true, .. } => {
            regs.get::<u64>(*a, mask)?;
        }
        Exchange::Match { a, .. } | Exchange::Redux { a, .. } => {
            regs.get::<u32>(*a, mask)?;
        }
        Exchange::Elect { .. } | Exchange::WarpBarrier { .. } => {}
    }
    Ok(())
}

/// Copies the operands of lanes to the auxiliary warp.
fn copy_operands(to: &mut Regs, from: &Regs, mask: u32, op: &Exchange) -> Result<(), Undefined> {
    match op {
        Exchange::Shuffle(s) => {
            let known = mask & from.w32.defined[s.a as usize];
            to.set(A, known, &from.w32.lanes[s.a as usize]);
            for (without, fault) in from.put_off_of(s.a) {
                to.put_off(32, A, without & mask, fault);
            }
            to.set(B, mask, from.get::<u32>(s.b, mask)?);
            to.set(C, mask, from.get::<u32>(s.c, mask)?);
        }
        Exchange::Vote { pred: source, .. } => to.set_pred(HOLDS, mask, pred(from, *source, mask)?),
        Exchange::Match { a, wide: true, .. } => to.set(A, mask, from.get::<u64>(*a, mask)?),
        Exchange::Match { a, .. } | Exchange::Redux { a, .. } => {
            to.set(A, mask, from.get::<u32>(*a, mask)?)
        }
        Exchange::Elect { .. } | Exchange::WarpBarrier { .. } => {}
    }
    Ok(())
}

/// Copies the results of lanes from the auxiliary warp to the running lanes.
fn copy_results(w: &mut Warp, from: &Regs, mask: u32, op: &Exchange) {
    let (d, p) = results(op);
    if let Some(d) = d {
        let known = mask & from.w32.defined[D as usize];
        w.regs.set(d, known, &from.w32.lanes[D as usize]);
        let mut lost = mask & !known;
        for (without, fault) in from.put_off_of(D) {
            if without & mask != 0 {
                w.regs.put_off(32, d, without & mask, fault);
                lost &= !without;
            }
        }

        w.lose(d, mask, lost);
    }
    if let Some(p) = p {
        w.regs.set_pred(p, mask, from.pred[P as usize]);
    }
}

impl Warp {
    /// Returns the lanes of a mask that are waited for and are not among `arrived`.
    fn missing(&self, named: u32, arrived: u32) -> u32 {
        named & self.live & !(self.exited & !self.forced) & !arrived
    }
}

/// Lets other lanes run before an instruction that they must execute together with the running
/// ones.
#[cold]
pub(crate) fn gather_lanes(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &Op,
) -> Checked<Gathering> {
    match op {
        Op::Exchange(exchange) => gather_named(block, w, mask, exchange),
        Op::Barrier(b) if !b.aligned => gather_at_barrier(block, w, mask, b),
        Op::ClusterWait { aligned: false } => gather_at_cluster(block, w, mask),
        op if is_aligned(op) => gather_aligned(block, w),
        _ => Ok(Gathering::Executes),
    }
}

fn gather_named(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &Exchange,
) -> Checked<Gathering> {
    let register = op.mask_register();
    if register == EXECUTING {
        return Ok(Gathering::Executes);
    }

    let masks = *w
        .regs
        .get::<u32>(register, mask)
        .map_err(|u| block.undefined(w, u))?;
    let Some(group) = incomplete_group(w, mask, &masks) else {
        return Ok(Gathering::Executes);
    };

    let named = masks[group.trailing_zeros() as usize];
    let independent = block.grid.code.independent;
    if !independent && w.missing(named, group) & w.lanes_apart() == 0 {
        return Ok(Gathering::Executes);
    }

    check_operands(&w.regs, group, op).map_err(|u| block.undefined(w, u))?;
    let kind = kind(block, w.now.pc);
    let pc = (!independent).then_some(w.now.pc);
    w.park_here(
        group,
        StrandState::Waits(Meeting {
            kind,
            named,
            at: MeetingPlace::Mask,
            pc,
        }),
        block.grid.code,
    );
    arrived(block, w)
}

/// Returns a group of lanes that name the same mask and lack some of its lanes. There is none
/// if the masks are wrong, which the instruction itself reports.
fn incomplete_group(w: &Warp, mask: u32, masks: &[u32; 32]) -> Option<u32> {
    let mut left = mask;
    let mut seen = 0;
    let mut found = None;
    while left != 0 {
        let named = masks[left.trailing_zeros() as usize];
        let group = lanes(left)
            .filter(|l| masks[*l] == named)
            .fold(0, crate::module::lane_mask::set_bit);
        if group & !named != 0 || seen & named != 0 {
            return None;
        }
        if w.missing(named, group) != 0 && found.is_none() {
            found = Some(group);
        }

        seen |= named;
        left &= !group;
    }

    found
}

fn gather_at_barrier(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &Barrier,
) -> Checked<Gathering> {
    if w.missing(u32::MAX, mask) == 0 {
        return Ok(Gathering::Executes);
    }
    let barrier = barrier::barrier_use(block, w, mask, b)?;
    barrier::holds(block, w, mask, b.kind)?;
    park_for_warp(block, w, mask, MeetingPlace::Barrier(barrier))
}

fn gather_at_cluster(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32) -> Checked<Gathering> {
    if cluster::is_together(block, w) || w.missing(u32::MAX, mask) == 0 {
        return Ok(Gathering::Executes);
    }
    park_for_warp(block, w, mask, MeetingPlace::Cluster)
}

/// Parks lanes that wait for all others of their warp.
fn park_for_warp(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    at: MeetingPlace,
) -> Checked<Gathering> {
    let kind = kind(block, w.now.pc);
    w.park_here(
        mask,
        StrandState::Waits(Meeting {
            kind,
            named: u32::MAX,
            at,
            pc: None,
        }),
        block.grid.code,
    );
    arrived(block, w)
}

/// Returns the opcode of an instruction, with its qualifiers in one order and without those
/// that change nothing.
fn kind(block: &Block<'_, '_>, pc: u32) -> String {
    let (opcode, _) = parts(&block.grid.code.places[pc as usize]);
    let mut parts: Vec<&str> = opcode.split('.').filter(|part| *part != "cta").collect();
    parts[1..].sort_unstable();
    parts.join(".")
}

/// Executes the instructions of groups that are complete after lanes have arrived, and lets
/// other lanes run.
fn arrived(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<Gathering> {
    observation::interrupted(block);
    Ok(if complete_meetings(block, w)? {
        Gathering::Waits
    } else {
        Gathering::Elsewhere
    })
}

/// Waits for the lanes of other strands before an `.aligned` instruction.
fn gather_aligned(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<Gathering> {
    if w.lanes_apart() & !w.now.mask == 0 {
        return Ok(Gathering::Executes);
    }

    observation::interrupted(block);
    let joined = w.absorb_aligned();
    if w.lanes_apart() & !w.now.mask != 0 {
        let all = w.lanes();
        w.park(all, StrandState::Aligned, block.grid.code);
        if w.pick(block.grid.code) {
            return Ok(Gathering::Elsewhere);
        }

        // All the others wait: for the running lanes, or the instruction reports that they are
        // not there.
        if w.apart.iter().any(|strand| strand.meeting().is_some()) {
            return Err(never_met(block, w));
        }

        w.unpark(w.apart.len() - 1);
    }

    Ok(if joined {
        Gathering::Elsewhere
    } else {
        Gathering::Executes
    })
}

/// Executes the instructions of the groups that are complete. Returns true if the warp waits at
/// a barrier now.
fn complete_meetings(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<bool> {
    let mut waits = false;
    while let Some((meeting, arrived)) = complete_meeting(w) {
        match meeting.at {
            MeetingPlace::Mask => {
                let mut strands = std::mem::take(&mut w.apart);
                let done = exchange(block, w, &mut strands, &meeting, arrived);
                w.apart = strands;
                done?;
                for strand in w.apart.iter_mut().filter(|s| s.meeting() == Some(&meeting)) {
                    strand.context.now.pc += 1;
                    strand.state = StrandState::Runnable;
                }
                w.merge_runnable();
            }
            MeetingPlace::Barrier(barrier) => {
                waits |= arrive_together(block, w, &meeting, arrived, barrier)?;
            }
            MeetingPlace::Cluster => wait_together(block, w, &meeting, arrived),
        }
    }
    Ok(waits)
}

/// Returns the exchange at which lanes meet.
fn exchange_at(ops: &[Instruction], pc: u32) -> &Exchange {
    match &ops[pc as usize].op {
        Op::Exchange(exchange) => exchange,
        op => unreachable!("lanes that name each other are at an exchange, not at {op:?}"),
    }
}

/// Executes one instruction for the lanes of several strands.
fn exchange(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    strands: &mut [Strand],
    meeting: &Meeting,
    arrived: u32,
) -> Checked<()> {
    let of_meeting = |s: &Strand| s.meeting() == Some(meeting);
    let ops = &block.grid.code.ops[..];
    let mut all = Warp {
        index: w.index,
        number: w.number,
        rank: w.rank,
        live: w.live,
        exited: w.exited,
        ..Warp::default()
    };
    all.regs.fit([MASK + 1, A + 1, P + 1]);
    all.regs.set(MASK, arrived, &[meeting.named; 32]);
    for strand in strands.iter_mut().filter(|s| of_meeting(s)) {
        let mask = strand.context.now.mask;
        all.now = strand.context.now;
        let op = exchange_at(ops, all.now.pc);
        let copied = copy_operands(&mut all.regs, &strand.context.regs, mask, op);
        copied.map_err(|u| block.undefined(&all, u))?;
    }

    let op = auxiliary(exchange_at(ops, all.now.pc));
    if let Err(mut fault) = warp_exchange::exchange(block, &mut all, arrived, &op) {
        // The auxiliary warp is at the instruction of one strand only.
        let blamed = |s: &&Strand| of_meeting(s) && s.context.now.mask & fault.lanes != 0;
        if let Some(strand) = strands.iter().find(blamed) {
            let calls = strand.context.calls.iter().rev();
            fault.calls = calls.map(|call| block.place(call.now.pc)).collect();
            fault.place = Some(block.place(strand.context.now.pc));
        }
        return Err(fault);
    }

    for strand in strands.iter_mut().filter(|s| of_meeting(s)) {
        w.swap_context(&mut strand.context);
        let op = exchange_at(ops, w.now.pc);
        let mask = w.now.mask;
        copy_results(w, &all.regs, mask, op);
        w.swap_context(&mut strand.context);
    }

    w.forced &= !arrived;
    Ok(())
}

/// Executes a barrier at which all lanes of a warp have arrived, at several instructions.
/// Returns true if the warp must wait.
fn arrive_together(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    meeting: &Meeting,
    arrived: u32,
    barrier: BarrierUse,
) -> Checked<bool> {
    let ops = &block.grid.code.ops[..];
    let mut holds = 0;
    let mut first = None;
    for i in 0..w.apart.len() {
        if w.apart[i].meeting() != Some(meeting) {
            continue;
        }
        let Op::Barrier(b) = &ops[w.apart[i].context.now.pc as usize].op else {
            continue;
        };

        let mut strands = std::mem::take(&mut w.apart);
        let strand = &mut strands[i];
        w.swap_context(&mut strand.context);
        let own = barrier::holds(block, w, w.now.mask, b.kind);
        w.swap_context(&mut strand.context);
        if first.is_some() {
            strand.context.now.pc += 1;
            strand.reduction = reduces(b.kind).then_some(b.kind);
        }

        strand.state = StrandState::Runnable;
        w.apart = strands;
        holds |= own?;
        first = first.or(Some((i, b)));
    }

    let Some((first, b)) = first else {
        return Ok(false);
    };

    // The running strand has no lanes left, since all of them have arrived.
    w.unpark(first);
    w.forced &= !arrived;
    w.effects += 1;
    let waits = barrier::arrive(block, w, b.kind, barrier, arrived, holds)?;
    w.now.pc += 1;
    Ok(waits)
}

/// Lets the first strand execute a wait at the barrier of the cluster for all lanes of the
/// warp.
fn wait_together(block: &mut Block<'_, '_>, w: &mut Warp, meeting: &Meeting, arrived: u32) {
    let Some(first) = w.apart.iter().position(|s| s.meeting() == Some(meeting)) else {
        return;
    };

    // The running strand has no lanes left, since all of them have arrived.
    w.unpark(first);
    for strand in w.apart.iter_mut().filter(|s| s.meeting() == Some(meeting)) {
        strand.context.now.pc += 1;
        strand.state = StrandState::Runnable;
    }

    w.forced &= !arrived;
    cluster::set_together(block, w);
}

/// Continues with other lanes of the warp after the running ones have ended or returned from a
/// call.
#[cold]
pub(crate) fn schedule(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<Scheduled> {
    observation::interrupted(block);
    if !w.calls.is_empty() {
        if w.reconverge_behind_call() {
            calls::leave(block, w)?;
            w.reconverge(block.grid.code);
        }
        return Ok(Scheduled::Running);
    }

    if complete_meetings(block, w)? {
        return Ok(Scheduled::Waits);
    }
    if w.now.mask != 0 || w.pick(block.grid.code) {
        return Ok(Scheduled::Running);
    }
    if w.apart.iter().any(|strand| strand.meeting().is_some()) {
        return Err(never_met(block, w));
    }

    if w.apart.is_empty() {
        Ok(Scheduled::Ended)
    } else {
        w.unpark(0);
        Ok(Scheduled::Running)
    }
}

/// Runs lanes of the warp that have not polled since, in place of the running ones, which poll.
/// Returns false if there are none.
pub(crate) fn run_others(block: &mut Block<'_, '_>, w: &mut Warp, pause: Pause) -> Checked<bool> {
    if w.lanes() & !w.now.mask != 0 {
        let polling = w.now.mask;
        w.park(polling, StrandState::Polled, block.grid.code);
        return Ok(true);
    }

    if w.apart.is_empty() {
        return Ok(false);
    }

    complete_meetings(block, w)?;
    let all = w.lanes();
    let progress = w.runnable().is_some();
    if progress
        || w.apart
            .iter()
            .any(|s| matches!(s.state, StrandState::Polled))
    {
        w.park(all, StrandState::Polled, block.grid.code);
        w.pick(block.grid.code);
    }

    // All have polled: the next time another one begins. Lanes that only another thread can
    // release keep their state, so that the warp is seen to wait when all of them are such.
    if !progress && pause != Pause::Stays {
        w.others_may_run();
    }

    Ok(progress)
}

/// Describes the lanes of a warp that wait for others of it, as part of a sentence about the
/// warp.
pub(crate) fn waiting_lanes(block: &Block<'_, '_>, w: &Warp) -> String {
    let waiting = w.apart.iter().filter(|strand| strand.meeting().is_some());
    let lanes = waiting.map(|strand| {
        let line = block.place(strand.context.now.pc).line;
        format!(
            ", and its {} wait in line {line} for other lanes of the warp",
            show_lanes(strand.context.lanes())
        )
    });
    lanes.collect()
}

/// Returns the fault of lanes that wait for others of their warp which never arrive.
fn never_met(block: &mut Block<'_, '_>, w: &mut Warp) -> Box<Fault> {
    let Some(first) = w.apart.iter().position(|strand| strand.meeting().is_some()) else {
        return block.fault(
            w,
            w.now.mask,
            Class::InactiveLane,
            "lanes of the warp wait for each other",
        );
    };

    let Some(meeting) = w.apart[first].meeting().cloned() else {
        unreachable!("it was found above")
    };

    let same = w.apart.iter().filter(|s| s.meeting() == Some(&meeting));
    let arrived = same.fold(0, |all, s| all | s.context.lanes());
    let missing = w.missing(meeting.named, arrived);
    let other = w
        .apart
        .iter()
        .find(|s| s.context.lanes() & missing != 0 && s.meeting() != Some(&meeting));
    let other = other.map(|s| {
        (
            s.context.lanes() & missing,
            s.context.now.pc,
            s.meeting().cloned(),
        )
    });
    w.unpark(first);
    let lanes = show_lanes(arrived);
    let others = show_lanes(missing);
    let (class, waited_for) = match meeting.at {
        MeetingPlace::Mask => (
            Class::InactiveLane,
            format!("the mask 0x{:08x} names {others}", meeting.named),
        ),
        MeetingPlace::Barrier(barrier) => {
            let id = barrier.number();
            (
                Class::DivergentBarrier,
                format!("{lanes} of the warp wait at barrier {id} for {others}"),
            )
        }
        MeetingPlace::Cluster => (
            Class::DivergentBarrier,
            format!("{lanes} of the warp wait at the barrier of the cluster for {others}"),
        ),
    };
    let reason = match &other {
        None if missing.is_power_of_two() => "which exits without executing this".into(),
        None => "which exit without executing this".into(),
        Some((who, pc, theirs)) => {
            let verb = if who.is_power_of_two() {
                "waits"
            } else {
                "wait"
            };
            let line = block.place(*pc).line;
            let who = if *who == missing {
                "which".into()
            } else {
                format!("of which {}", show_lanes(*who))
            };
            match theirs {
                Some(m) if m.kind == meeting.kind && m.named != meeting.named => {
                    format!(
                        "{who} {verb} in line {line} with the mask 0x{:08x}",
                        m.named
                    )
                }
                Some(Meeting {
                    kind,
                    at: MeetingPlace::Barrier(barrier),
                    ..
                }) if *kind == meeting.kind => {
                    let id = barrier.number();
                    let count = barrier.count;
                    format!("{who} {verb} in line {line} at barrier {id} for {count} threads")
                }
                _ => format!(
                    "{who} {verb} at {} in line {line}",
                    parts(&block.place(*pc)).0
                ),
            }
        }
    };
    let mut fault = block.fault(w, missing, class, format!("{waited_for}, {reason}"));
    fault.instead = match meeting.at {
        MeetingPlace::Barrier(_) | MeetingPlace::Cluster => {
            "all lanes of the warp must reach the same barrier, with the same thread count"
        }
        MeetingPlace::Mask => {
            "all lanes that the mask names must execute the same instruction, with the same qualifiers and mask"
        }
    };
    fault.other = other.map(|(who, pc, _)| OtherPlace {
        place: block.place(pc),
        did: if who.is_power_of_two() {
            "waits"
        } else {
            "wait"
        },
        who: show_lanes(who),
    });
    fault
}

/// Returns a meeting at which all lanes that are waited for have arrived, and these lanes.
fn complete_meeting(w: &Warp) -> Option<(Meeting, u32)> {
    let meetings = w.apart.iter().filter_map(Strand::meeting);
    let with_lanes = meetings.map(|meeting| {
        let same = w.apart.iter().filter(|s| s.meeting() == Some(meeting));
        (meeting, same.fold(0, |all, s| all | s.context.lanes()))
    });
    let mut complete =
        with_lanes.filter(|(meeting, arrived)| w.missing(meeting.named, *arrived) == 0);
    complete
        .next()
        .map(|(meeting, arrived)| (meeting.clone(), arrived))
}
