//! Copies that are pending when a warp or a block ends.

use crate::fault::{Class, Fault};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::pending_copies::PendingArrival;

/// Checks a cluster, or the block with this rank, after all its warps have exited. Every copy
/// must have been waited for, and all expected bytes must have arrived.
pub(crate) fn unfinished(block: &Block<'_, '_>, rank: Option<u32>) -> Checked<()> {
    let here = |thread: u32| rank.is_none_or(|rank| block.warps[thread as usize / 32].rank == rank);
    if let Some((pc, thread)) = block.pending.products.forgotten(here) {
        let what = "the block has ended, and a warp has not waited for a product".to_string();
        let instead = "execute wgmma.commit_group and wgmma.wait_group 0 before the block ends";
        return Err(left_behind(block, pc, thread, what, instead));
    }

    if let Some((pc, thread)) = block.pending.stores.forgotten(here) {
        let what = "the block has ended, and a copy may still read its shared memory".to_string();
        let instead = "execute cp.async.bulk.wait_group.read 0 before the block ends";
        return Err(left_behind(block, pc, thread, what, instead));
    }

    let lands_here =
        |f: &&PendingArrival| rank.is_none_or(|rank| block.shadow.rank(f.barrier.into()) == rank);
    let flying = block
        .pending
        .copies
        .arrivals
        .iter()
        .find(lands_here)
        .map(|f| (f.pc, f.thread));
    let own = block
        .pending
        .copies
        .own
        .iter()
        .flatten()
        .find(|c| here(c.thread))
        .map(|c| (c.pc, c.thread));
    let forgotten = if rank.is_none() {
        block.mbarriers.forgotten()
    } else {
        None
    };
    if let Some((pc, thread)) = flying.or(own).or(forgotten) {
        let what = "the block has ended, and nothing has waited for a copy".to_string();
        return Err(left_behind(
            block,
            pc,
            thread,
            what,
            "wait for every copy before the block ends",
        ));
    }

    let expecting = if rank.is_none() {
        block.mbarriers.expecting()
    } else {
        None
    };
    let Some((address, bytes, (pc, thread))) = expecting else {
        return Ok(());
    };

    let address = block.shadow.local(address.into());
    let what =
        format!("the block has ended, and the mbarrier at 0x{address:x} lacks {bytes} bytes");
    Err(left_behind(
        block,
        pc,
        thread,
        what,
        "expect exactly the bytes that copies bring",
    ))
}

fn left_behind(
    block: &Block<'_, '_>,
    pc: u32,
    thread: u32,
    what: String,
    instead: &'static str,
) -> Box<Fault> {
    let warp = &block.warps[thread as usize / 32];
    let mut fault = block.fault(warp, 1 << (thread % 32), Class::AsyncUnfinished, what);
    fault.place = Some(block.place(pc));
    fault.instead = instead;
    fault
}
