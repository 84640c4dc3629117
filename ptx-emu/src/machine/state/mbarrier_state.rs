//! The mbarriers of a block: their phases, and the warps that wait for them.

use crate::sanitize::race::last_access::LastAccess;
use crate::sanitize::race::order::vector_clocks::Clock;

/// The state of one mbarrier.
#[derive(Debug)]
pub(crate) struct MbarrierState {
    pub(crate) address: u32,
    pub(crate) count: u32,
    /// The number of arrivals that the phase lacks.
    pub(crate) pending: u32,
    /// The number of bytes that the phase lacks.
    pub(crate) bytes: i64,
    /// The number of complete phases.
    pub(crate) done: u32,
    /// The agent of the mbarrier in the vector clocks, and the count of the agent before
    /// `mbarrier.init`.
    pub(crate) agent: usize,
    pub(crate) base: u32,
    /// The joined clocks of the threads that have arrived in this phase.
    pub(crate) gathered: Clock,
    /// The clock that a wait for the last phase acquires.
    pub(crate) last: Clock,
    pub(crate) init: LastAccess,
    /// The last use by each warp.
    pub(crate) uses: Vec<LastAccess>,
    /// Whether the initialization is visible to copies.
    pub(crate) fenced: bool,
    /// The warps that have waited for the last phase: the warp, its count and the instruction.
    pub(crate) waits: Vec<(u32, u32, u32)>,
    /// The last arrival of this phase: the instruction and the thread.
    pub(crate) arrived: (u32, u32),
    /// The copies that no thread has waited for: the phase, the instruction and the thread.
    pub(crate) copied: Vec<(u32, u32, u32)>,
}

/// A warp that sleeps in `try_wait`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) address: u32,
    pub(crate) pc: u32,
    /// The number of complete phases when the warp was woken.
    pub(crate) woken: Option<u32>,
}

/// A failed wait for an mbarrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedWait {
    pub(crate) address: u64,
    pub(crate) phase: u64,
    pub(crate) pc: u32,
}

/// The mbarriers of a block.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    pub(crate) objects: Vec<MbarrierState>,
    /// The agents of all addresses at which an mbarrier was initialized.
    pub(crate) agents: Vec<(u32, usize)>,
    /// The sleep of each warp.
    pub(crate) sleeps: Vec<Option<Waiter>>,
    /// The last failed wait of each warp, if no wait has succeeded since.
    pub(crate) failed: Vec<Option<FailedWait>>,
    pub(crate) awake: Vec<u32>,
}

impl Mbarriers {
    /// Resets the state for a new block.
    pub(crate) fn start(&mut self, warps: usize) {
        self.objects.clear();
        self.agents.clear();
        self.awake.clear();
        self.sleeps.clear();
        self.sleeps.resize(warps, None);
        self.failed.clear();
        self.failed.resize(warps, None);
    }

    /// Moves the warps that were woken since the last call to `ready`.
    pub(crate) fn awake(&mut self, ready: &mut Vec<u32>) {
        ready.append(&mut self.awake);
    }

    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        self.objects
            .iter()
            .position(|o| u64::from(o.address) == address)
    }

    /// Returns an mbarrier that overlaps `bytes` bytes at an address.
    pub(crate) fn within(&self, address: u64, bytes: u64) -> Option<(u32, LastAccess)> {
        let meets = |o: &&MbarrierState| {
            u64::from(o.address) < address.saturating_add(bytes)
                && address < u64::from(o.address) + 8
        };
        self.objects.iter().find(meets).map(|o| (o.address, o.init))
    }

    /// Returns the failed wait of a warp: the instruction, the address, and the arrivals and bytes
    /// that the phase lacks.
    pub(crate) fn waiting_at(&self, warp: u32) -> Option<(u32, u32, u32, i64)> {
        let wait = self.failed[warp as usize]?;
        let o = &self.objects[self.find(wait.address)?];
        Some((wait.pc, o.address, o.pending, o.bytes))
    }

    /// Returns true if a warp sleeps in `try_wait`.
    pub(crate) fn is_sleeping(&self, warp: u32) -> bool {
        self.sleeps[warp as usize].is_some_and(|sleep| sleep.woken.is_none())
    }

    /// Returns true if any warp sleeps in `try_wait`.
    pub(crate) fn has_sleepers(&self) -> bool {
        (0..self.sleeps.len() as u32).any(|warp| self.is_sleeping(warp))
    }

    /// Ends the sleep of a warp although its phase is not complete. Returns false if the warp does
    /// not sleep.
    pub(crate) fn time_out(&mut self, warp: u32) -> bool {
        let sleeps = self.is_sleeping(warp);
        if sleeps {
            self.sleeps[warp as usize] = None;
        }
        sleeps
    }

    /// Returns a completed copy that no thread has waited for: the instruction and the thread.
    pub(crate) fn forgotten(&self) -> Option<(u32, u32)> {
        self.objects
            .iter()
            .find_map(|o| o.copied.first())
            .map(|(_, pc, thread)| (*pc, *thread))
    }

    /// Returns an mbarrier that expects bytes: the address, the number of bytes and the last
    /// arrival.
    pub(crate) fn expecting(&self) -> Option<(u32, i64, (u32, u32))> {
        self.objects
            .iter()
            .find(|o| o.bytes != 0)
            .map(|o| (o.address, o.bytes, o.arrived))
    }
}
