//! Access of a warp to global memory.
//!
//! The addresses of a warp usually lie in one allocation, which is usually the allocation that the
//! same instruction accessed last. One comparison of the lowest and the highest address then checks
//! the bounds of all lanes, and a second one checks that the bytes are initialized.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};

use crate::machine::device::allocation::ShadowedAllocation;
pub(crate) use crate::machine::device::allocation_words::read;
use crate::machine::device::allocation_words::{update, write};
use crate::machine::memory::global::address_pattern::{
    AddressPattern, are_words, gather, load_consecutive, pattern, scatter, span,
};
use crate::machine::memory::global::global_checks::{check_lane, lane_allocation, one, read_only};
use crate::machine::memory::global::global_record::{atomic_place, record};
use crate::machine::memory::global::{store_buffer, wide_atomics};
use crate::machine::memory::lane_access::{extend, put};
use crate::machine::memory::{lane_access, same_address};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::{AccessOrdering, Atomic, Transfer, Width};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;

/// Checks that the address of every lane is a multiple of the size of the whole access.
#[inline(always)]
fn are_all_aligned(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    pattern: AddressPattern,
    bytes: u32,
) -> Checked<()> {
    // Addresses that are equal or consecutive are aligned if the first one is.
    if pattern != AddressPattern::Scattered && addresses[0] & u64::from(bytes - 1) == 0 {
        Ok(())
    } else {
        lane_access::check_alignment(block, w, mask, addresses, bytes)
    }
}

/// Checks the bounds and the initialization for all lanes that read.
#[inline]
fn check_reads<'g>(
    block: &mut Block<'g, '_>,
    w: &Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
    pattern: AddressPattern,
) -> Checked<Option<&'g ShadowedAllocation>> {
    let bytes = t.width.bytes * t.regs.len() as u32;
    are_all_aligned(block, w, mask, addresses, pattern, bytes)?;
    let (low, end) = span(addresses, pattern, bytes);
    if let Some(a) = one(block, t.site, low, end) {
        if end - a.base > a.prefix()
            && !(end - low <= 1024 && a.is_initialised(low - a.base, end - low))
        {
            lanes(mask)
                .try_for_each(|lane| check_lane(block, w, lane, a, addresses[lane], bytes))?;
        }
        return Ok(Some(a));
    }

    for lane in lanes(mask) {
        let a = lane_allocation(block, w, lane, addresses[lane], bytes)?;
        check_lane(block, w, lane, a, addresses[lane], bytes)?;
    }

    Ok(None)
}

pub(crate) fn load_global(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let pattern = pattern(addresses, t.width.bytes * t.regs.len() as u32);
    let one = check_reads(block, w, mask, t, addresses, pattern)?;
    if block.recorder.is_some() {
        let bytes = t.width.bytes * t.regs.len() as u32;
        record(
            block,
            w,
            mask,
            (read_operation(t), t.scope, None),
            one,
            addresses,
            bytes,
        )?;
    }

    let whole = hold(block, t, one, addresses);
    if let Some(a) = one
        && mask == u32::MAX
        && pattern == AddressPattern::Consecutive
        && are_words(t)
    {
        load_consecutive(w, t, a, addresses[0]);
        return store_buffer::load_late(block, w, mask, t, addresses);
    }

    for (i, to) in t.regs.iter().enumerate() {
        let Some(to) = to else { continue };
        let step = t.width.bytes as u64 * i as u64;
        match one {
            Some(a) if t.width.bytes == 4 && to.bits == 32 => {
                let mut out = [0; 32];
                gather(a, addresses, pattern, i, t.regs.len(), &mut out);
                w.regs.set(to.slot, mask, &out);
            }
            Some(a) if t.width.bytes < 4 && to.bits <= 32 => {
                let mut out = [0; 32];
                narrow(a, addresses, step, t.width, &mut out);
                let keep = u32::MAX >> (32 - to.bits);
                w.regs.set(to.slot, mask, &out.map(|v| v & keep));
            }
            _ => {
                let read =
                    |lane: usize| read_lane(block, one, addresses[lane], step, t.width.bytes);
                let mut out = [0; 32];
                lanes(mask).for_each(|lane| out[lane] = read(lane));
                put(
                    w,
                    *to,
                    mask,
                    &out.map(|v| extend(v, t.width.bytes, t.width.signed, to.bits)),
                );
            }
        }
    }

    drop(whole);
    store_buffer::load_late(block, w, mask, t, addresses)
}

/// Locks the allocation for a strong access of 64 or 128 bits. Blocks on other host threads
/// then see all of the access or nothing.
fn hold<'g>(
    block: &Block<'g, '_>,
    t: &Transfer,
    one: Option<&'g ShadowedAllocation>,
    addresses: &Addresses,
) -> Option<MutexGuard<'g, ()>> {
    if !t.order.is_strong() || t.width.bytes < 8 {
        return None;
    }
    let a = one.or_else(|| block.grid.table.reach(addresses[0]))?;
    Some(a.wide.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads bytes that were checked.
fn read_lane(
    block: &Block<'_, '_>,
    one: Option<&ShadowedAllocation>,
    address: u64,
    step: u64,
    bytes: u32,
) -> u64 {
    match one.or_else(|| block.grid.table.reach(address)) {
        Some(a) => read(a, address - a.base + step, bytes),
        None => 0,
    }
}

pub(crate) fn store_global(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes * t.regs.len() as u32;
    let pattern = pattern(addresses, bytes);
    are_all_aligned(block, w, mask, addresses, pattern, bytes)?;
    let (low, end) = span(addresses, pattern, bytes);
    let one = one(block, t.site, low, end);
    if one.is_none() {
        lanes(mask).try_for_each(|lane| {
            lane_allocation(block, w, lane, addresses[lane], bytes).map(|_| ())
        })?;
    }

    if block.recorder.is_some() {
        record(
            block,
            w,
            mask,
            (stored(t.order), t.scope, Some(t)),
            one,
            addresses,
            bytes,
        )?;
        store_buffer::store_late(block, w, mask, t, addresses);
    }

    if let Some(a) = one.filter(|a| !a.constant && pattern == AddressPattern::Consecutive)
        && are_words(t)
    {
        store_consecutive(block, w, mask, t, a, low)?;
        a.initialise(low - a.base, end - low);
        w.effects += 1;
        return Ok(());
    }

    let whole = hold(block, t, one, addresses);
    for (i, from) in t.regs.iter().flatten().enumerate() {
        let values = lane_access::take(block, w, *from, mask)?;
        let at = addresses.map(|a| a + t.width.bytes as u64 * i as u64);
        same_address::check_same(block, w, mask, &at, &values, t.width.bytes)?;
        for lane in lanes(mask) {
            let a = match one {
                Some(a) => a,
                None => lane_allocation(block, w, lane, at[lane], t.width.bytes)?,
            };
            if a.constant {
                return Err(read_only(block, w, lane, at[lane]));
            }
            write(a, at[lane] - a.base, t.width.bytes, values[lane]);
        }
    }

    drop(whole);
    mark(block, one, mask, addresses, bytes, low, end);
    w.effects += 1;
    Ok(())
}

/// Stores adjacent words of all lanes that are in bounds.
fn store_consecutive(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    t: &Transfer,
    a: &ShadowedAllocation,
    low: u64,
) -> Checked<()> {
    let first = ((low - a.base) / 4) as usize;
    let count = t.regs.len();
    let words = &a.words()[first..first + 32 * count];
    for (i, from) in t.regs.iter().flatten().enumerate() {
        let values = w
            .regs
            .get::<u32>(from.slot, mask)
            .map_err(|u| block.undefined(w, u))?;
        match count {
            1 => scatter::<1>(words, i, values),
            2 => scatter::<2>(words, i, values),
            4 => scatter::<4>(words, i, values),
            _ => scatter::<8>(words, i, values),
        }
    }

    Ok(())
}

/// Marks stored bytes as initialized.
fn mark(
    block: &Block<'_, '_>,
    one: Option<&ShadowedAllocation>,
    mask: u32,
    addresses: &Addresses,
    bytes: u32,
    low: u64,
    end: u64,
) {
    if let Some(a) = one {
        let whole = u64::from(mask.count_ones()) * u64::from(bytes) == end - low
            && addresses
                .windows(2)
                .all(|pair| pair[1] <= pair[0] + u64::from(bytes));
        if whole && mask == u32::MAX {
            return a.initialise(low - a.base, end - low);
        }
    }
    for lane in lanes(mask) {
        if let Some(a) = one.or_else(|| block.grid.table.reach(addresses[lane])) {
            a.initialise(addresses[lane] - a.base, bytes.into());
        }
    }
}

pub(crate) fn atomic_global(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Atomic,
    addresses: &Addresses,
) -> Checked<()> {
    lane_access::check_alignment(block, w, mask, addresses, t.bytes)?;
    if let Some(high) = &t.high {
        return wide_atomics::wide_atomic_global(block, w, mask, (t, high), addresses);
    }

    let b = lane_access::take(block, w, t.b, mask)?;
    let c = match t.c {
        Some(c) => lane_access::take(block, w, c, mask)?,
        None => b,
    };
    let mut old = [0; 32];
    for lane in lane_access::lane_order(block, mask) {
        let a = atomic_place(block, w, lane, t, addresses)?;
        old[lane] = update(a, addresses[lane] - a.base, t.bytes, |m| {
            (t.f)(m, b[lane], c[lane])
        });
        w.effects += u64::from((t.f)(old[lane], b[lane], c[lane]) != old[lane]);
    }

    if let Some(d) = t.d {
        put(w, d, mask, &old);
    }

    Ok(())
}

/// Loads one or two bytes `step` bytes after the address of each lane, and extends them. They must
/// have been checked.
#[inline(always)]
fn narrow(
    a: &ShadowedAllocation,
    addresses: &Addresses,
    step: u64,
    width: Width,
    out: &mut [u32; 32],
) {
    let words = a.words();
    let unused = 32 - 8 * width.bytes;
    for (out, at) in out.iter_mut().zip(addresses) {
        let offset = at - a.base + step;
        let top = words[(offset / 4) as usize].load(Relaxed) >> (8 * (offset % 4)) << unused;
        *out = if width.signed {
            (top as i32 >> unused) as u32
        } else {
            top >> unused
        };
    }
}

/// Returns the kind of a store for the race detector.
fn stored(order: AccessOrdering) -> MemoryOperation {
    match order {
        AccessOrdering::Release => MemoryOperation::Release,
        AccessOrdering::Weak => MemoryOperation::Write,
        _ => MemoryOperation::StrongWrite,
    }
}

/// Returns the kind of a load for the record of accesses.
fn read_operation(t: &Transfer) -> MemoryOperation {
    match (t.read_only, t.order) {
        (true, _) => MemoryOperation::ReadOnly,
        (_, AccessOrdering::Acquire) => MemoryOperation::Acquire,
        (_, AccessOrdering::Weak) => MemoryOperation::Read,
        _ => MemoryOperation::StrongRead,
    }
}
