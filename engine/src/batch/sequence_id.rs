//! The identity of a sequence in a batch.

/// The identity of a sequence in a batch.
///
/// It stays unique. After the sequence has left, its batch rejects the id, and other batches always
/// reject it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId {
    /// The number of the batch.
    pub(super) batch: u64,
    /// The row of the page table.
    pub(super) row: u32,
    /// The number of earlier sequences in the row.
    pub(super) before: u32,
}
