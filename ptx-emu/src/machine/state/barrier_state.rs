//! The state of the sixteen barriers of a block.

use crate::module::code::instruction::BarrierKind;

/// The number of barriers of a block.
pub(crate) const COUNT: usize = 16;

/// The state of one barrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct BarrierState {
    pub(crate) arrived: u32,
    pub(crate) expected: u32,
    /// The instruction of the first warp that arrived.
    pub(crate) first: u32,
    pub(crate) reduces: bool,
    pub(crate) participants: Vec<u32>,
    /// The waiting warps, each with the kind of its barrier, which decides the results that the
    /// warp receives when it is released.
    pub(crate) waiting: Vec<(u32, BarrierKind)>,
    /// The number of threads whose predicate was true, and the number of all threads.
    pub(crate) holds: u32,
    pub(crate) threads: u32,
}

/// The barriers of a block.
#[derive(Debug)]
pub(crate) struct Barriers {
    /// The number of threads of the block, rounded up to whole warps.
    pub(crate) all: u32,
    pub(crate) states: Vec<BarrierState>,
    /// The barrier and the instruction of each waiting warp.
    pub(crate) waits: Vec<Option<(u32, u32)>>,
    pub(crate) released: Vec<u32>,
}

impl Barriers {
    /// Creates the barriers of `blocks` blocks with `threads` threads each.
    pub(crate) fn new(threads: u32, blocks: u32) -> Barriers {
        let warps = threads.div_ceil(32);
        let waits = vec![None; (warps * blocks) as usize];
        Barriers {
            all: warps * 32,
            states: vec![BarrierState::default(); COUNT * blocks as usize],
            waits,
            released: Vec::new(),
        }
    }

    /// Resets the barriers for a new block.
    pub(crate) fn start(&mut self) {
        self.states.fill(BarrierState::default());
        self.waits.fill(None);
        self.released.clear();
    }

    /// Returns the warps that were released since the last call.
    pub(crate) fn released(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.released)
    }

    /// Returns an incomplete barrier: its number, the first instruction, the first warp, and the
    /// numbers of arrived and expected threads.
    pub(crate) fn left_over(&self) -> Option<(usize, u32, u32, u32, u32)> {
        let (id, state) = self
            .states
            .iter()
            .enumerate()
            .find(|(_, s)| s.arrived > 0)?;
        Some((
            id % COUNT,
            state.first,
            state.participants[0],
            state.arrived,
            state.expected,
        ))
    }

    /// Returns the wait of a warp: the barrier, the instruction, and the numbers of arrived and
    /// expected threads.
    pub(crate) fn waiting_at(&self, warp: u32) -> Option<(u32, u32, u32, u32)> {
        let (id, pc) = self.waits[warp as usize]?;
        let state = &self.states[id as usize];
        Some((id % COUNT as u32, pc, state.arrived, state.expected))
    }
}

/// The barrier at which lanes arrive, by its number within the cluster, and its thread count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BarrierUse {
    pub(crate) id: u32,
    pub(crate) count: u32,
}

impl BarrierUse {
    /// Returns the number of the barrier within its block.
    pub(crate) fn number(self) -> u32 {
        self.id % COUNT as u32
    }
}
