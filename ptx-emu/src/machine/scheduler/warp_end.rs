//! The end of a warp: the checks of its cluster and of its pending copies.

use crate::fault::{Class, Fault};
use crate::machine::async_copy::unfinished;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::cluster_state::ClusterVisit;
use crate::machine::state::warp::Warp;
use crate::machine::sync::cluster::complete_cluster;

/// Records that a warp has exited.
pub(crate) fn ended(block: &mut Block<'_, '_>, warp: u32) -> Checked<()> {
    complete_cluster(block);
    let rank = block.warps[warp as usize].rank;
    let mine = |w: &&Warp| w.rank == rank;
    if block.blocks.len() == 1 || block.warps.iter().filter(mine).any(|w| w.present() != 0) {
        return Ok(());
    }

    block.cluster.ended[rank as usize] = true;
    unfinished::unfinished(block, Some(rank))?;
    let members: Vec<u32> = block.warps.iter().filter(mine).map(|w| w.index).collect();
    let visits = block.cluster.visits[rank as usize].iter().enumerate();
    let late = |(v, visit): (usize, &Option<ClusterVisit>)| {
        let visit = (*visit)?;
        let known = members
            .iter()
            .any(|m| block.shadow.clocks.knows(*m, v, visit.count));
        (!known).then_some((v as u32 * 32 + visit.lane, visit.pc))
    };
    match visits.filter_map(late).next() {
        None => Ok(()),
        Some((thread, pc)) => Err(left_early(block, warp, thread, pc)),
    }
}

fn left_early(block: &Block<'_, '_>, warp: u32, thread: u32, pc: u32) -> Box<Fault> {
    let w = &block.warps[warp as usize];
    let what = "a block of a cluster ends, and nothing orders an access of another to its shared memory before";
    let mut fault = block.fault(w, w.live, Class::ClusterExit, what);
    fault.place = None;
    fault.instead = "put a barrier of the cluster before the end of every block";
    fault.other = Some(block.earlier(pc, thread, "accessed it"));
    fault
}
