//! The progress of the warps of a block: which can run, and whether they get anywhere.

use crate::fault::Fault;

/// The state by which the scheduler chooses the next warp of a block.
#[derive(Debug, Default)]
pub(crate) struct TurnState {
    /// The number of instructions that the block may still execute.
    pub(crate) fuel: u64,
    /// The warps that can run.
    pub(crate) ready: Vec<u32>,
    /// The number of rounds of time slices so far.
    pub(crate) round: u64,
    /// The number of rounds in a row in which all warps polled and nothing changed.
    pub(crate) idle_rounds: u32,
    /// The number of rounds in a row after which all warps were in their previous state.
    pub(crate) proven_rounds: u32,
    /// The number of actions of the block that other threads can see.
    ///
    /// It is never reset, because it is only compared with earlier values.
    pub(crate) effects: u64,
    /// A fault of a warp that has stopped. It is kept while the other warps show whether a barrier
    /// is the cause.
    pub(crate) postponed: Option<Box<Fault>>,
}

impl TurnState {
    /// Begins a block of `warps` warps.
    pub(crate) fn start(&mut self, warps: usize, fuel: u64) {
        self.fuel = fuel;
        self.ready = (0..warps as u32).collect();
        self.round = 0;
        self.idle_rounds = 0;
        self.proven_rounds = 0;
        self.postponed = None;
    }
}
