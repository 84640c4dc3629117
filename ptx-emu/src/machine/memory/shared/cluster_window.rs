//! Addresses in the shared memory of the blocks of a cluster.

use crate::fault::Class;
use crate::machine::memory::lane_access::lane_addresses;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::cluster_state::ClusterVisit;
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, SHARED_WINDOW};
use crate::module::code::operand::{Address, InstructionSpace};
use crate::module::lane_mask::{lanes, set_bit};

/// The offset that `mapa` adds to an address for each block, including the first. It is above every
/// address of the shared memory of a block.
pub(crate) const PEER: u64 = 1 << 24;

/// Converts addresses of shared memory to positions in the arena. They may belong to the own
/// block or come from `mapa`.
pub(crate) fn place_all(
    block: &Block<'_, '_>,
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
        *address = block.shadow.place(local, rank as u32);
    }

    Ok(())
}

/// Records an access to the memory of another block, which must not have ended.
pub(crate) fn visit(block: &mut Block<'_, '_>, w: &Warp, lane: usize, place: u64) -> Checked<()> {
    let rank = block.shadow.rank(place) as usize;
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

    let count = block.shadow.clocks.count(w.index as usize);
    block.cluster.visits[rank][w.index as usize] = Some(ClusterVisit {
        count,
        pc: w.now.pc,
        lane: lane as u32,
    });
    Ok(())
}

/// Converts the address of each lane to the shared space. It may be in the shared window.
pub(crate) fn shared_addresses(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    a: &Address,
    space: InstructionSpace,
    out: &mut Addresses,
) -> Checked<()> {
    lane_addresses(block, w, mask, a, out)?;
    if space == InstructionSpace::Generic {
        for a in out.iter_mut() {
            *a = a.wrapping_sub(SHARED_WINDOW);
        }
    }

    // A generic address may be one that `mapa` gave.
    let space = if space == InstructionSpace::Generic {
        InstructionSpace::Cluster
    } else {
        space
    };
    place_all(block, w, mask, space, out)
}
