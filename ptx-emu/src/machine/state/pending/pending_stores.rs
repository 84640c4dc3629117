//! Bulk copies from shared memory that have not completed.

use crate::machine::state::pending::tensor_layout::TensorBox;
use crate::module::code::asynchronous::Reduction;
use crate::module::lane_mask::lanes;

/// The destination of a copy.
#[derive(Debug)]
pub(crate) enum Target {
    Bytes(u64),
    /// Elements that are combined with the values at an address.
    Elements(u64, Reduction),
    /// A box of a tensor, whose elements are replaced or combined.
    Box(TensorBox, Option<Reduction>),
}

/// A pending copy out of shared memory.
#[derive(Debug)]
pub(crate) struct PendingStore {
    pub(crate) pc: u32,
    pub(crate) thread: u32,
    pub(crate) from: u32,
    pub(crate) bytes: u32,
    pub(crate) target: Target,
    /// The number of its group among the groups of the thread.
    pub(crate) group: u32,
    pub(crate) due: u64,
    pub(crate) done: bool,
    /// The version of the source when the copy was issued.
    pub(crate) version: u64,
}

/// The pending copies of a cluster out of shared memory.
#[derive(Debug, Default)]
pub(crate) struct BulkStores {
    pub(crate) pending: Vec<PendingStore>,
    /// The committed groups: thread and number.
    groups: Vec<(u32, u32)>,
}

impl BulkStores {
    /// Resets the state for new blocks.
    pub(crate) fn start(&mut self) {
        self.pending.clear();
        self.groups.clear();
    }

    pub(crate) fn committed(&self, thread: u32) -> u32 {
        self.groups
            .iter()
            .find(|(t, _)| *t == thread)
            .map_or(0, |(_, n)| *n)
    }

    /// Executes `cp.async.bulk.commit_group`.
    pub(crate) fn commit(&mut self, warp: u32, mask: u32) {
        for thread in lanes(mask).map(|l| warp * 32 + l as u32) {
            match self.groups.iter_mut().find(|(t, _)| *t == thread) {
                Some((_, n)) => *n += 1,
                None => self.groups.push((thread, 1)),
            }
        }
    }

    /// Returns true if no copy is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.iter().all(|store| store.done)
    }

    /// Returns a copy that no thread has waited for, of a thread for which `of` is true: the
    /// instruction and the thread.
    pub(crate) fn forgotten(&self, of: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        self.pending
            .iter()
            .find(|s| of(s.thread))
            .map(|s| (s.pc, s.thread))
    }
}
