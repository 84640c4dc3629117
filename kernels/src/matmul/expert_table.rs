//! The experts of the rows of a matmul whose rows are sorted by expert.

use super::definition::MatmulArgs;
use ptx_gen::*;

/// The expert of each group of rows, as the kernel that sorts tokens wrote it.
#[derive(Clone, Copy)]
pub(super) struct ExpertTable<'k> {
    /// `[capacity / tokens of a job]`: the entry of each group.
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

    /// Loads the entry of a group.
    pub(super) fn entry(&self, group: U32<'k>) -> U32<'k> {
        self.group_expert.fresh().at(group).ld()
    }

    /// Returns the expert and the rows of a group, given its entry.
    pub(super) fn rows(&self, entry: U32<'k>) -> ExpertRows<'k> {
        ExpertRows {
            expert: (entry & EXPERT_MASK).min(self.count - 1),
            rows: entry >> EXPERT_BITS,
        }
    }
}

/// The rows of a group.
#[derive(Clone, Copy)]
pub(super) struct ExpertRows<'k> {
    /// The expert. It is below the number of experts, so it may form an address.
    pub(super) expert: U32<'k>,
    /// The number of rows that are not padding.
    pub(super) rows: U32<'k>,
}

impl<'k> ExpertRows<'k> {
    /// Returns the arguments of a job that begins at the row `first`. Padding counts as rows past
    /// the last one, so its results are not stored.
    pub(super) fn args(&self, a: &MatmulArgs<Dev<'k>>, first: U32<'k>) -> MatmulArgs<Dev<'k>> {
        MatmulArgs {
            unit: a.unit.at(self.expert * a.rows),
            tokens_given: first + self.rows,
            ..*a
        }
    }
}

/// The number of low bits of an entry that are the expert. The others are the number of rows.
pub(super) const EXPERT_BITS: u32 = 16;
/// The mask of the expert.
const EXPERT_MASK: u32 = (1 << EXPERT_BITS) - 1;

/// Returns the entry of a group on the CPU.
pub(super) const fn entry(expert: u32, rows: u32) -> u32 {
    expert | (rows << EXPERT_BITS)
}

/// Returns the expert and the number of rows of an entry on the CPU.
pub(super) const fn expert_and_rows(entry: u32) -> [u32; 2] {
    [entry & EXPERT_MASK, entry >> EXPERT_BITS]
}
