//! The choice of a [`Matmul`] for a matrix and a number of tokens: one rule, derived from
//! measurements on an H200.
//!
//! With one block per multiprocessor, a job of 128 rows and `w` tokens takes about as long as the
//! work for `w + 36` tokens. Blocks work in rounds, and the last round may be short. Splitting the
//! columns creates more items from the same jobs. The last block of a job then loads the partial
//! sums of all splits, as many at a time as it has registers for.
//!
//! With many tokens, the rows that would belong to the last, short round may be processed in
//! narrower jobs, of which there are more. These jobs are the tail.
//!
//! Up to 128 tokens form a single job. Weights are then read once, and a token's sums do not depend
//! on the number of tokens within a width. If the jobs of few tokens fill the device anyway, two
//! blocks per multiprocessor are faster, or one block of 256 rows for 64 tokens.

use super::definition::{Epilogue, MAX_SPLIT, Matmul};
pub(super) use super::wgmma::sm_share::SmShare;
use super::wgmma::split::at_once;
use crate::format::Format;
use crate::format::tile::{self, RowOrder};

/// The shape of a matmul: a matrix and a number of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The format of the weights.
    pub format: Format,
    /// The number of rows of the matrix.
    pub rows: u32,
    /// The number of columns of the matrix.
    pub n: u32,
    /// The number of tokens, at least 1.
    pub tokens: u32,
}

/// The numbers of elements of `partials` and `tickets` that are enough for every plan on every
/// device.
pub const SCRATCH: [usize; 2] = [
    (MAX_ITEMS * 128 * MAX_SPLIT_WIDTH) as usize,
    (MAX_ITEMS * 8) as usize,
];

/// The maximum number of job slices. There are also no more than multiprocessors.
const MAX_ITEMS: u32 = 160;
/// The maximum number of tokens of a job whose columns are split.
const MAX_SPLIT_WIDTH: u32 = 128;
/// The widths for few tokens. The smallest width that holds all tokens is used.
const FEW: [u32; 5] = [8, 16, 32, 64, 128];
/// The widths for more tokens. The fastest is used.
const MANY: [u32; 4] = [256, 192, 128, 64];
/// The cost of a job besides its tokens, in tokens, for rows of 4,096 weights.
const FIXED: u32 = 36;
/// The cost of storing partial sums, in the same unit, per tile.
const LEAVE: u32 = 60;
/// The cost of loading some partial sums at once, besides their tokens.
const LOAD: u32 = 20;

impl Matmul {
    /// Returns the plan that measurements found fastest.
    pub fn planned(
        shape: &Shape,
        epilogue: Epilogue,
        rows: RowOrder,
        multiprocessors: u32,
    ) -> Matmul {
        let plans = Matmul::plans(shape, epilogue, rows, multiprocessors);
        Matmul::fastest(plans, shape, multiprocessors).expect("there are widths")
    }

    /// Returns the fastest plan among those that split the columns into `split` parts, or `None` if
    /// there is none.
    ///
    /// The bits of a token's sums depend on the split alone, so plans for different numbers of
    /// tokens give a token equal bits if their splits are equal. A split that is planned for more
    /// tokens is possible for fewer, too, and so is 1.
    pub fn planned_with_split(
        shape: &Shape,
        epilogue: Epilogue,
        rows: RowOrder,
        multiprocessors: u32,
        split: u32,
    ) -> Option<Matmul> {
        let plans = Matmul::plans(shape, epilogue, rows, multiprocessors);
        let plans = plans.filter(|plan| plan.split == split);
        Matmul::fastest(plans, shape, multiprocessors)
    }

    /// Returns this plan, which must be for few tokens, for `tokens` tokens if they are fewer. A
    /// token's sums have equal bits.
    pub fn narrowed(self, tokens: u32) -> Matmul {
        let width = few(tokens).unwrap_or(self.tokens);
        Matmul {
            tokens: width.min(self.tokens),
            ..self
        }
    }

    /// Returns all plans.
    fn plans(
        shape: &Shape,
        epilogue: Epilogue,
        rows: RowOrder,
        multiprocessors: u32,
    ) -> impl Iterator<Item = Matmul> {
        let shape = *shape;
        let of = move |width| Matmul::new(shape.format, epilogue, rows, width);
        let widths = match few(shape.tokens) {
            Some(width) => vec![width],
            None => MANY.to_vec(),
        };
        widths.into_iter().flat_map(move |width| {
            let splits = 1..=of(width).most_parts(&shape, multiprocessors);
            let parts = splits.map(move |split| Matmul { split, ..of(width) });
            // Without a whole round before it, there is no last round.
            let rounds = few(shape.tokens).is_none()
                && of(width).jobs(shape.rows, shape.tokens) > multiprocessors;
            let tails = MANY.into_iter().filter(move |&tail| rounds && tail < width);
            parts.chain(tails.map(move |tail| Matmul { tail, ..of(width) }))
        })
    }

    /// Returns the fastest of these plans, with the division of a multiprocessor that suits it.
    fn fastest(
        plans: impl Iterator<Item = Matmul>,
        shape: &Shape,
        multiprocessors: u32,
    ) -> Option<Matmul> {
        let plan = plans.min_by_key(|plan| plan.cost(shape, multiprocessors))?;
        let full =
            few(shape.tokens).is_some() && plan.jobs(shape.rows, shape.tokens) > multiprocessors;
        let form = match plan.tokens {
            0..=32 if full => SmShare::Half,
            33..=64 if full => SmShare::Tall,
            _ => SmShare::Whole,
        };
        Some(Matmul { form, ..plan })
    }

    /// Returns the maximum number of splits: all in one round, each with at least one tile.
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

    /// Returns the estimated cost with one block per multiprocessor.
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

    /// Returns the estimated cost of a plan with a tail.
    fn cost_with_tail(&self, shape: &Shape, jobs: u32, multiprocessors: u32) -> u32 {
        let [wide, narrow] = [self.tokens, self.tail].map(|width| shape.tokens.div_ceil(width));
        let rows = jobs / multiprocessors * multiprocessors / wide;

        // Blocks that have no wide job in its last round take a job of the tail there.
        let first = rows * wide;
        let rest = (jobs / wide - rows) * narrow;
        let later = rest.saturating_sub(first.next_multiple_of(multiprocessors) - first);
        let rounds = [
            first.div_ceil(multiprocessors),
            later.div_ceil(multiprocessors),
        ];
        let tiles = shape.n / tile::of(self.format).columns;
        tiles * (rounds[0] * (FIXED + self.tokens) + rounds[1] * (FIXED + self.tail))
    }
}

/// Returns the width for few tokens, or `None` for more.
fn few(tokens: u32) -> Option<u32> {
    FEW.into_iter().find(|&width| tokens <= width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest of those measured on an H200, or within 3 % of it.
    #[test]
    fn plans_are_what_was_measured() {
        let whole =
            |rows, n, tokens, width, split| ([rows, n, tokens, width, split], SmShare::Whole);
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
            ([28672, 4096, 8, 8, 1], SmShare::Half),
            ([28672, 4096, 16, 16, 1], SmShare::Half),
            ([17920, 1536, 16, 16, 1], SmShare::Half),
            ([28672, 4096, 64, 64, 1], SmShare::Tall),
            ([128_256, 4096, 64, 64, 1], SmShare::Tall),
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

    /// A token can have equal sums with any number of others: the split for many tokens is possible
    /// for fewer, with scratch memory that is not larger than the maximum.
    #[test]
    fn a_split_for_many_tokens_serves_fewer() {
        for (rows, n) in [
            (16, 256),
            (256, 768),
            (1024, 16384),
            (1536, 1536),
            (1536, 8960),
            (4096, 4096),
            (4096, 14336),
            (10240, 4096),
            (128_256, 4096),
        ] {
            for multiprocessors in [33, 66, 114, 132, 160, 264] {
                let shape = |tokens| Shape {
                    format: Format::Q4_K,
                    rows,
                    n,
                    tokens,
                };
                let order = RowOrder::PLAIN;
                let add = Epilogue::Add;
                for most in [8, 16, 32, 64, 128, 256] {
                    let split = Matmul::planned(&shape(most), add, order, multiprocessors).split;
                    for tokens in [1, 8, 9, 16, 32, 33, 64, 65, 100, 128, 129, 200, 256] {
                        if tokens > most {
                            continue;
                        }
                        let shape = shape(tokens);
                        let plan =
                            Matmul::planned_with_split(&shape, add, order, multiprocessors, split);
                        let plan = plan.expect("the split is possible");
                        assert_eq!(plan.split, split);
                        let needed = plan.scratch(rows, tokens);
                        assert!(needed[0] <= SCRATCH[0] && needed[1] <= SCRATCH[1]);
                    }
                }

                for tokens in [1, 40, 300, 2048] {
                    let shape = shape(tokens);
                    let plan = Matmul::planned_with_split(&shape, add, order, multiprocessors, 1);
                    assert_eq!(plan.expect("no split is always possible").split, 1);
                }
            }
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
