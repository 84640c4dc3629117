//! Clusters: blocks that run together, their barrier, and their access to each other's shared
//! memory (manual, "barrier.cluster", "mapa"). This module also exchanges registers between the
//! warpgroups of a block (manual, "setmaxnreg").
//!
//! The shared memory of a block is gone when the block has ended. Every access by another block
//! must therefore be ordered before the end: when all warps of the block have exited, at least one
//! of them must know of the access. Vector clocks decide this, so the result does not depend on the
//! order in which the warps ran.

use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::put;
use crate::machine::memory::shared::cluster_window;
use crate::machine::memory::shared::cluster_window::PEER;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::cluster_state::{AtBarrier, Cluster};
use crate::machine::state::warp::Warp;
use crate::machine::sync::warp_exchange;
use crate::module::address_space::WINDOW;
use crate::module::code::{Address, InstructionSpace, RegisterOperand};
use crate::module::lane_mask::{lanes, set_bit};
use crate::{Class, Fault};

/// Executes `mapa`.
pub(crate) fn map_address(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: RegisterOperand,
    a: RegisterOperand,
    rank: u32,
) -> Checked<()> {
    let addresses = lane_access::take(block, w, a, mask)?;
    let ranks = lane_access::words(block, w, mask, rank)?;
    let blocks = block.blocks.len() as u32;
    let outside = lanes(mask).filter(|l| ranks[*l] >= blocks).fold(0, set_bit);
    if outside != 0 {
        let rank = ranks[outside.trailing_zeros() as usize];
        let what = format!("mapa to block {rank} of a cluster of {blocks}");
        return Err(block.fault(w, outside, Class::OutOfBounds, what));
    }

    // Below the window of generic addresses, or in it.
    let out = std::array::from_fn(|l| {
        let window = addresses[l] & !(WINDOW - 1);
        window + addresses[l] % PEER + u64::from(ranks[l] + 1) * PEER
    });
    put(w, d, mask, &out);
    Ok(())
}

/// Executes `getctarank`.
pub(crate) fn cluster_rank(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    space: InstructionSpace,
    a: &Address,
    d: u32,
) -> Checked<()> {
    let mut places = [0; 32];
    cluster_window::shared_addresses(block, w, mask, a, space, &mut places)?;
    w.regs
        .set(d, mask, &places.map(|place| block.shadow.rank(place)));
    Ok(())
}

/// Executes `barrier.cluster.arrive` in some lanes. The warp has arrived when all its lanes
/// that have not exited have arrived.
pub(crate) fn cluster_arrive(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    releases: bool,
) -> Checked<()> {
    let at = &mut block.cluster.warps[w.index as usize];
    if at.arrivals > at.waits || at.lanes & mask != 0 {
        return Err(misused(
            block,
            w,
            "a second arrival at the barrier of the cluster, and no wait between",
        ));
    }

    at.lanes |= mask;
    if releases {
        block
            .shadow
            .clocks
            .release(w.index, &mut block.cluster.gathered);
        block.shadow.clocks.bump(w.index as usize);
    }

    finish_arrival(block, w);
    Ok(())
}

fn finish_arrival(block: &mut Block<'_, '_>, w: &Warp) {
    let at = &mut block.cluster.warps[w.index as usize];
    if at.lanes != 0 && w.present() & !at.lanes == 0 {
        at.lanes = 0;
        at.arrivals += 1;
        complete_cluster(block);
    }
}

/// Executes `barrier.cluster.wait` in all lanes of a warp. Returns true if the warp must wait
/// and execute it again.
pub(crate) fn cluster_wait(block: &mut Block<'_, '_>, w: &Warp) -> Checked<bool> {
    // The last lanes that had not arrived may have exited.
    finish_arrival(block, w);
    let done = block.cluster.done;
    let at = &mut block.cluster.warps[w.index as usize];
    if at.arrivals == at.waits {
        return Err(misused(
            block,
            w,
            "a wait at the barrier of the cluster, and no arrival before",
        ));
    }

    at.sleeps = (done < at.arrivals).then_some(w.now.pc);
    if at.sleeps.is_some() {
        return Ok(true);
    }

    at.waits += 1;
    at.together = false;
    block.shadow.clocks.acquire(w.index, &block.cluster.last);
    Ok(false)
}

/// Records that all lanes of a warp have reached a wait.
pub(crate) fn set_together(block: &mut Block<'_, '_>, w: &Warp) {
    block.cluster.warps[w.index as usize].together = true;
}

/// Returns true if all lanes of a warp have reached a wait.
pub(crate) fn is_together(block: &Block<'_, '_>, w: &Warp) -> bool {
    block.cluster.warps[w.index as usize].together
}

/// Ends the phase of the barrier if all warps that have not exited have arrived.
pub(crate) fn complete_cluster(block: &mut Block<'_, '_>) {
    let Cluster {
        warps,
        done,
        gathered,
        last,
        awake,
        ..
    } = &mut block.cluster;
    let arrived = |w: &AtBarrier| w.arrivals > *done;

    // The warp that runs now is not at its place, and counts as one that has exited: it has
    // just arrived.
    let missing = block
        .warps
        .iter()
        .any(|w| w.present() != 0 && !arrived(&warps[w.index as usize]));
    if missing || !warps.iter().any(arrived) {
        return;
    }

    *done += 1;
    *last = std::mem::take(gathered);
    for (index, w) in warps.iter_mut().enumerate() {
        awake.extend(w.sleeps.take().map(|_| index as u32));
    }
}

pub(crate) fn check_present(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Checked<()> {
    if mask == w.live {
        Ok(())
    } else {
        warp_exchange::check_whole(block, w, mask)
    }
}

fn misused(block: &Block<'_, '_>, w: &Warp, what: &str) -> Box<Fault> {
    let mut fault = block.fault(w, w.now.mask, Class::BarrierMismatch, what);
    fault.instead = "each thread arrives, then waits, in turn";
    fault
}

/// Executes `setmaxnreg`. Returns true if the warp must wait for registers and execute it
/// again.
///
/// It has an effect only in kernels with `.minnctapersm`, because only then is the number of
/// registers at launch known.
pub(crate) fn set_registers(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    wanted: u32,
) -> Checked<bool> {
    warp_exchange::check_whole(block, w, mask)?;
    let Some(blocks) = block.grid.launch.kernel.minnctapersm else {
        return Ok(false);
    };

    let threads: u32 = block.grid.launch.block.iter().product();
    let launched = (REGISTERS / (threads * blocks.max(1)) / 8 * 8).min(MOST_REGISTERS);
    let Cluster {
        registers,
        free,
        short,
        awake,
        ..
    } = &mut block.cluster;
    registers.resize(short.len(), launched);
    let held = &mut registers[w.index as usize];
    let free = &mut free[w.rank as usize];
    let available = *free + 32 * *held;
    if 32 * wanted > available {
        short[w.index as usize] = Some((w.now.pc, 32 * wanted - 32 * *held, *free));
        return Ok(true);
    }

    *free = available - 32 * wanted;
    *held = wanted;
    short[w.index as usize] = None;
    let waits = |(i, s): (usize, &Option<_>)| s.map(|_| i as u32);
    awake.extend(short.iter().enumerate().filter_map(waits));
    short.fill(None);
    Ok(false)
}

/// The number of 32-bit registers of a multiprocessor (CUDA C++ Programming Guide, "Compute
/// Capabilities").
const REGISTERS: u32 = 65536;
const MOST_REGISTERS: u32 = 255;
