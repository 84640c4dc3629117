//! Loads, stores and atomics: addresses, alignment and memory order.

use crate::fault::OtherPlace;
use crate::machine::interp::interpreter::extend;
use crate::machine::interp::parameter_space;
use crate::machine::lane_mask::{lanes, set_bit};
use crate::machine::memory::{global, local, shared_warp_access, store_buffer, wide_atomics};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::machine::sync::cluster;
use crate::module::address_space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::module::code::{
    AccessOrdering, Address, Atomic, FenceInstruction, InstructionSpace, MemoryScope,
    RegisterOperand, Transfer,
};
use crate::sanitize::profile::observer;
use crate::sanitize::race::shared_shadow::{AccessError, AccessProperties};
use crate::sanitize::race::vector_clocks::Strong;
use crate::sanitize::race::{lockstep, same_address_stores, tolerated_races};
use crate::{Class, Fault};

/// The address of each lane. Inactive lanes have the address of the first active lane.
pub(crate) type Addresses = [u64; 32];

/// The space to which an address resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResolvedAddress {
    Global,
    Shared,
    Local,
    Param,
}

/// The effect of an access on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Reads,
    Writes,
    Both,
}

/// Returns the space of a generic address, and the address in that space.
pub(crate) fn resolve(address: u64) -> (ResolvedAddress, u64) {
    match address {
        a if a.wrapping_sub(SHARED_WINDOW) < WINDOW => (ResolvedAddress::Shared, a - SHARED_WINDOW),
        a if a.wrapping_sub(LOCAL_WINDOW) < WINDOW => (ResolvedAddress::Local, a - LOCAL_WINDOW),
        a if a.wrapping_sub(PARAM_WINDOW) < WINDOW => (ResolvedAddress::Param, a - PARAM_WINDOW),
        a => (ResolvedAddress::Global, a),
    }
}

/// Returns true if the lanes access different elements of `bytes` bytes at aligned addresses. May
/// return false if the test would take long.
pub(crate) fn are_distinct(addresses: &Addresses, mask: u32, bytes: u32) -> bool {
    if mask == u32::MAX && addresses.is_sorted_by(|a, b| a < b) {
        return true;
    }
    let low = addresses.iter().copied().fold(u64::MAX, u64::min);
    let mut taken = [0u64; 64];
    lanes(mask).all(|lane| {
        let element = (addresses[lane] - low) / u64::from(bytes);
        let Some(word) = taken.get_mut((element / 64) as usize) else {
            return false;
        };
        let free = *word >> (element % 64) & 1 == 0;
        *word |= 1 << (element % 64);
        free
    })
}

/// Returns the lanes whose value is not 0.
pub(crate) fn lanes_of(values: &[u64; 32]) -> u32 {
    (0..32)
        .filter(|lane| values[*lane] != 0)
        .fold(0, |lanes, lane| lanes | 1 << lane)
}

pub(crate) fn put(w: &mut Warp, to: RegisterOperand, mask: u32, values: &[u64; 32]) {
    match to.bits {
        64 => w.regs.set(to.slot, mask, values),
        1 => w.regs.set_pred(to.slot, mask, lanes_of(values)),
        _ => w.regs.set(to.slot, mask, &values.map(|v| v as u32)),
    }
}

/// The advice for an access beyond the dynamic shared memory of a launch.
const DYNAMIC: &str =
    "launch with more dynamic shared memory (--smem BYTES of warpwright emu), or check the index";

/// The maximum size of dynamic shared memory in bytes.
const MOST_DYNAMIC: u64 = 227 << 10;

/// Returns the value of a register of any width.
pub(crate) fn take(
    block: &Worker<'_, '_>,
    w: &Warp,
    from: RegisterOperand,
    mask: u32,
) -> Checked<[u64; 32]> {
    let values = match from.bits {
        64 => w.regs.get::<u64>(from.slot, mask).copied(),
        1 => w
            .regs
            .pred(from.slot, mask)
            .map(|holds| std::array::from_fn(|lane| u64::from(holds >> lane & 1))),
        _ => w.regs.get::<u32>(from.slot, mask).map(|v| v.map(u64::from)),
    };
    values.map_err(|u| block.undefined(w, u))
}

/// Computes the address of each lane.
#[inline(always)]
pub(crate) fn lane_addresses(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    a: &Address,
    out: &mut Addresses,
) -> Checked<()> {
    let offset = a.offset as u64;
    if a.wide {
        match w.regs.get::<u64>(a.slot, mask) {
            Ok(base) => out
                .iter_mut()
                .zip(base)
                .for_each(|(out, base)| *out = base.wrapping_add(offset)),
            Err(u) => return Err(block.undefined(w, u)),
        }
    } else {
        match w.regs.get::<u32>(a.slot, mask) {
            Ok(base) => {
                let sum = |base: u32| u64::from(base.wrapping_add(offset as u32));
                out.iter_mut()
                    .zip(base)
                    .for_each(|(out, base)| *out = sum(*base));
            }
            Err(u) => return Err(block.undefined(w, u)),
        }
    }
    if mask != u32::MAX {
        let first = out[mask.trailing_zeros() as usize];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = if mask >> lane & 1 != 0 { *out } else { first };
        }
    }
    Ok(())
}

pub(crate) fn load(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &t.address, &mut addresses)?;
    cluster::place_all(block, w, mask, t.space, &mut addresses)?;
    observer::observe(
        block,
        w,
        mask,
        t.space,
        &addresses,
        t.width.bytes * t.regs.len() as u32,
    );
    match t.space {
        InstructionSpace::Global | InstructionSpace::Const => {
            global::load_global(block, w, mask, t, &addresses)
        }
        InstructionSpace::Shared | InstructionSpace::Cluster => {
            load_shared(block, w, mask, t, &addresses)
        }
        InstructionSpace::Local => local::load_local(block, w, mask, t, &addresses),
        InstructionSpace::Param => parameter_space::load_parameters(block, w, mask, t, &addresses),
        InstructionSpace::Generic => split(
            block,
            w,
            mask,
            &addresses,
            |me, w, mask, place, addresses| match place {
                ResolvedAddress::Global => global::load_global(me, w, mask, t, addresses),
                ResolvedAddress::Shared => load_shared(me, w, mask, t, addresses),
                ResolvedAddress::Local => local::load_local(me, w, mask, t, addresses),
                ResolvedAddress::Param => {
                    parameter_space::load_parameters(me, w, mask, t, addresses)
                }
            },
        ),
    }?;
    synchronise(
        block,
        w,
        mask,
        t.space,
        (t.order, t.scope),
        &addresses,
        Does::Reads,
    );
    Ok(())
}

pub(crate) fn store(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &t.address, &mut addresses)?;
    cluster::place_all(block, w, mask, t.space, &mut addresses)?;
    observer::observe(
        block,
        w,
        mask,
        t.space,
        &addresses,
        t.width.bytes * t.regs.len() as u32,
    );
    match t.space {
        InstructionSpace::Global | InstructionSpace::Const => {
            global::store_global(block, w, mask, t, &addresses)
        }
        InstructionSpace::Shared | InstructionSpace::Cluster => {
            store_shared(block, w, mask, t, &addresses)
        }
        InstructionSpace::Local => local::store_local(block, w, mask, t, &addresses),
        InstructionSpace::Param => Err(parameter_space::parameters_written(block, w, mask)),
        InstructionSpace::Generic => split(
            block,
            w,
            mask,
            &addresses,
            |me, w, mask, place, addresses| match place {
                ResolvedAddress::Global => global::store_global(me, w, mask, t, addresses),
                ResolvedAddress::Shared => store_shared(me, w, mask, t, addresses),
                ResolvedAddress::Local => local::store_local(me, w, mask, t, addresses),
                ResolvedAddress::Param => Err(parameter_space::parameters_written(me, w, mask)),
            },
        ),
    }?;
    synchronise(
        block,
        w,
        mask,
        t.space,
        (t.order, t.scope),
        &addresses,
        Does::Writes,
    );
    Ok(())
}

/// Executes `discard`.
pub(crate) fn discard(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    halves: &[Transfer; 2],
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &halves[0].address, &mut addresses)?;
    let bytes = halves
        .iter()
        .map(|half| half.width.bytes * half.regs.len() as u32)
        .sum();
    check_alignment(block, w, mask, &addresses, bytes)?;
    if let Some(lane) = lanes(mask).find(|l| resolve(addresses[*l]).0 != ResolvedAddress::Global) {
        let what = "discard of what is not global memory";
        return Err(block.fault(w, 1 << lane, Class::OutOfBounds, what));
    }
    halves
        .iter()
        .try_for_each(|half| store(block, w, mask, half))
}

pub(crate) fn atomic(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    a: &Atomic,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &a.address, &mut addresses)?;
    cluster::place_all(block, w, mask, a.space, &mut addresses)?;
    observer::observe(block, w, mask, a.space, &addresses, a.bytes);
    match a.space {
        InstructionSpace::Shared | InstructionSpace::Cluster => {
            atomic_shared(block, w, mask, a, &addresses)
        }
        InstructionSpace::Generic => split(
            block,
            w,
            mask,
            &addresses,
            |me, w, mask, place, addresses| match place {
                ResolvedAddress::Global => global::atomic_global(me, w, mask, a, addresses),
                ResolvedAddress::Shared => atomic_shared(me, w, mask, a, addresses),
                ResolvedAddress::Local => {
                    Err(me.fault(w, mask, Class::OutOfBounds, "an atomic on local memory"))
                }
                ResolvedAddress::Param => Err(parameter_space::parameters_written(me, w, mask)),
            },
        ),
        _ => global::atomic_global(block, w, mask, a, &addresses),
    }?;
    synchronise(
        block,
        w,
        mask,
        a.space,
        (a.order, a.scope),
        &addresses,
        Does::Both,
    );
    Ok(())
}

/// Executes atomics on the elements of a vector of `bytes` bytes.
pub(crate) fn atomics(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    bytes: u32,
    all: &[Atomic],
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &all[0].address, &mut addresses)?;
    check_alignment(block, w, mask, &addresses, bytes)?;
    if let Some(lane) = lanes(mask).find(|l| resolve(addresses[*l]).0 != ResolvedAddress::Global) {
        let what = "an atomic on a vector that is not in global memory";
        return Err(block.fault(w, 1 << lane, Class::OutOfBounds, what));
    }
    all.iter().try_for_each(|a| atomic(block, w, mask, a))
}

/// Executes `fence` and `membar`.
pub(crate) fn fence(block: &mut Worker<'_, '_>, w: &Warp, mask: u32, fence: FenceInstruction) {
    if fence.releases && fence.scope == MemoryScope::Device {
        store_buffer::stores_arrive(block, w, mask);
    }
    let clocks = &mut block.shared.clocks;
    let mut recorder = block
        .recorder
        .as_mut()
        .filter(|_| fence.scope == MemoryScope::Device);
    if fence.acquires {
        clocks.acquire_fence(w.index);
        recorder
            .iter_mut()
            .for_each(|r| r.acquire_fence(clocks, w.index));
    }
    if fence.releases {
        recorder
            .iter_mut()
            .for_each(|r| r.release_fence(clocks, w.index));
        clocks.release_fence(w.index);
    }
}

/// Executes the synchronization of a strong access at its address.
#[inline(always)]
fn synchronise(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    how: (AccessOrdering, MemoryScope),
    at: &Addresses,
    does: Does,
) {
    if how.0.is_strong() {
        meet(block, w, mask, space, how, at, does);
    }
}

fn meet(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    (order, scope): (AccessOrdering, MemoryScope),
    addresses: &Addresses,
    does: Does,
) {
    let strong = Strong {
        reads: does != Does::Writes,
        writes: does != Does::Reads,
        acquires: order.acquires(),
        releases: order.releases(),
    };
    let window = if matches!(space, InstructionSpace::Shared | InstructionSpace::Cluster) {
        SHARED_WINDOW
    } else {
        0
    };
    if strong.releases && scope == MemoryScope::Device {
        store_buffer::stores_arrive(block, w, mask);
    }
    let keys = || lanes(mask).map(|lane| addresses[lane].wrapping_add(window));
    let far = |key: u64| scope == MemoryScope::Device && resolve(key).0 == ResolvedAddress::Global;
    let clocks = &mut block.shared.clocks;
    let mut recorder = block.recorder.as_mut();
    for key in keys() {
        clocks.observe(w.index, key, strong);
        recorder
            .iter_mut()
            .filter(|_| far(key))
            .for_each(|r| r.observe(clocks, w.index, key, strong));
    }
    for key in keys() {
        recorder
            .iter_mut()
            .filter(|_| far(key))
            .for_each(|r| r.publish(clocks, w.index, key, strong));
        clocks.publish(w.index, key, strong);
    }
    if strong.releases {
        clocks.bump(w.index as usize);
    }
}

/// Calls `f` with the lanes of each space to which generic addresses resolve.
fn split(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    addresses: &Addresses,
    mut f: impl FnMut(&mut Worker<'_, '_>, &mut Warp, u32, ResolvedAddress, &Addresses) -> Checked<()>,
) -> Checked<()> {
    for place in [
        ResolvedAddress::Global,
        ResolvedAddress::Shared,
        ResolvedAddress::Local,
        ResolvedAddress::Param,
    ] {
        let these = lanes(mask)
            .filter(|l| resolve(addresses[*l]).0 == place)
            .fold(0, set_bit);
        if these != 0 {
            let first = addresses[these.trailing_zeros() as usize];
            let own = |lane: usize| {
                if these >> lane & 1 != 0 {
                    addresses[lane]
                } else {
                    first
                }
            };
            let mut own: Addresses = std::array::from_fn(|lane| resolve(own(lane)).1);
            if place == ResolvedAddress::Shared {
                cluster::place_all(block, w, these, InstructionSpace::Cluster, &mut own)?;
            }
            if place == ResolvedAddress::Local {
                local::own_addresses(block, w, these, &mut own)?;
            }
            f(block, w, these, place, &own)?;
        }
    }
    Ok(())
}

/// Checks that the address of every lane is a multiple of the size of the whole access.
#[inline]
pub(crate) fn check_alignment(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    bytes: u32,
) -> Checked<()> {
    let odd = addresses.iter().fold(0, |all, a| all | a) & u64::from(bytes - 1);
    if odd == 0 {
        Ok(())
    } else {
        Err(misaligned(block, w, mask, addresses, bytes))
    }
}

#[cold]
fn misaligned(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    bytes: u32,
) -> Box<Fault> {
    let bad = lanes(mask)
        .filter(|l| !addresses[*l].is_multiple_of(bytes.into()))
        .fold(0, set_bit);
    let address = addresses[bad.trailing_zeros() as usize % 32];
    let what =
        format!("an access of {bytes} bytes at 0x{address:x}, which is not a multiple of {bytes}");
    let mut fault = block.fault(w, bad, Class::Misaligned, what);
    fault.instead = "the address must be a multiple of the size of the whole vector";
    locate(block, &mut fault, address);
    fault
}

/// Sets the address and the nearest allocation of a fault.
pub(crate) fn locate(block: &Worker<'_, '_>, fault: &mut Fault, address: u64) {
    fault.address = Some(address);
    let near_shared = address < SHARED_WINDOW;
    let table = &block.grid.table;
    let of_heap = table.heap_at(address);
    let of_heap = of_heap.map(|heap| heap.freed(address).or_else(|| heap.nearest(address)));
    fault.allocation = match table.find_freed(address) {
        Some(info) => Some(info.clone()),
        None if of_heap.is_some() => of_heap.flatten(),
        None if near_shared => block.shared_variable(address),
        None => table.nearest(address).map(|a| a.info()),
    };
}

fn load_shared(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        strong: t.order.is_strong(),
        ..AccessProperties::default()
    };
    let whole = bytes * t.regs.len() as u32;
    check_alignment(block, w, mask, addresses, whole)?;
    if access.strong {
        lockstep::check_step(block, w, mask, addresses, whole, access)?;
    }
    if shared_warp_access::load_together(block, w, mask, t, addresses, access) {
        return Ok(());
    }
    let mut offsets = [0; 32];
    let checked = whole.is_multiple_of(4)
        && (t.space == InstructionSpace::Shared || block.blocks.len() == 1)
        && lanes(mask).all(|lane| {
            let access = AccessProperties {
                thread: w.index * 32 + lane as u32,
                ..access
            };
            let offset = block.shared.read_words(addresses[lane], whole, access);
            offsets[lane] = offset.unwrap_or(0);
            offset.is_some()
        });
    for (i, to) in t.regs.iter().enumerate() {
        let mut out = [0; 32];
        let mut nothing = (0, None);
        for lane in lanes(mask) {
            let step = bytes as usize * i;
            let offset = if checked {
                Ok(offsets[lane] + step)
            } else {
                tolerated_races::touch_or_guess(
                    block,
                    w,
                    lane,
                    addresses[lane] + step as u64,
                    bytes,
                    access,
                )
            };
            match offset {
                Ok(offset) => out[lane] = block.shared.read(offset, bytes),
                // Algorithms look one element too far, and do not use it.
                Err(fault) if fault.class == Class::UninitialisedShared && to.is_some() => {
                    nothing = (nothing.0 | 1 << lane, nothing.1.or(Some(fault)));
                }
                Err(fault) => return Err(fault),
            }
        }
        if let Some(to) = to {
            put(
                w,
                *to,
                mask,
                &out.map(|v| extend(v, bytes, t.width.signed, to.bits)),
            );
            let (lanes, fault) = nothing;
            fault
                .into_iter()
                .for_each(|fault| w.regs.put_off(to.bits, to.slot, lanes, fault));
        }
    }
    Ok(())
}

fn store_shared(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    let access = AccessProperties {
        pc: w.now.pc,
        writes: true,
        strong: t.order.is_strong(),
        ..AccessProperties::default()
    };
    check_alignment(block, w, mask, addresses, bytes * t.regs.len() as u32)?;
    if shared_warp_access::store_together(block, w, mask, t, addresses, access) {
        w.effects += 1;
        return Ok(());
    }
    for (i, from) in t.regs.iter().flatten().enumerate() {
        let values = take(block, w, *from, mask)?;
        let at: Addresses = addresses.map(|a| a.wrapping_add(u64::from(bytes) * i as u64));
        same_address_stores::check_same(block, w, mask, &at, &values, bytes)?;
        for lane in lanes(mask) {
            let offset = match touch(block, w, lane, at[lane], bytes, access) {
                Ok(offset) => offset,
                Err(fault) => {
                    tolerated_races::excuse_store(
                        block,
                        w,
                        fault,
                        (at[lane], bytes),
                        values[lane],
                    )?;
                    tolerated_races::touch_tolerated(block, w, lane, at[lane], bytes, access)
                }
            };
            block.shared.write(offset, bytes, values[lane]);
        }
    }
    w.effects += 1;
    Ok(())
}

fn atomic_shared(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    a: &Atomic,
    addresses: &Addresses,
) -> Checked<()> {
    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        writes: true,
        strong: true,
        ..AccessProperties::default()
    };
    check_alignment(block, w, mask, addresses, a.bytes)?;
    if let Some(high) = &a.high {
        return wide_atomics::wide_atomic_shared(block, w, mask, (a, high), addresses, access);
    }
    let b = take(block, w, a.b, mask)?;
    let c = match a.c {
        Some(c) => take(block, w, c, mask)?,
        None => b,
    };
    let mut old = [0; 32];
    for lane in lane_order(block, mask) {
        let offset =
            tolerated_races::touch_or_guess(block, w, lane, addresses[lane], a.bytes, access)?;
        old[lane] = block.shared.read(offset, a.bytes);
        let new = (a.f)(old[lane], b[lane], c[lane]);
        w.effects += u64::from(new != old[lane]);
        block.shared.write(offset, a.bytes, new);
    }
    if let Some(d) = a.d {
        put(w, d, mask, &old);
    }
    Ok(())
}

/// Returns the lanes of an atomic in the order in which they take effect, which the schedule
/// selects.
pub(crate) fn lane_order(block: &Worker<'_, '_>, mask: u32) -> impl Iterator<Item = usize> + use<> {
    let reversed = block.grid.schedule.order == crate::Order::Reversed;
    (0..32)
        .map(move |i| if reversed { 31 - i } else { i })
        .filter(move |l| mask >> l & 1 != 0)
}

/// Checks the access of one lane to shared memory and returns the offset of its bytes.
#[inline]
pub(crate) fn touch(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
) -> Checked<usize> {
    let access = AccessProperties {
        thread: w.index * 32 + lane as u32,
        ..access
    };
    if block.blocks.len() > 1 {
        cluster::visit(block, w, lane, address)?;
    }
    match block.shared.touch(address, bytes, access) {
        Ok(offset) => Ok(offset),
        Err(wrong) => Err(wrong_shared(block, w, lane, address, bytes, access, wrong)),
    }
}

#[cold]
fn wrong_shared(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
    wrong: AccessError,
) -> Box<Fault> {
    let does = if access.writes { "written" } else { "read" };
    match wrong {
        AccessError::Outside => {
            if let Some(fault) = covered(block, w, lane, address, bytes, does) {
                return fault;
            }
        }
        AccessError::Race { other, .. } if block.shared.by_agent(&other) => {
            return not_waited(block, w, lane, address, other.pc, does);
        }
        _ => {}
    }
    let (class, address, what, instead) = match wrong {
        AccessError::Outside => {
            let at = block.shared.local(address & !(1 << 63));
            match beyond_dynamic(block, at, bytes) {
                Some(more) => {
                    let what = format!(
                        "shared memory is {does} at 0x{at:x}, outside every variable: {more}"
                    );
                    (Class::OutOfBounds, address, what, DYNAMIC)
                }
                None => {
                    let what =
                        format!("shared memory is {does} at 0x{at:x}, outside every variable");
                    (
                        Class::OutOfBounds,
                        address,
                        what,
                        "the address must lie within one shared variable",
                    )
                }
            }
        }
        AccessError::Uninitialised { byte } => {
            let what = "shared memory is read that no thread of the block has written".to_string();
            (
                Class::UninitialisedShared,
                byte.into(),
                what,
                "write it first, and put a barrier between",
            )
        }
        AccessError::Race { .. } => {
            let what = format!(
                "shared memory is {does} while another thread uses it, and nothing orders the two"
            );
            (
                Class::SharedRace,
                address,
                what,
                "put a barrier between the two",
            )
        }
    };
    let mut fault = block.fault(w, 1 << lane, class, what);
    fault.instead = instead;
    block.locate_shared(&mut fault, address);
    if let AccessError::Race { other, wrote } = wrong {
        fault.other = Some(block.earlier(
            other.pc,
            other.thread.into(),
            if wrote { "wrote" } else { "read" },
        ));
    }
    fault
}

/// Describes the dynamic shared memory if an access lies beyond it and a launch could request
/// enough.
fn beyond_dynamic(block: &Worker<'_, '_>, at: u64, bytes: u32) -> Option<String> {
    let region = block.grid.code.declared_dynamic()?;
    let given = block.grid.launch.dynamic_shared;
    let needed = (at + u64::from(bytes)).checked_sub(region.address.into())?;
    let beyond = needed > given.into() && needed <= MOST_DYNAMIC;
    beyond.then(|| {
        format!(
            "the launch gives `{}` {given} bytes, and this access needs at least {needed}",
            region.name
        )
    })
}

/// Returns the fault of an access to an mbarrier, or to the destination of a pending copy.
fn covered(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    does: &str,
) -> Option<Box<Fault>> {
    if let Some(copy) = block.copies.within(address, bytes.into()) {
        return Some(not_waited(block, w, lane, address, copy, does));
    }
    let (_, init) = block.mbarriers.within(address, bytes.into())?;
    let what = format!("shared memory is {does} that is an mbarrier");
    let mut fault = block.fault(w, 1 << lane, Class::Mbarrier, what);
    fault.instead = "use mbarrier instructions alone, and mbarrier.inval before other use";
    block.locate_shared(&mut fault, address);
    fault.other = Some(block.earlier(init.pc, init.thread.into(), "initialised it"));
    Some(fault)
}

fn not_waited(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    copy: u32,
    does: &str,
) -> Box<Fault> {
    let what = format!(
        "shared memory is {does} that a copy writes, and the thread has not waited for the copy"
    );
    let mut fault = block.fault(w, 1 << lane, Class::AsyncCopy, what);
    fault.instead = "wait for the mbarrier or the group of the copy; if the copy is too early, let it wait for those who read";
    block.locate_shared(&mut fault, address);
    fault.other = Some(OtherPlace {
        place: block.place(copy),
        did: "writes it",
        who: "a copy".into(),
    });
    fault
}

/// Converts the address of each lane to the shared space. It may be in the shared window.
pub(crate) fn shared_addresses(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    a: &Address,
    space: InstructionSpace,
    out: &mut Addresses,
) -> Checked<()> {
    lane_addresses(block, w, mask, a, out)?;
    if space == InstructionSpace::Generic {
        out.iter_mut()
            .for_each(|a| *a = a.wrapping_sub(SHARED_WINDOW));
    }
    // A generic address may be one that `mapa` gave.
    let space = if space == InstructionSpace::Generic {
        InstructionSpace::Cluster
    } else {
        space
    };
    cluster::place_all(block, w, mask, space, out)
}
