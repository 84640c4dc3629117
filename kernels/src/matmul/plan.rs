//! Which form of [`Matmul`] multiplies a matrix with so many tokens: one rule, from measurements on an H200.
//!
//! With one block to a multiprocessor, a tile of 128 rows and `w` tokens takes about as long as `w + 36` tokens of it.
//! Blocks work in rounds, of which the last may be short. Splitting the columns makes more items of the same jobs, but
//! the last block of a job loads the sums of all parts, as many at once as it has registers for.
//!
//! Of many tokens, the rows that the last, short round would have may be in narrower jobs, of which it has more: a tail.
//!
//! Up to 128 tokens are one job, so that weights are read once and a token's sums do not depend on their number within
//! a width. Where the jobs of few tokens fill the device anyway, two blocks to a multiprocessor are faster, and for 64
//! tokens one of 256 rows.

use super::epilogue::Epilogue;
use super::form::Form;
use super::product::{MAX_SPLIT, Matmul};
use super::split::at_once;
use crate::format::Format;
use crate::format::tile::{self, RowOrder};

/// A matrix, and how many tokens it is multiplied with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The format of the weights.
    pub format: Format,
    /// Rows of the matrix.
    pub rows: u32,
    /// Its columns.
    pub n: u32,
    /// Tokens, at least 1.
    pub tokens: u32,
}

/// Elements that `partials` and `tickets` need for every plan, on every device.
pub const SCRATCH: [usize; 2] = [
    (MAX_ITEMS * 128 * MAX_SPLIT_WIDTH) as usize,
    (MAX_ITEMS * 8) as usize,
];

/// Parts of jobs at most: no more than multiprocessors, and no more than this.
const MAX_ITEMS: u32 = 160;
/// Tokens of a job whose columns are split, at most.
const MAX_SPLIT_WIDTH: u32 = 128;
/// Tokens of a job: of few, as many as there are; of more than the largest of those, what is fastest.
const FEW: [u32; 5] = [8, 16, 32, 64, 128];
const MANY: [u32; 4] = [256, 192, 128, 64];
/// What a job costs besides its tokens, in tokens: with rows of 4,096 weights.
const FIXED: u32 = 36;
/// What it costs to leave a part, and to load some parts at once besides their tokens, likewise for a tile.
const LEAVE: u32 = 60;
const LOAD: u32 = 20;

impl Matmul {
    /// The fastest that was measured.
    pub fn planned(
        shape: &Shape,
        epilogue: Epilogue,
        rows: RowOrder,
        multiprocessors: u32,
    ) -> Matmul {
        let of = |width| Matmul::new(shape.format, epilogue, rows, width);
        let few = FEW.into_iter().find(|&width| shape.tokens <= width);
        let widths = few.as_ref().map_or(&MANY[..], std::slice::from_ref);
        let plans = widths.iter().flat_map(|&width| {
            let splits = 1..=of(width).most_parts(shape, multiprocessors);
            let parts = splits.map(move |split| Matmul { split, ..of(width) });
            // Without a whole round before it, there is no last one.
            let rounds =
                few.is_none() && of(width).jobs(shape.rows, shape.tokens) > multiprocessors;
            let tails = MANY.into_iter().filter(move |&tail| rounds && tail < width);
            parts.chain(tails.map(move |tail| Matmul { tail, ..of(width) }))
        });
        let plan = plans
            .min_by_key(|plan| plan.cost(shape, multiprocessors))
            .expect("there are widths");
        let full = few.is_some() && plan.jobs(shape.rows, shape.tokens) > multiprocessors;
        let form = match plan.tokens {
            0..=32 if full => Form::Half,
            33..=64 if full => Form::Tall,
            _ => Form::Whole,
        };
        Matmul { form, ..plan }
    }

    /// Parts of the columns at most: in one round, each with a tile at least.
    fn most_parts(&self, shape: &Shape, multiprocessors: u32) -> u32 {
        if self.tokens > MAX_SPLIT_WIDTH {
            return 1;
        }
        let items = multiprocessors.min(MAX_ITEMS) / self.jobs(shape.rows, shape.tokens);
        items
            .min(MAX_SPLIT)
            .min(shape.n / tile::of(self.format).columns)
            .max(1)
    }

    /// Of one block to a multiprocessor.
    fn cost(&self, shape: &Shape, multiprocessors: u32) -> u32 {
        let jobs = self.jobs(shape.rows, shape.tokens);
        if self.tail > 0 {
            return self.cost_with_tail(shape, jobs, multiprocessors);
        }
        let items = jobs * self.split;
        let tiles = (shape.n / tile::of(self.format).columns).div_ceil(self.split);
        let add = match self.split {
            1 => 0,
            split => LEAVE + split.div_ceil(at_once(self.tokens)) * (LOAD + self.tokens),
        };
        items.div_ceil(multiprocessors) * tiles * (FIXED + self.tokens) + add
    }

    fn cost_with_tail(&self, shape: &Shape, jobs: u32, multiprocessors: u32) -> u32 {
        let [wide, narrow] = [self.tokens, self.tail].map(|width| shape.tokens.div_ceil(width));
        let rows = jobs / multiprocessors * multiprocessors / wide;
        // Blocks that have no job of full width in its last round have one of the tail there.
        let (first, rest) = (rows * wide, (jobs / wide - rows) * narrow);
        let later = rest.saturating_sub(first.next_multiple_of(multiprocessors) - first);
        let rounds = [
            first.div_ceil(multiprocessors),
            later.div_ceil(multiprocessors),
        ];
        let tiles = shape.n / tile::of(self.format).columns;
        tiles * (rounds[0] * (FIXED + self.tokens) + rounds[1] * (FIXED + self.tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest of those measured on an H200, or within 3 % of it.
    #[test]
    fn plans_are_what_was_measured() {
        let whole = |rows, n, tokens, width, split| ([rows, n, tokens, width, split], Form::Whole);
        let cases = [
            whole(6144, 4096, 16, 16, 2),
            whole(4096, 4096, 8, 8, 4),
            whole(4096, 4096, 16, 16, 4),
            whole(4096, 4096, 64, 64, 4),
            whole(4096, 14336, 16, 16, 4),
            whole(4096, 14336, 128, 128, 4),
            whole(4096, 14336, 256, 128, 2),
            whole(6144, 4096, 256, 128, 1),
            whole(12288, 4096, 16, 16, 1),
            whole(1536, 1536, 16, 16, 6),
            whole(28672, 4096, 128, 128, 1),
            ([28672, 4096, 8, 8, 1], Form::Half),
            ([28672, 4096, 16, 16, 1], Form::Half),
            ([17920, 1536, 16, 16, 1], Form::Half),
            ([28672, 4096, 64, 64, 1], Form::Tall),
            ([128_256, 4096, 64, 64, 1], Form::Tall),
        ];
        for ([rows, n, tokens, width, split], form) in cases {
            let shape = Shape {
                format: Format::Q4_K,
                rows,
                n,
                tokens,
            };
            let found = Matmul::planned(&shape, Epilogue::Store, RowOrder::PLAIN, 132);
            let plan = (found.tokens, found.split, found.form);
            assert_eq!(plan, (width, split, form), "{rows} x {n}, {tokens} tokens");
        }
    }

    /// Rows of the last round in narrower jobs, where that makes it shorter.
    #[test]
    fn short_rounds_have_a_tail() {
        for (rows, n, tokens, plan) in [
            (28672, 4096, 512, (256, 128)),
            (28672, 4096, 2048, (256, 192)),
            (17920, 1536, 512, (256, 64)),
            (17920, 1536, 2048, (256, 128)),
            (4096, 4096, 512, (128, 0)),
            (4096, 4096, 2048, (256, 0)),
            (5120, 4096, 512, (192, 0)),
            (2048, 1536, 512, (64, 0)),
            (1536, 8960, 2048, (192, 0)),
        ] {
            let shape = Shape {
                format: Format::Q4_K,
                rows,
                n,
                tokens,
            };
            let found = Matmul::planned(&shape, Epilogue::Store, RowOrder::PLAIN, 132);
            assert_eq!(
                (found.tokens, found.tail),
                plan,
                "{rows} x {n}, {tokens} tokens"
            );
        }
    }

    #[test]
    fn scratch_is_enough_for_every_plan() {
        for tokens in [1, 8, 9, 48, 100, 128, 200, 256, 500] {
            for (rows, n) in [
                (16, 256),
                (1024, 16384),
                (4096, 14336),
                (10240, 4096),
                (128_256, 4096),
            ] {
                for multiprocessors in [66, 114, 132, 160, 264] {
                    let shape = Shape {
                        format: Format::Q4_K,
                        rows,
                        n,
                        tokens,
                    };
                    let plan =
                        Matmul::planned(&shape, Epilogue::Add, RowOrder::PLAIN, multiprocessors);
                    let needed = plan.scratch(rows, tokens);
                    assert!(
                        needed[0] <= SCRATCH[0] && needed[1] <= SCRATCH[1],
                        "{plan:?}: {needed:?}"
                    );
                }
            }
        }
    }
}
