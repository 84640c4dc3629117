//! Loads, stores and atomics: addresses, alignment and memory order.

use crate::Class;
use crate::machine::memory::global::{global_access, store_buffer};
use crate::machine::memory::lane_access::{check_alignment, lane_addresses};
use crate::machine::memory::shared::cluster_window;
use crate::machine::memory::shared::shared_access::{atomic_shared, load_shared, store_shared};
use crate::machine::memory::{local, parameter_space};
use crate::machine::observation;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, ResolvedAddress, SHARED_WINDOW, resolve};
use crate::module::code::{
    AccessOrdering, Atomic, FenceInstruction, InstructionSpace, MemoryScope, Transfer,
};
use crate::module::lane_mask::{lanes, set_bit};
use crate::sanitize::race::order::vector_clocks::Strong;

/// The effect of an access on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Reads,
    Writes,
    Both,
}

pub(crate) fn load(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &t.address, &mut addresses)?;
    cluster_window::place_all(block, w, mask, t.space, &mut addresses)?;
    observation::access(
        block,
        w,
        mask,
        t.space,
        &addresses,
        t.width.bytes * t.regs.len() as u32,
    );
    match t.space {
        InstructionSpace::Global | InstructionSpace::Const => {
            global_access::load_global(block, w, mask, t, &addresses)
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
                ResolvedAddress::Global => global_access::load_global(me, w, mask, t, addresses),
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
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &t.address, &mut addresses)?;
    cluster_window::place_all(block, w, mask, t.space, &mut addresses)?;
    observation::access(
        block,
        w,
        mask,
        t.space,
        &addresses,
        t.width.bytes * t.regs.len() as u32,
    );
    match t.space {
        InstructionSpace::Global | InstructionSpace::Const => {
            global_access::store_global(block, w, mask, t, &addresses)
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
                ResolvedAddress::Global => global_access::store_global(me, w, mask, t, addresses),
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
    block: &mut Block<'_, '_>,
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
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    a: &Atomic,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_addresses(block, w, mask, &a.address, &mut addresses)?;
    cluster_window::place_all(block, w, mask, a.space, &mut addresses)?;
    observation::access(block, w, mask, a.space, &addresses, a.bytes);
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
                ResolvedAddress::Global => global_access::atomic_global(me, w, mask, a, addresses),
                ResolvedAddress::Shared => atomic_shared(me, w, mask, a, addresses),
                ResolvedAddress::Local => {
                    Err(me.fault(w, mask, Class::OutOfBounds, "an atomic on local memory"))
                }
                ResolvedAddress::Param => Err(parameter_space::parameters_written(me, w, mask)),
            },
        ),
        _ => global_access::atomic_global(block, w, mask, a, &addresses),
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
    block: &mut Block<'_, '_>,
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
pub(crate) fn fence(block: &mut Block<'_, '_>, w: &Warp, mask: u32, fence: FenceInstruction) {
    if fence.releases && fence.scope == MemoryScope::Device {
        store_buffer::stores_arrive(block, w, mask);
    }

    let clocks = &mut block.shadow.clocks;
    let mut recorder = block
        .recorder
        .as_mut()
        .filter(|_| fence.scope == MemoryScope::Device);
    if fence.acquires {
        clocks.acquire_fence(w.index);
        if let Some(r) = &mut recorder {
            r.acquire_fence(clocks, w.index);
        }
    }

    if fence.releases {
        if let Some(r) = &mut recorder {
            r.release_fence(clocks, w.index);
        }
        clocks.release_fence(w.index);
    }
}

/// Executes the synchronization of a strong access at its address.
#[inline(always)]
fn synchronise(
    block: &mut Block<'_, '_>,
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
    block: &mut Block<'_, '_>,
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
    let clocks = &mut block.shadow.clocks;
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
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    addresses: &Addresses,
    mut f: impl FnMut(&mut Block<'_, '_>, &mut Warp, u32, ResolvedAddress, &Addresses) -> Checked<()>,
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
                cluster_window::place_all(block, w, these, InstructionSpace::Cluster, &mut own)?;
            }
            if place == ResolvedAddress::Local {
                local::own_addresses(block, w, these, &mut own)?;
            }

            f(block, w, these, place, &own)?;
        }
    }
    Ok(())
}
