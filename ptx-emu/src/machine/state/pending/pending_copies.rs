//! Copies to shared memory that have not landed.

use std::rc::Rc;

use crate::machine::seeded_choice::mix;
use crate::machine::state::pending::tensor_layout::TensorBox;
use crate::module::code::asynchronous::Reduction;
use crate::module::lane_mask::lanes;
use crate::sanitize::race::order::vector_clocks::Clock;

/// A pending bulk copy or asynchronous store.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingArrival {
    pub(crate) pc: u32,
    pub(crate) thread: u32,
    pub(crate) to: u32,
    pub(crate) from: u64,
    pub(crate) bytes: u32,
    /// The address of the mbarrier on which it completes.
    pub(crate) barrier: u32,
    pub(crate) due: u64,
    /// For an arrival at the mbarrier: the number of the last copy of the thread that must complete
    /// first.
    pub(crate) before: Option<u64>,
    /// The box, for a copy from a tensor.
    pub(crate) boxed: Option<Rc<TensorBox>>,
    /// The words that `st.async` stores, or the operands of `red.async`.
    pub(crate) words: Vec<u32>,
    pub(crate) reduction: Option<Reduction>,
    /// The knowledge of the thread about phases of mbarriers.
    pub(crate) phases: Clock,
    /// The source and its version when the copy was issued, for a copy from shared memory whose
    /// bytes are in `words`.
    pub(crate) shared: Option<(u64, u64)>,
}

/// A pending `cp.async` of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCopy {
    pub(crate) pc: u32,
    pub(crate) thread: u32,
    pub(crate) to: u32,
    pub(crate) from: u64,
    pub(crate) bytes: u32,
    pub(crate) source_bytes: u32,
    /// The number of its group among the groups of the thread.
    pub(crate) group: u32,
    pub(crate) number: u64,
}

/// The pending copies of a block.
#[derive(Debug, Default)]
pub(crate) struct PendingCopies {
    pub(crate) arrivals: Vec<PendingArrival>,
    /// The `cp.async` copies by warp.
    pub(crate) own: Vec<Vec<PendingCopy>>,
    /// The number of groups that each thread has committed.
    pub(crate) groups: Vec<[u32; 32]>,
    /// The number of turns, and the number of issued copies.
    pub(crate) turns: u64,
    pub(crate) issued: u64,
}

impl PendingCopies {
    /// Resets the state for a new block.
    pub(crate) fn start(&mut self, warps: usize) {
        self.arrivals.clear();
        self.own.resize_with(warps, Vec::new);
        self.own.iter_mut().for_each(Vec::clear);
        self.groups.clear();
        self.groups.resize(warps, [0; 32]);
        self.turns = 0;
        self.issued = 0;
    }

    /// Returns the instruction of a copy whose destination overlaps `bytes` bytes at an address.
    pub(crate) fn within(&self, address: u64, bytes: u64) -> Option<u32> {
        let meets = |to: u32, size: u32| {
            u64::from(to) < address.saturating_add(bytes)
                && address < u64::from(to) + u64::from(size)
        };
        let flight = self
            .arrivals
            .iter()
            .find(|f| meets(f.to, f.bytes))
            .map(|f| f.pc);
        flight.or_else(|| {
            self.own
                .iter()
                .flatten()
                .find(|c| meets(c.to, c.bytes))
                .map(|c| c.pc)
        })
    }

    /// Executes `cp.async.commit_group`.
    pub(crate) fn commit(&mut self, warp: u32, mask: u32) {
        lanes(mask).for_each(|l| self.groups[warp as usize][l] += 1);
    }

    /// Returns true if no copy is pending that completes without a wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Returns the number of turns.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns a random time within the next turns.
    pub(crate) fn later(&mut self, seed: u64) -> u64 {
        self.issued += 1;
        self.turns + 1 + mix(seed ^ self.issued << 16) % LATE
    }

    /// Returns the time of the last arrival of a thread. The next arrival must not be earlier,
    /// because it also covers the copies of the last one.
    pub(crate) fn last_arrival(&self, thread: u32) -> u64 {
        let of_thread = |f: &&PendingArrival| f.before.is_some() && f.thread == thread;
        self.arrivals
            .iter()
            .filter(of_thread)
            .map(|f| f.due)
            .max()
            .unwrap_or(0)
    }

    /// Returns true if a pending copy completes on the mbarrier at an address.
    pub(crate) fn aims_at(&self, address: u64) -> bool {
        self.arrivals
            .iter()
            .any(|f| u64::from(f.barrier) == address)
    }
}

/// The maximum delay of a copy in turns, as long as a warp can run.
const LATE: u64 = 16;
