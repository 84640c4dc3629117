//! The sixteen barriers of a block (manual, "bar, barrier").
//!
//! A barrier counts threads in whole warps. It completes when the number of arrivals reaches the
//! count that its first user gave. The waiting warps then continue, and the barrier can be used
//! again.

use crate::machine::predicates::pred;
use crate::machine::state::barrier_state::{BarrierState, BarrierUse, COUNT};
use crate::machine::state::block::{Block, Checked, show_lanes};
use crate::machine::state::warp::Warp;
use crate::module::code::{Barrier, BarrierKind};
use crate::module::registers::Regs;
use crate::{Class, Fault};

/// Returns true if a barrier writes a register.
pub(crate) fn reduces(kind: BarrierKind) -> bool {
    match kind {
        BarrierKind::Popc { .. } | BarrierKind::And { .. } | BarrierKind::Or { .. } => true,
        BarrierKind::Sync | BarrierKind::Arrive => false,
    }
}

/// Executes a barrier that all lanes of the warp have reached. Returns true if the warp must
/// wait.
pub(crate) fn barrier(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &Barrier,
) -> Checked<bool> {
    // Without `.aligned`, lanes that have exited are not waited for.
    let needed = if b.aligned { w.live } else { w.present() };
    if mask != needed {
        return Err(divergent(block, w, mask));
    }
    let barrier = barrier_use(block, w, mask, b)?;
    let holds = holds(block, w, mask, b.kind)?;
    arrive(block, w, b.kind, barrier, mask, holds)
}

/// Returns the operands of a barrier, which must be the same in all lanes.
pub(crate) fn barrier_use(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    b: &Barrier,
) -> Checked<BarrierUse> {
    let id = uniform(block, w, mask, b.id, "barrier number")?;
    let count = match b.count {
        Some(slot) => uniform(block, w, mask, slot, "thread count")?,
        None => block.barriers.all,
    };
    if id as usize >= COUNT {
        return Err(mismatch(
            block,
            w,
            format!("barrier {id} does not exist: there are 0 to 15"),
        ));
    }

    if count == 0 || count % 32 != 0 || count > block.barriers.all {
        let what = format!(
            "barrier {id} for {count} threads: the block has {}, and warps count whole",
            block.barriers.all
        );
        return Err(mismatch(block, w, what));
    }

    Ok(BarrierUse {
        id: id + COUNT as u32 * w.rank,
        count,
    })
}

/// Returns the lanes in which the predicate of a reduction is true.
pub(crate) fn holds(block: &Block<'_, '_>, w: &Warp, mask: u32, kind: BarrierKind) -> Checked<u32> {
    match kind {
        BarrierKind::Popc { pred: p, .. }
        | BarrierKind::And { pred: p, .. }
        | BarrierKind::Or { pred: p, .. } => {
            pred(&w.regs, p, mask).map_err(|u| block.undefined(w, u))
        }
        BarrierKind::Sync | BarrierKind::Arrive => Ok(0),
    }
}

/// Lets the lanes of a mask arrive at a barrier. Returns true if the warp must wait.
pub(crate) fn arrive(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    kind: BarrierKind,
    BarrierUse { id, count }: BarrierUse,
    mask: u32,
    holds: u32,
) -> Checked<bool> {
    let reduces = reduces(kind);
    let state = &mut block.barriers.states[id as usize];
    if state.arrived == 0 {
        *state = BarrierState {
            expected: count,
            reduces,
            first: w.now.pc,
            ..BarrierState::default()
        };
    } else if state.expected != count || state.reduces != reduces {
        return Err(disagree(block, w, id, count));
    }

    state.arrived += 32;
    state.holds += holds.count_ones();
    state.threads += mask.count_ones();
    state.participants.push(w.index);
    let full = state.arrived == state.expected;
    if kind != BarrierKind::Arrive {
        state.waiting.push((w.index, kind));
        block.barriers.waits[w.index as usize] = Some((id, w.now.pc));
    }

    if full {
        complete(block, w, id);
    }

    Ok(block.barriers.waits[w.index as usize].is_some())
}

/// Releases all warps that wait at a barrier.
fn complete(block: &mut Block<'_, '_>, current: &mut Warp, id: u32) {
    let state = std::mem::take(&mut block.barriers.states[id as usize]);
    let waiting: Vec<u32> = state.waiting.iter().map(|(w, _)| *w).collect();
    block.shadow.clocks.barrier(&state.participants, &waiting);
    for &(index, kind) in &state.waiting {
        block.barriers.waits[index as usize] = None;
        if index == current.index {
            reduce(current, kind, state.holds, state.threads);
        } else {
            reduce(block.warp(index), kind, state.holds, state.threads);
            block.barriers.released.push(index);
        }
    }
}

fn uniform(block: &Block<'_, '_>, w: &Warp, mask: u32, slot: u32, what: &str) -> Checked<u32> {
    let values = w
        .regs
        .get::<u32>(slot, mask)
        .map_err(|u| block.undefined(w, u))?;
    let first = values[mask.trailing_zeros() as usize];
    match crate::module::lane_mask::lanes(mask).find(|l| values[*l] != first) {
        None => Ok(first),
        Some(l) => Err(mismatch(
            block,
            w,
            format!(
                "the {what} is {first} in one lane and {} in another",
                values[l]
            ),
        )),
    }
}

fn divergent(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Box<Fault> {
    let exited = if w.exited == 0 {
        String::new()
    } else {
        format!(", {} exited", show_lanes(w.exited))
    };
    let what = format!(
        "a barrier is executed by {} of a warp that has {}{exited}",
        show_lanes(mask),
        show_lanes(w.live)
    );
    let mut fault = block.fault(w, mask, Class::DivergentBarrier, what);
    fault.instead = "all threads of the warp must reach it together: move it out of the branch, or let no thread exit before";
    fault
}

fn mismatch(block: &Block<'_, '_>, w: &Warp, what: String) -> Box<Fault> {
    block.fault(w, w.now.mask, Class::BarrierMismatch, what)
}

fn disagree(block: &Block<'_, '_>, w: &Warp, id: u32, count: u32) -> Box<Fault> {
    let state = &block.barriers.states[id as usize];
    let what = format!(
        "barrier {} is used for {count} threads while {} are expected, or with and without reduction",
        id % COUNT as u32,
        state.expected
    );
    let mut fault = mismatch(block, w, what);
    fault.other = Some(block.earlier(state.first, 32 * state.participants[0], "first used it"));
    fault
}

/// Writes the result of a reduction in a released warp, including lanes that arrived at another
/// instruction.
fn reduce(w: &mut Warp, kind: BarrierKind, holds: u32, threads: u32) {
    write_reduction(&mut w.regs, w.live, kind, holds, threads);
    for strand in &mut w.apart {
        if let Some(kind) = strand.reduction.take() {
            let lanes = strand.context.lanes();
            write_reduction(&mut strand.context.regs, lanes, kind, holds, threads);
        }
    }
}

fn write_reduction(regs: &mut Regs, mask: u32, kind: BarrierKind, holds: u32, threads: u32) {
    let all = |b: bool| if b { u32::MAX } else { 0 };
    match kind {
        BarrierKind::Popc { d, .. } => regs.set(d, mask, &[holds; 32]),
        BarrierKind::And { d, .. } => regs.set_pred(d, mask, all(holds == threads)),
        BarrierKind::Or { d, .. } => regs.set_pred(d, mask, all(holds > 0)),
        BarrierKind::Sync | BarrierKind::Arrive => {}
    }
}
