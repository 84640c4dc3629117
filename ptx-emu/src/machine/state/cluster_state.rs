//! The state of a cluster: its barrier, and the registers of its warps.

use crate::sanitize::race::order::vector_clocks::Clock;

/// The state of a warp at the barrier of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtBarrier {
    pub(crate) arrivals: u32,
    pub(crate) waits: u32,
    /// The instruction at which it sleeps.
    pub(crate) sleeps: Option<u32>,
    /// The lanes that have arrived while other lanes of the warp have not.
    pub(crate) lanes: u32,
    /// Whether all lanes have reached a wait, at several instructions.
    pub(crate) together: bool,
}

/// An access of a warp to the shared memory of another block of its cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterVisit {
    /// The count of the warp's clock at the access.
    pub(crate) count: u32,
    /// The index of the instruction.
    pub(crate) pc: u32,
    pub(crate) lane: u32,
}

/// The state that the blocks of a cluster share apart from memory.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) warps: Vec<AtBarrier>,
    /// The number of complete phases, the clock of the warps that arrived in this phase, and the
    /// clock of the last phase.
    pub(crate) done: u32,
    pub(crate) gathered: Clock,
    pub(crate) last: Clock,
    pub(crate) awake: Vec<u32>,
    /// For each block, the last access of each warp of other blocks.
    pub(crate) visits: Vec<Vec<Option<ClusterVisit>>>,
    pub(crate) ended: Vec<bool>,
    /// The registers per thread of each warp, the free registers of each block, and the warps that
    /// wait for registers.
    pub(crate) registers: Vec<u32>,
    pub(crate) free: Vec<u32>,
    pub(crate) short: Vec<Option<(u32, u32, u32)>>,
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
