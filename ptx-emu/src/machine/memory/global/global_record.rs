//! Records the accesses to global memory of a traced launch, and reports races.

use crate::fault::{Class, Fault, OtherPlace};
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::memory::global::global_checks::{check_lane, lane_allocation, one, read_only};
use crate::machine::memory::global::global_warp_record;
use crate::machine::memory::{lane_access, tolerance};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::atomic::Atomic;
use crate::module::code::operand::{MemoryScope, Transfer};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::global::launch_recorder::RacingAccess;
use crate::sanitize::race::last_access::AccessProperties;

/// Records an access of a traced launch, and finds races between blocks. `stored` is the store,
/// for a store.
#[cold]
pub(crate) fn record(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    (operation, scope, stored): (MemoryOperation, MemoryScope, Option<&Transfer>),
    one: Option<&ShadowedAllocation>,
    addresses: &Addresses,
    bytes: u32,
) -> Checked<()> {
    if block
        .recorder
        .as_ref()
        .is_some_and(|r| r.bytes() as u64 > block.grid.watch.most_recorded())
    {
        return Err(record_full(block, w, mask));
    }

    if let Some(a) = one
        && global_warp_record::record_together(
            block,
            w,
            mask,
            (operation, scope),
            a,
            addresses,
            bytes,
        )
    {
        return Ok(());
    }

    for lane in lanes(mask) {
        let address = addresses[lane];
        let Some(a) = one.or_else(|| block.grid.table.reach(address)) else {
            continue;
        };

        let Some(racing) = record_lane(block, w, lane, (operation, scope), (a, address), bytes)
        else {
            continue;
        };

        let fault = global_race(block, w, lane, operation, address, racing);
        match tolerance::tolerable(block, w, lane, operation, (a, address), &racing, stored) {
            Some(why) => tolerance::tolerate(block, fault, why)?,
            None => return Err(fault),
        }
    }

    Ok(())
}

#[cold]
fn record_full(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Box<Fault> {
    let most = block.grid.watch.most_recorded();
    let what = format!(
        "the record of the traced launch has reached its limit of {most} bytes, and races from here on would be missed"
    );
    let mut fault = block.fault(w, mask, Class::TraceFull, what);
    fault.instead = "trace fewer blocks or smaller buffers, or raise the limit";
    fault
}

fn record_lane(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (operation, scope): (MemoryOperation, MemoryScope),
    (a, address): (&ShadowedAllocation, u64),
    bytes: u32,
) -> Option<RacingAccess> {
    let recorder = block.recorder.as_mut()?;
    let clocks = &block.shadow.clocks;
    let seen = if scope == MemoryScope::Device {
        operation
    } else {
        operation.within_block()
    };
    let racing = recorder.record(
        (clocks, w.index),
        w.now.pc,
        seen,
        a.base,
        address - a.base,
        bytes,
    );
    let access = AccessProperties {
        pc: w.now.pc,
        thread: w.index * 32 + lane as u32,
        reads: true,
        writes: operation.writes(),
        strong: operation.is_strong(),
        ..AccessProperties::default()
    };
    racing.or(recorder.within_block(&block.shadow, access, address, bytes))
}

/// Executes `griddepcontrol.wait`, which counts for the whole warp.
pub(crate) fn grid_wait(block: &mut Block<'_, '_>, w: &Warp) {
    if let Some(recorder) = &mut block.recorder {
        recorder.wait(&block.shadow.clocks, w.index);
    }
}

/// Executes `griddepcontrol.launch_dependents`.
pub(crate) fn grid_trigger(block: &mut Block<'_, '_>, w: &Warp) {
    if let Some(recorder) = &mut block.recorder {
        recorder.trigger(&block.shadow.clocks, w.index, w.now.pc);
    }
}

#[cold]
fn global_race(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    operation: MemoryOperation,
    address: u64,
    racing: RacingAccess,
) -> Box<Fault> {
    let does = passive(operation.writes());
    let has = passive(racing.wrote);
    let did = if racing.wrote { "wrote" } else { "read" };
    let (kind, instead) = match racing.thread {
        None => (
            "block",
            "blocks run in any order: split the work so that no two share bytes, or use atomics",
        ),
        Some(_) => ("thread", "put a barrier between the two"),
    };
    let what = format!(
        "global memory at 0x{address:x} is {does} by this {kind} and {has} by another, in no order"
    );
    let mut fault = block.fault(w, 1 << lane, Class::GlobalRace, what);
    fault.instead = instead;
    fault.other = match (racing.pc, racing.thread) {
        (Some(pc), Some(thread)) => Some(block.earlier(pc, thread.into(), did)),
        (Some(pc), None) => Some(OtherPlace {
            place: block.place(pc),
            did,
            who: "another block".into(),
        }),
        (None, _) => None,
    };
    lane_access::locate(block, &mut fault, address);
    fault
}

/// Checks and records the atomic of a lane. Returns the allocation that contains its bytes.
pub(crate) fn atomic_place<'g>(
    block: &mut Block<'g, '_>,
    w: &Warp,
    lane: usize,
    t: &Atomic,
    addresses: &Addresses,
) -> Checked<&'g ShadowedAllocation> {
    let address = addresses[lane];
    let a = match one(
        block,
        t.site,
        address,
        address.saturating_add(t.bytes.into()),
    ) {
        Some(a) => a,
        None => lane_allocation(block, w, lane, address, t.bytes)?,
    };
    check_lane(block, w, lane, a, address, t.bytes)?;
    if a.constant {
        return Err(read_only(block, w, lane, address));
    }

    if let Some(recorder) = &mut block.recorder {
        recorder.late.forget(address, t.bytes);
        let operation = (MemoryOperation::Atomic, t.scope, None);
        record(block, w, 1 << lane, operation, Some(a), addresses, t.bytes)?;
    }

    Ok(a)
}

fn passive(writes: bool) -> &'static str {
    if writes { "written" } else { "read" }
}
