//! The projections that a matmul joins. Each has its own `u`.

use crate::shared::Contract;
use ptx_gen::*;

/// The assignment of the rows of a matmul's result to the projections that the matmul joins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LoraParts {
    /// There is one projection.
    One,
    /// There are three: queries, then keys, then values.
    Three,
    /// There are two. Of 16 rows, the first eight belong to the first.
    Halves,
}

impl LoraParts {
    /// Returns the number of projections.
    pub const fn count(self) -> u32 {
        match self {
            LoraParts::One => 1,
            LoraParts::Halves => 2,
            LoraParts::Three => 3,
        }
    }

    /// Returns the part of a kernel's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            LoraParts::One => "",
            LoraParts::Halves => "_halves",
            LoraParts::Three => "_three",
        }
    }

    /// Checks the first rows of the second and of the third projection.
    pub(super) fn check(
        self,
        kernel: &impl Contract,
        rows: u32,
        [second, third]: [u32; 2],
    ) -> Result<(), ShapeError> {
        match self {
            LoraParts::One => Ok(()),
            LoraParts::Halves => kernel.multiple("rows", rows, 16),
            LoraParts::Three => {
                kernel.range("third", third, 1, rows)?;
                kernel.range("second", second, 1, third)
            }
        }
    }

    /// Returns the projection of a row.
    pub(super) fn of<'k>(self, k: Builder<'k>, row: U32<'k>, firsts: [U32<'k>; 2]) -> U32<'k> {
        match self {
            LoraParts::One => k.val(0),
            LoraParts::Halves => (row >> 3) & 1,
            // Two comparisons find the projection without a branch.
            LoraParts::Three => {
                let [second, third] = firsts.map(|first| row.ge(first).select(1, 0));
                second + third
            }
        }
    }

    /// Returns the projection of a row on the CPU.
    pub(super) fn on_cpu(self, row: u32, firsts: [u32; 2]) -> u32 {
        match self {
            LoraParts::One => 0,
            LoraParts::Halves => (row >> 3) & 1,
            LoraParts::Three => firsts.iter().filter(|first| row >= **first).count() as u32,
        }
    }
}
