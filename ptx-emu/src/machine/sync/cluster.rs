//! Clusters: blocks that run together, their barrier, and their access to each other's shared
//! memory (manual, "barrier.cluster", "mapa"). This module also exchanges registers between the
//! warpgroups of a block (manual, "setmaxnreg").
//!
//! The shared memory of a block is gone when the block has ended. Every access by another block
//! must therefore be ordered before the end: when all warps of the block have exited, at least one
//! of them must know of the access. Vector clocks decide this, so the result does not depend on the
//! order in which the warps ran.

use crate::machine::async_copy::copy;
use crate::machine::lane_mask::{lanes, set_bit};
use crate::machine::memory::load_store;
use crate::machine::memory::load_store::{Addresses, put};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::machine::sync::{mbarrier, warp_exchange};
use crate::module::address_space::WINDOW;
use crate::module::code::{Address, InstructionSpace, RegisterOperand};
use crate::sanitize::race::vector_clocks::Clock;
use crate::{Class, Fault};

/// The offset that `mapa` adds to an address for each block, including the first. It is above every
/// address of the shared memory of a block.
pub(crate) const PEER: u64 = 1 << 24;

/// The state of a warp at the barrier of the cluster.
#[derive(Clone, Copy, Debug, Default)]
struct AtBarrier {
    arrivals: u32,
    waits: u32,
    /// The instruction at which it sleeps.
    sleeps: Option<u32>,
    /// The lanes that have arrived while other lanes of the warp have not.
    lanes: u32,
    /// Whether all lanes have reached a wait, at several instructions.
    together: bool,
}

/// The last access of a warp to the memory of another block: its count and the instruction.
type Visit = Option<(u32, u32, u32)>;

/// The state that the blocks of a cluster share apart from memory.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    warps: Vec<AtBarrier>,
    /// The number of complete phases, the clock of the warps that arrived in this phase, and the
    /// clock of the last phase.
    done: u32,
    gathered: Clock,
    last: Clock,
    awake: Vec<u32>,
    /// For each block, the last access of each warp of other blocks.
    visits: Vec<Vec<Visit>>,
    ended: Vec<bool>,
    /// The registers per thread of each warp, the free registers of each block, and the warps that
    /// wait for registers.
    registers: Vec<u32>,
    free: Vec<u32>,
    short: Vec<Option<(u32, u32, u32)>>,
}

impl Cluster {
    /// Resets the state for new blocks.
    pub(crate) fn start(&mut self, warps: usize, blocks: usize) {
        *self = Cluster {
            warps: vec![AtBarrier::default(); warps],
            visits: vec![vec![None; warps]; blocks],
            ended: vec![false; blocks],
            free: vec![0; blocks],
            short: vec![None; warps],
            ..Cluster::default()
        };
    }

    /// Moves the warps that were woken since the last call to `ready`.
    pub(crate) fn awake(&mut self, ready: &mut Vec<u32>) {
        ready.append(&mut self.awake);
    }

    /// Returns the wait of a warp at the barrier: the instruction, and the numbers of arrived and
    /// of all warps.
    pub(crate) fn waiting_at(&self, warp: u32) -> Option<(u32, usize, usize)> {
        let pc = self.warps[warp as usize].sleeps?;
        let arrived = self.warps.iter().filter(|w| w.arrivals > self.done).count();
        Some((pc, arrived, self.warps.len()))
    }

    /// Returns the wait of a warp for registers: the instruction, the requested number and the free
    /// number.
    pub(crate) fn short_of(&self, warp: u32) -> Option<(u32, u32, u32)> {
        self.short[warp as usize]
    }
}

/// Converts addresses of shared memory to positions in the arena. They may belong to the own
/// block or come from `mapa`.
pub(crate) fn place_all(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    addresses: &mut Addresses,
) -> Checked<()> {
    let shared = matches!(space, InstructionSpace::Shared | InstructionSpace::Cluster);
    if !shared || block.blocks.len() == 1 && space == InstructionSpace::Shared {
        return Ok(());
    }
    let blocks = block.blocks.len() as u64;
    let rank = |address: u64| match (address / PEER).checked_sub(1) {
        Some(rank) if space == InstructionSpace::Cluster => rank,
        _ => w.rank.into(),
    };
    let outside = lanes(mask)
        .filter(|l| rank(addresses[*l]) >= blocks)
        .fold(0, set_bit);
    if outside != 0 {
        let address = addresses[outside.trailing_zeros() as usize];
        let what = format!(
            "0x{address:x} is shared memory of no block of the cluster, which has {blocks}"
        );
        return Err(block.fault(w, outside, Class::OutOfBounds, what));
    }
    for address in addresses {
        let rank = rank(*address);
        let own = space == InstructionSpace::Shared || *address < PEER;
        let local = if own { *address } else { *address % PEER };
        *address = block.shared.place(local, rank as u32);
    }
    Ok(())
}

/// Executes `mapa`.
pub(crate) fn map_address(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: RegisterOperand,
    a: RegisterOperand,
    rank: u32,
) -> Checked<()> {
    let addresses = load_store::take(block, w, a, mask)?;
    let ranks = mbarrier::words(block, w, mask, rank)?;
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
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    space: InstructionSpace,
    a: &Address,
    d: u32,
) -> Checked<()> {
    let mut places = [0; 32];
    load_store::shared_addresses(block, w, mask, a, space, &mut places)?;
    w.regs
        .set(d, mask, &places.map(|place| block.shared.rank(place)));
    Ok(())
}

/// Records an access to the memory of another block, which must not have ended.
pub(crate) fn visit(block: &mut Worker<'_, '_>, w: &Warp, lane: usize, place: u64) -> Checked<()> {
    let rank = block.shared.rank(place) as usize;
    if rank == w.rank as usize || rank >= block.blocks.len() {
        return Ok(());
    }
    if block.cluster.ended[rank] {
        let what =
            format!("shared memory of block {rank} of the cluster is accessed, which has ended");
        let mut fault = block.fault(w, 1 << lane, Class::ClusterExit, what);
        fault.instead = "put a barrier of the cluster before the end of every block";
        return Err(fault);
    }
    let count = block.shared.clocks.count(w.index as usize);
    block.cluster.visits[rank][w.index as usize] = Some((count, w.now.pc, lane as u32));
    Ok(())
}

/// Records that a warp has exited.
pub(crate) fn ended(block: &mut Worker<'_, '_>, warp: u32) -> Checked<()> {
    complete_cluster(block);
    let rank = block.warps[warp as usize].rank;
    let mine = |w: &&Warp| w.rank == rank;
    if block.blocks.len() == 1 || block.warps.iter().filter(mine).any(|w| w.present() != 0) {
        return Ok(());
    }
    block.cluster.ended[rank as usize] = true;
    copy::unfinished(block, Some(rank))?;
    let members: Vec<u32> = block.warps.iter().filter(mine).map(|w| w.index).collect();
    let visits = block.cluster.visits[rank as usize].iter().enumerate();
    let late = |(v, visit): (usize, &Visit)| {
        let (count, pc, lane) = (*visit)?;
        let known = members
            .iter()
            .any(|m| block.shared.clocks.knows(*m, v, count));
        (!known).then_some((v as u32 * 32 + lane, pc))
    };
    match visits.filter_map(late).next() {
        None => Ok(()),
        Some((thread, pc)) => Err(left_early(block, warp, thread, pc)),
    }
}

fn left_early(block: &Worker<'_, '_>, warp: u32, thread: u32, pc: u32) -> Box<Fault> {
    let w = &block.warps[warp as usize];
    let what = "a block of a cluster ends, and nothing orders an access of another to its shared memory before";
    let mut fault = block.fault(w, w.live, Class::ClusterExit, what);
    fault.place = None;
    fault.instead = "put a barrier of the cluster before the end of every block";
    fault.other = Some(block.earlier(pc, thread, "accessed it"));
    fault
}

/// Executes `barrier.cluster.arrive` in some lanes. The warp has arrived when all its lanes
/// that have not exited have arrived.
pub(crate) fn cluster_arrive(
    block: &mut Worker<'_, '_>,
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
            .shared
            .clocks
            .release(w.index, &mut block.cluster.gathered);
        block.shared.clocks.bump(w.index as usize);
    }
    finish_arrival(block, w);
    Ok(())
}

fn finish_arrival(block: &mut Worker<'_, '_>, w: &Warp) {
    let at = &mut block.cluster.warps[w.index as usize];
    if at.lanes != 0 && w.present() & !at.lanes == 0 {
        at.lanes = 0;
        at.arrivals += 1;
        complete_cluster(block);
    }
}

/// Executes `barrier.cluster.wait` in all lanes of a warp. Returns true if the warp must wait
/// and execute it again.
pub(crate) fn cluster_wait(block: &mut Worker<'_, '_>, w: &Warp) -> Checked<bool> {
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
    block.shared.clocks.acquire(w.index, &block.cluster.last);
    Ok(false)
}

/// Records that all lanes of a warp have reached a wait.
pub(crate) fn set_together(block: &mut Worker<'_, '_>, w: &Warp) {
    block.cluster.warps[w.index as usize].together = true;
}

/// Returns true if all lanes of a warp have reached a wait.
pub(crate) fn is_together(block: &Worker<'_, '_>, w: &Warp) -> bool {
    block.cluster.warps[w.index as usize].together
}

/// Ends the phase of the barrier if all warps that have not exited have arrived.
fn complete_cluster(block: &mut Worker<'_, '_>) {
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

pub(crate) fn check_present(block: &Worker<'_, '_>, w: &Warp, mask: u32) -> Checked<()> {
    if mask == w.live {
        Ok(())
    } else {
        warp_exchange::check_whole(block, w, mask)
    }
}

fn misused(block: &Worker<'_, '_>, w: &Warp, what: &str) -> Box<Fault> {
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
    block: &mut Worker<'_, '_>,
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
