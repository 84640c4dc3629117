//! The layouts of the cache of keys and values.

/// The layout of the cache of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheLayout {
    /// All pages belong to one sequence, in order.
    Own,
    /// The page table lists the pages of each sequence.
    Paged,
}
