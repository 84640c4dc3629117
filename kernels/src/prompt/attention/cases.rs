//! Cases of [`PromptAttention`].

use super::PromptAttention;
use crate::case::{Case, Random, Variant};
use crate::matmul::activations::PANEL;
use ptx_gen::*;

/// A shape to run.
#[derive(Clone, Copy, Debug)]
struct PromptCase {
    position: u32,
    tokens: u32,
    capacity: u32,
    /// Positions of the cache after the last token's.
    rest: u32,
    /// The factor of some numbers of the keys, and the divisor of the same numbers of the queries.
    outlier: f32,
}

impl Variant for PromptAttention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let plain = PromptCase { position: 0, tokens: 1, capacity: 8, rest: 0, outlier: 1.0 };
        // One position; two blocks, the last of few tokens; few tokens after many, and after more than a ring of tiles.
        let cases = [
            plain,
            PromptCase {
                position: 37,
                tokens: self.queries + 5,
                capacity: 2 * self.queries,
                rest: 70,
                ..plain
            },
            PromptCase { position: 200, tokens: 9, capacity: 16, rest: 3, outlier: 50.0 },
            PromptCase { position: 950, tokens: 30, capacity: 32, rest: 50, ..plain },
        ];
        // A window that begins in the chunk and before it.
        let windows = self.window.map(|window| {
            let (position, tokens) = (window - window.min(20), 50);
            PromptCase { position, tokens, capacity: 64, rest: 1, ..plain }
        });
        cases.into_iter().chain(windows).map(|case| case.filled(self, seed)).collect()
    }
}

impl PromptCase {
    fn filled(&self, kernel: &PromptAttention, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let unit = PANEL.max(4 * kernel.order.group);
        let fits = |heads: &u32| (heads * kernel.head_dim).is_multiple_of(unit);
        let heads = (2..).step_by(2).find(fits).expect("as many as a chunk has columns");
        let kv_heads = heads / 2;
        let (end, ctx) = (self.position + self.tokens, self.position + self.tokens + self.rest);
        let mut rows = |n: u32, factor: f32| {
            let mut rows = random.units(n as usize * dim);
            rows.chunks_mut(dim).for_each(|row| row.iter_mut().step_by(37).for_each(|x| *x *= factor));
            rows.into_iter().map(f16::from_f32).collect::<Vec<_>>()
        };
        // Weights differ by powers of ten.
        let mut q = rows(self.capacity * heads, 1.0 / self.outlier);
        q.iter_mut().for_each(|x| *x = f16::from_f32(x.to_f32() * 16.0 / (dim as f32).sqrt()));
        let not_a_number = f16::from_f32(f32::NAN);
        q[(self.tokens * heads) as usize * dim..].fill(not_a_number);
        let mut cache = |factor: f32| {
            let mut cache = rows(kv_heads * ctx, factor);
            for head in cache.chunks_mut(ctx as usize * dim) {
                head[end as usize * dim..].fill(not_a_number);
            }
            CpuArg::F16(cache)
        };
        let mut args = vec![
            CpuArg::F16(q),
            cache(self.outlier),
            cache(1.0),
            CpuArg::F16(vec![f16(0); (self.capacity * heads) as usize * dim]),
            CpuArg::F32(vec![0.0; self.capacity as usize]),
        ];
        let sizes = [heads, kv_heads, ctx, self.position, self.tokens, self.capacity];
        args.extend(sizes.map(CpuArg::scalar));
        // Weights are rounded to binary16, the largest of them exact.
        Case { label: format!("{self:?} heads={heads}"), args, bound: 1e-3 }
    }
}
