//! The experts of the rows of a matmul whose rows are sorted by expert.

use ptx_gen::*;

/// The expert of each group of rows, as the kernel that sorts tokens wrote it.
#[derive(Clone, Copy)]
pub(super) struct ExpertTable<'k> {
    /// `[capacity / tokens of a job]`: the expert of each group.
    pub(super) group_expert: Ptr<'k, u32, ReadOnly>,
    /// `[1]`: the number of rows in use, a multiple of the tokens of a job.
    pub(super) used: Ptr<'k, u32, ReadOnly>,
    /// The number of experts.
    pub(super) count: U32<'k>,
}

impl<'k> ExpertTable<'k> {
    /// Loads the number of rows in use. Different threads are not proven to get the same value, so
    /// it cannot bound a loop with instructions that several threads execute together.
    pub(super) fn used_rows(&self) -> U32<'k> {
        self.used.fresh().ld()
    }

    /// Returns the expert of a group. It is below the number of experts, so it may form an address.
    pub(super) fn expert(&self, group: U32<'k>) -> U32<'k> {
        self.group_expert.fresh().at(group).ld().min(self.count - 1)
    }
}
