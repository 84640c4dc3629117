//! Test cases of attention.

use super::*;
use crate::harness::{Case, Variant};
use crate::pipeline::gemv::lora;
use crate::pipeline::paged::{Paged, PagedCase};
use crate::shared::Random;
use crate::shared::state::StepState;

impl Variant for PipelinedAttention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let full = TILE * self.tiles();
        let alone = MAX_UNSPLIT_TILES * self.min_split_positions();
        let plain = AttentionCase {
            position: 0,
            ctx: 1,
            splits: 1,
            kv_heads: 1,
            idle: 0,
            outlier: 1.0,
        };

        // One position. A full tile next to idle blocks, and one position more. A position past the
        // cache, which is clamped. One position more than a block holds, and than one block
        // processes. Outliers.
        let short = [
            AttentionCase { ..plain },
            AttentionCase {
                position: 15,
                ctx: 40,
                splits: 2,
                kv_heads: 2,
                idle: 1,
                ..plain
            },
            AttentionCase {
                position: 16,
                ctx: 17,
                ..plain
            },
            AttentionCase {
                position: 50,
                ctx: 31,
                ..plain
            },
            AttentionCase {
                position: full,
                ctx: full + 3,
                splits: 3,
                ..plain
            },
            AttentionCase {
                position: alone,
                ctx: alone + 3,
                splits: 3,
                ..plain
            },
            AttentionCase {
                position: 100,
                ctx: 101,
                outlier: 100.0,
                ..plain
            },
        ];

        // As many positions as one block processes. More in one split, and in two. Partial results
        // that are merged in several iterations. The number of queries makes no difference here,
        // nor do the dimensions in the last case.
        let long = [
            AttentionCase {
                position: alone - 1,
                ctx: alone,
                splits: 2,
                ..plain
            },
            AttentionCase {
                position: alone + 100,
                ctx: 2 * alone,
                ..plain
            },
            AttentionCase {
                position: 2 * alone + 40,
                ctx: 3 * alone,
                splits: 2,
                ..plain
            },
            AttentionCase {
                position: 9 * self.min_split_positions() - 17,
                ctx: 9 * self.min_split_positions(),
                splits: 12,
                ..plain
            },
        ];
        let count = match (self.queries, self.head_dim) {
            (1, 128) => 4,
            (1, _) => 3,
            _ => 0,
        };
        let long = long.into_iter().take(count);
        let windows = self
            .window
            .into_iter()
            .flat_map(|window| window_cases(window, plain));
        short
            .into_iter()
            .chain(long)
            .chain(windows)
            .map(|case| case.filled(self, seed))
            .collect()
    }
}

impl Variant for Paged<PipelinedAttention> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let own = self.0.cases(seed);
        let placed = own.iter().map(|case| (case.clone(), PagedCase::Placed));

        // A sequence or a page that does not exist is clamped. A token that is done attends to the
        // positions before its own.
        let exceptions = PagedCase::ALL
            .into_iter()
            .filter(|kind| *kind != PagedCase::Placed)
            .map(|kind| (own[1].clone(), kind));

        // More positions in a block than the lanes of a warp hold page numbers for.
        let long = AttentionCase {
            position: 2150,
            ctx: 2200,
            splits: 1,
            kv_heads: 1,
            idle: 0,
            outlier: 1.0,
        };
        let long = (self.0.queries == 1 && self.0.window.is_none())
            .then(|| (long.filled(&self.0, seed), PagedCase::Placed));
        placed
            .chain(exceptions)
            .chain(long)
            .map(|(case, kind)| self.paged(case, kind, seed))
            .collect()
    }
}

impl Variant for WithSinks {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Sinks among the scores, far below all of them, and above. The middle of the scores is 0.
        let sizes = [
            (0.0, 2.0),
            (-100.0, 1.0),
            (15.0, 2.0),
            (0.0, 8.0),
            (-1e30, 0.0),
        ];
        let cases = self
            .0
            .cases(seed)
            .into_iter()
            .zip(sizes.into_iter().cycle());
        cases
            .map(|(mut case, (middle, size))| {
                let heads = lora::size(&case.args[8]);
                let units = Random(seed ^ 0x51).units(heads as usize);
                let sinks = units.into_iter().map(|x| middle + size * x).collect();
                case.args.push(CpuArg::F32(sinks));
                Case {
                    label: format!("{} sinks={middle}+{size}", case.label),
                    ..case
                }
            })
            .collect()
    }
}

/// Returns cases of a window that the positions just fill, that they exceed by one, and that begins
/// inside a tile, with one split and with several.
fn window_cases(window: u32, plain: AttentionCase) -> [AttentionCase; 4] {
    [
        (window - 1, 1),
        (window, 2),
        (window + 21, 1),
        (2 * window + 40, 3),
    ]
    .map(|(position, splits)| AttentionCase {
        position,
        ctx: position + 3,
        splits,
        kv_heads: 2,
        ..plain
    })
}

#[derive(Clone, Copy, Debug)]
struct AttentionCase {
    position: u32,
    ctx: u32,
    splits: u32,
    kv_heads: u32,
    /// Blocks that are idle at any position.
    idle: u32,
    /// The factor of every 37th number of the caches, and the divisor of the same numbers of the
    /// queries.
    outlier: f32,
}

impl AttentionCase {
    fn filled(&self, kernel: &PipelinedAttention, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let heads = self.kv_heads * kernel.queries;
        let units = self.kv_heads * kernel.groups();

        // The last token of a batch is at the position of a batch of one.
        let batch = kernel.batch;
        let position = |item: u32| self.position.saturating_sub(batch - 1 - item);
        let state = (0..batch)
            .flat_map(|i| {
                StepState {
                    position: position(i),
                    ..StepState::default()
                }
                .words()
            })
            .collect();
        let mut numbers = |n: u32, factor: f32| {
            let mut v = random.units(n as usize * dim);
            for row in v.chunks_mut(dim) {
                for x in row.iter_mut().step_by(37) {
                    *x *= factor;
                }
            }
            v
        };
        let q = numbers(batch * heads, 1.0 / self.outlier);
        let mut cache = || {
            CpuArg::F16(
                numbers(
                    self.kv_heads * cache::pages(self.ctx) * cache::PAGE,
                    self.outlier,
                )
                .into_iter()
                .map(f16::from_f32)
                .collect(),
            )
        };
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::F32(q),
            cache(),
            cache(),
            CpuArg::U16(vec![0; (batch * heads) as usize * dim]),
            CpuArg::F32(vec![
                0.0;
                (batch * heads) as usize * dim / BFP_BLOCK as usize
            ]),
            CpuArg::F32(vec![
                0.0;
                (batch * heads * self.splits * kernel.partial_len())
                    as usize
            ]),
            CpuArg::U32(vec![0; (batch * kernel.tickets(self.kv_heads)) as usize]),
        ];
        args.extend([heads, self.kv_heads, self.ctx, self.splits].map(CpuArg::scalar));

        // A larger factor than models have, so that weights differ by powers of ten.
        args.push(CpuArg::scalar(4.0 / (dim as f32).sqrt()));
        args.extend([batch * units * self.splits + self.idle, kernel.shared()].map(CpuArg::scalar));
        args.push(CpuArg::U64(vec![0]));

        // Two halves hold 22 bits of a query and of a weight. Sums of some hundred terms add their
        // roundings.
        Case {
            label: format!("{self:?}"),
            args,
            bound: 1e-5,
        }
    }
}
