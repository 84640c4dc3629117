//! The checks of an access to global memory: bounds, freed memory and initialization.

use crate::fault::{Class, Fault};
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;

pub(crate) fn holds(a: &ShadowedAllocation, low: u64, end: u64) -> bool {
    low >= a.base && end <= a.base + a.bytes
}

/// Returns the allocation that contains all addresses, or `None` if they lie in several
/// allocations or in a heap.
#[inline]
pub(crate) fn one<'g>(
    block: &mut Block<'g, '_>,
    site: u32,
    low: u64,
    end: u64,
) -> Option<&'g ShadowedAllocation> {
    let live = block.grid.table.live();
    let cached = live.get(block.cache[site as usize] as usize)?;
    if holds(cached, low, end) {
        return Some(cached);
    }
    let index = live.partition_point(|a| a.base <= low).checked_sub(1)?;
    block.cache[site as usize] = index as u32;
    Some(&*live[index]).filter(|a| holds(a, low, end))
}

/// Returns the allocation that contains the bytes of one lane.
pub(crate) fn lane_allocation<'g>(
    block: &Block<'g, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
) -> Checked<&'g ShadowedAllocation> {
    let end = address.saturating_add(bytes.into());
    let table = &block.grid.table;
    match table.reach(address) {
        Some(a) if holds(a, address, end) && is_block(block, address, bytes) => Ok(a),
        _ => Err(outside(block, w, lane, address, bytes)),
    }
}

/// Returns true if the bytes lie in one block of a heap, or not in a heap.
fn is_block(block: &Block<'_, '_>, address: u64, bytes: u32) -> bool {
    block
        .grid
        .table
        .heap_at(address)
        .is_none_or(|heap| heap.is_live(address, bytes.into()))
}

#[cold]
pub(crate) fn outside(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
) -> Box<Fault> {
    let of_heap = || {
        block
            .grid
            .table
            .heap_at(address)
            .is_some_and(|heap| heap.freed(address).is_some())
    };
    let freed = block.grid.table.find_freed(address).is_some() || of_heap();
    let class = if freed {
        Class::AfterFree
    } else {
        Class::OutOfBounds
    };
    let what = if freed {
        format!("{bytes} bytes at 0x{address:x} are accessed after they were freed")
    } else {
        format!("{bytes} bytes at 0x{address:x} are accessed, which no allocation holds")
    };
    let mut fault = block.fault(w, 1 << lane, class, what);
    fault.instead = if freed {
        "free memory only after the last launch that uses it"
    } else {
        "check the index against the length"
    };
    lane_access::locate(block, &mut fault, address);
    fault
}

#[cold]
pub(crate) fn uninitialised(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
) -> Box<Fault> {
    let what = format!("the byte at 0x{address:x} is read before anybody has written it");
    let mut fault = block.fault(w, 1 << lane, Class::UninitialisedGlobal, what);
    fault.instead = "fill the buffer first, or do not read past what was written";
    lane_access::locate(block, &mut fault, address);
    fault
}

/// Checks that the bytes that a lane reads are initialized.
pub(crate) fn check_lane(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    a: &ShadowedAllocation,
    address: u64,
    bytes: u32,
) -> Checked<()> {
    match a.first_uninitialised(address - a.base, bytes.into()) {
        None => Ok(()),
        Some(at) => Err(uninitialised(block, w, lane, a.base + at)),
    }
}

#[cold]
pub(crate) fn read_only(block: &Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let mut fault = block.fault(
        w,
        1 << lane,
        Class::ReadOnlySpace,
        "a .const variable is written",
    );
    fault.instead = "declare it .global";
    lane_access::locate(block, &mut fault, address);
    fault
}
