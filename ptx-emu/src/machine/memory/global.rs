//! Access of a warp to global memory.
//!
//! The addresses of a warp usually lie in one allocation, which is usually the allocation that the
//! same instruction accessed last. One comparison of the lowest and the highest address then checks
//! the bounds of all lanes, and a second one checks that the bytes are initialized.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};

use crate::fault::OtherPlace;
use crate::machine::interp::interpreter::extend;
use crate::machine::lane_mask::lanes;
use crate::machine::memory::address_pattern::{
    AddressPattern, are_words, gather, load_consecutive, pattern, scatter, span,
};
use crate::machine::memory::allocation::{ShadowedAllocation, store_part};
use crate::machine::memory::load_store::{Addresses, put};
use crate::machine::memory::{load_store, store_buffer, wide_atomics};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::code::{AccessOrdering, Atomic, MemoryScope, Transfer, Width};
use crate::sanitize::race::launch_accesses::MemoryOperation;
use crate::sanitize::race::launch_recorder::RacingAccess;
use crate::sanitize::race::shared_shadow::AccessProperties;
use crate::sanitize::race::{global_warp_access, same_address_stores, tolerated_races};
use crate::{Class, Fault};

fn holds(a: &ShadowedAllocation, low: u64, end: u64) -> bool {
    low >= a.base && end <= a.base + a.bytes
}

/// Returns the allocation that contains all addresses, or `None` if they lie in several
/// allocations or in a heap.
#[inline]
fn one<'g>(
    block: &mut Worker<'g, '_>,
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
    block: &Worker<'g, '_>,
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
fn is_block(block: &Worker<'_, '_>, address: u64, bytes: u32) -> bool {
    block
        .grid
        .table
        .heap_at(address)
        .is_none_or(|heap| heap.is_live(address, bytes.into()))
}

#[cold]
fn outside(block: &Worker<'_, '_>, w: &Warp, lane: usize, address: u64, bytes: u32) -> Box<Fault> {
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
    load_store::locate(block, &mut fault, address);
    fault
}

#[cold]
fn uninitialised(block: &Worker<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let what = format!("the byte at 0x{address:x} is read before anybody has written it");
    let mut fault = block.fault(w, 1 << lane, Class::UninitialisedGlobal, what);
    fault.instead = "fill the buffer first, or do not read past what was written";
    load_store::locate(block, &mut fault, address);
    fault
}

/// Checks that the bytes that a lane reads are initialized.
pub(crate) fn check_lane(
    block: &Worker<'_, '_>,
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

/// Checks that the address of every lane is a multiple of the size of the whole access.
#[inline(always)]
fn are_all_aligned(
    block: &Worker<'_, '_>,
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
        load_store::check_alignment(block, w, mask, addresses, bytes)
    }
}

/// Checks the bounds and the initialization for all lanes that read.
#[inline]
fn check_reads<'g>(
    block: &mut Worker<'g, '_>,
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
    block: &mut Worker<'_, '_>,
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
    block: &Worker<'g, '_>,
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
    block: &Worker<'_, '_>,
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
    block: &mut Worker<'_, '_>,
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
        let values = load_store::take(block, w, *from, mask)?;
        let at = addresses.map(|a| a + t.width.bytes as u64 * i as u64);
        same_address_stores::check_same(block, w, mask, &at, &values, t.width.bytes)?;
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
    block: &Worker<'_, '_>,
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
    block: &Worker<'_, '_>,
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

/// Records an access of a traced launch, and finds races between blocks. `stored` is the store,
/// for a store.
#[cold]
pub(crate) fn record(
    block: &mut Worker<'_, '_>,
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
        && global_warp_access::record_together(
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
        match tolerated_races::tolerable(block, w, lane, operation, (a, address), &racing, stored) {
            Some(why) => tolerated_races::tolerate(block, fault, why)?,
            None => return Err(fault),
        }
    }
    Ok(())
}

#[cold]
fn record_full(block: &Worker<'_, '_>, w: &Warp, mask: u32) -> Box<Fault> {
    let most = block.grid.watch.most_recorded();
    let what = format!(
        "the record of the traced launch has reached its limit of {most} bytes, and races from here on would be missed"
    );
    let mut fault = block.fault(w, mask, Class::TraceFull, what);
    fault.instead = "trace fewer blocks or smaller buffers, or raise the limit";
    fault
}

fn record_lane(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    (operation, scope): (MemoryOperation, MemoryScope),
    (a, address): (&ShadowedAllocation, u64),
    bytes: u32,
) -> Option<RacingAccess> {
    let recorder = block.recorder.as_mut()?;
    let clocks = &block.shared.clocks;
    let seen = if scope == MemoryScope::Device {
        operation
    } else {
        operation.within_block()
    };
    let racing = recorder.record(
        (clocks, w.index),
        w.now.pc,
        seen,
        a,
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
    racing.or(recorder.within_block(&block.shared, access, address, bytes))
}

/// Executes `griddepcontrol.wait`, which counts for the whole warp.
pub(crate) fn grid_wait(block: &mut Worker<'_, '_>, w: &Warp) {
    if let Some(recorder) = &mut block.recorder {
        recorder.wait(&block.shared.clocks, w.index);
    }
}

/// Executes `griddepcontrol.launch_dependents`.
pub(crate) fn grid_trigger(block: &mut Worker<'_, '_>, w: &Warp) {
    if let Some(recorder) = &mut block.recorder {
        recorder.trigger(&block.shared.clocks, w.index, w.now.pc);
    }
}

#[cold]
fn global_race(
    block: &Worker<'_, '_>,
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
    load_store::locate(block, &mut fault, address);
    fault
}

#[cold]
pub(crate) fn read_only(block: &Worker<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let mut fault = block.fault(
        w,
        1 << lane,
        Class::ReadOnlySpace,
        "a .const variable is written",
    );
    fault.instead = "declare it .global";
    load_store::locate(block, &mut fault, address);
    fault
}

pub(crate) fn atomic_global(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Atomic,
    addresses: &Addresses,
) -> Checked<()> {
    load_store::check_alignment(block, w, mask, addresses, t.bytes)?;
    if let Some(high) = &t.high {
        return wide_atomics::wide_atomic_global(block, w, mask, (t, high), addresses);
    }
    let b = load_store::take(block, w, t.b, mask)?;
    let c = match t.c {
        Some(c) => load_store::take(block, w, c, mask)?,
        None => b,
    };
    let mut old = [0; 32];
    for lane in load_store::lane_order(block, mask) {
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

/// Checks and records the atomic of a lane. Returns the allocation that contains its bytes.
pub(crate) fn atomic_place<'g>(
    block: &mut Worker<'g, '_>,
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

fn passive(writes: bool) -> &'static str {
    if writes { "written" } else { "read" }
}

/// Returns bytes at an offset that is aligned to their size.
pub(crate) fn read(a: &ShadowedAllocation, offset: u64, bytes: u32) -> u64 {
    let words = a.words();
    let word = |i: u64| u64::from(words[i as usize].load(Relaxed));
    match bytes {
        8 => word(offset / 4) | word(offset / 4 + 1) << 32,
        4 => word(offset / 4),
        _ => word(offset / 4) >> (8 * (offset % 4)) & ((1 << (8 * bytes)) - 1),
    }
}

pub(crate) fn write(a: &ShadowedAllocation, offset: u64, bytes: u32, value: u64) {
    let words = a.words();
    match bytes {
        4 => words[(offset / 4) as usize].store(value as u32, Relaxed),
        8 => {
            words[(offset / 4) as usize].store(value as u32, Relaxed);
            words[(offset / 4) as usize + 1].store((value >> 32) as u32, Relaxed);
        }
        _ => store_part(words, offset, &value.to_le_bytes()[..bytes as usize]),
    }
}

/// Updates the bytes at an offset atomically and returns the old value.
pub(crate) fn update(
    a: &ShadowedAllocation,
    offset: u64,
    bytes: u32,
    f: impl Fn(u64) -> u64,
) -> u64 {
    if bytes == 8 {
        let _held = a.wide.lock().unwrap_or_else(PoisonError::into_inner);
        let old = read(a, offset, 8);
        write(a, offset, 8, f(old));
        return old;
    }
    let word = &a.words()[(offset / 4) as usize];
    let shift = 8 * (offset % 4) as u32;
    let mask = (u64::MAX >> (64 - 8 * bytes)) as u32;
    let part = |word: u32| u64::from(word >> shift & mask);
    let next = |word: u32| Some(word & !(mask << shift) | (f(part(word)) as u32 & mask) << shift);
    let old = word.fetch_update(Relaxed, Relaxed, next);
    part(old.unwrap_or_else(|same| same))
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
