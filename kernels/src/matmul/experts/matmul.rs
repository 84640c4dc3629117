//! Matmuls of rows that are sorted by expert. Each group of rows is multiplied by the matrix of its
//! expert.
//!
//! The matmul computes the same sums as [`Matmul`] or [`MatmulSync`] on the rows of one expert. It
//! never splits the columns, so a row's bits depend on the row and its expert only.

use super::sort::NONE;
use crate::matmul::definition::{Matmul, MatmulArgs};
use crate::matmul::epilogue;
use crate::matmul::expert_table::{ExpertTable, expert_and_rows};
use crate::matmul::sync::block::SyncBlock;
use crate::matmul::sync::definition::MatmulSync;
use crate::matmul::wgmma::kernel;
use crate::shared::{Contract, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`MatmulExperts`] and [`MatmulSyncExperts`].
    ///
    /// `matmul` describes the matrix of one expert: `rows` are the rows of an expert. `w` and `unit`
    /// contain the matrices of all experts, one after another. `x` and all results have sorted
    /// rows. `tokens_given` must be `capacity`. Results of padding are not stored. Groups that are
    /// not in use are neither read nor written.
    pub struct MatmulExpertsArgs {
        /// The arguments of the matmul.
        matmul: MatmulArgs,
        /// `[capacity / tokens of a job]`: the expert of each group of rows and the number of its
        /// rows, see [`SortTokensArgs`](super::SortTokensArgs)
        group_expert: In<u32>,
        /// `[1]`: the number of rows in use, a multiple of the tokens of a job
        used: In<u32>,
        /// The number of experts.
        count: u32,
    }
}

/// Kernel that multiplies sorted rows by the matrices of their experts, with `wgmma`.
///
/// The matmul must have no tail and no split.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MatmulExperts {
    /// The matmul of one expert. Its tokens are the rows of a group.
    pub matmul: Matmul,
}

/// Kernel that multiplies sorted rows by the matrices of their experts, with `mma.sync`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MatmulSyncExperts {
    /// The matmul of one expert. Its tokens are the rows of a group.
    pub matmul: MatmulSync,
}

impl MatmulExpertsArgs<Shape> {
    /// Checks the arguments of a kernel with `tokens` rows per group. `check` checks the arguments
    /// of the matmul of one expert.
    fn check(
        &self,
        kernel: &impl Contract,
        tokens: u32,
        check: impl FnOnce(&MatmulArgs<Shape>) -> Result<(), ShapeError>,
    ) -> Result<(), ShapeError> {
        let MatmulArgs {
            w,
            unit,
            rows,
            capacity,
            tokens_given,
            ..
        } = self.matmul;
        let count = self.count;

        // Kernels count the rows of all experts in 32 bits.
        kernel.range("count", count, 1, (1 << 30) / rows.max(1))?;
        let experts = count as usize;
        for (name, found) in [("w", w), ("unit", unit)] {
            kernel.require(found.is_multiple_of(experts), || {
                format!("{name} has {found} elements, must have equally many for each of {count} experts")
            })?;
        }
        kernel.require(tokens_given == capacity, || {
            format!(
                "tokens_given is {tokens_given}, must be the capacity, {capacity}, because all rows in use are computed"
            )
        })?;
        let one = MatmulArgs {
            w: w / experts,
            unit: unit / experts,
            ..self.matmul
        };
        check(&one).map_err(|e| ShapeError {
            kernel: e.kernel,
            what: format!("the matrix of one of {count} experts: {}", e.what),
        })?;
        let groups = capacity / tokens;
        check_lengths! { kernel, self:
            group_expert == groups,
        }
        kernel.exactly("used", self.used, 1)
    }
}

impl<'k> MatmulExpertsArgs<Dev<'k>> {
    /// Returns the experts of the groups.
    fn table(&self) -> ExpertTable<'k> {
        ExpertTable {
            group_expert: self.group_expert,
            used: self.used,
            count: self.count,
        }
    }
}

/// Computes the reference: the rows of each group that is in use, by the matrix of its expert.
fn reference(mut a: MatmulExpertsArgs<Cpu<'_>>, tokens: u32, definition: &epilogue::Reference) {
    let experts = a.count as usize;
    let one = a.matmul.w.len() / experts;
    let groups = (a.used[0] / tokens) as usize;
    for (group, &entry) in a.group_expert[..groups].iter().enumerate() {
        assert_ne!(entry, NONE, "a group that is in use has an expert");
        let [expert, rows] = expert_and_rows(entry).map(|n| n as usize);
        let first = group * tokens as usize;
        let w = &a.matmul.w[expert * one..][..one];
        definition.rows(&mut a.matmul, w, first..first + rows);
    }
}

/// Returns the name of a matmul of experts, given the name of the matmul of one expert.
fn named(kernel: &str, matmul: &str) -> String {
    let rest = matmul.strip_prefix(kernel).unwrap_or(matmul);
    format!("{kernel}_experts{rest}")
}

impl KernelDef for MatmulExperts {
    type Args<S: Side> = MatmulExpertsArgs<S>;

    fn name(&self) -> String {
        named("matmul", &KernelDef::name(&self.matmul))
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.matmul)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        KernelDef::blocks_per_sm(&self.matmul)
    }

    fn grid(&self, a: &MatmulExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        let Matmul { tail, split, .. } = self.matmul;
        self.require(tail == 0 && split == 1, || {
            format!("the matmul of experts has tail {tail} and split {split}, must have 0 and 1")
        })?;
        a.check(self, self.matmul.tokens, |one| self.matmul.check_all(one))?;
        let MatmulArgs {
            rows,
            capacity,
            blocks,
            ..
        } = a.matmul;
        Ok(Grid {
            shared: self.matmul.shared(),
            ..Grid::line(blocks.min(self.matmul.items(rows, capacity)))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulExpertsArgs<Dev<'k>>) {
        kernel::program_of_experts(k, self.matmul, a.matmul, a.table());
    }

    fn reference(&self, a: MatmulExpertsArgs<Cpu<'_>>) {
        let Matmul {
            format,
            epilogue,
            rows,
            tokens,
            ..
        } = self.matmul;
        reference(
            a,
            tokens,
            &epilogue::Reference {
                format,
                epilogue,
                rows,
            },
        );
    }
}

impl KernelDef for MatmulSyncExperts {
    type Args<S: Side> = MatmulExpertsArgs<S>;

    fn name(&self) -> String {
        named("matmul_sync", &KernelDef::name(&self.matmul))
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.matmul)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        KernelDef::blocks_per_sm(&self.matmul)
    }

    fn grid(&self, a: &MatmulExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        a.check(self, self.matmul.tokens, |one| self.matmul.check_all(one))?;
        let MatmulArgs {
            rows,
            capacity,
            blocks,
            ..
        } = a.matmul;
        Ok(Grid {
            shared: self.matmul.shared(),
            ..Grid::line(blocks.min(self.matmul.jobs(rows, capacity)))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulExpertsArgs<Dev<'k>>) {
        SyncBlock::new(k, &self.matmul, &a.matmul).run_experts(&a.table());
    }

    fn reference(&self, a: MatmulExpertsArgs<Cpu<'_>>) {
        let MatmulSync {
            format,
            epilogue,
            rows,
            tokens,
            ..
        } = self.matmul;
        reference(
            a,
            tokens,
            &epilogue::Reference {
                format,
                epilogue,
                rows,
            },
        );
    }
}
