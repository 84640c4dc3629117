//! Cases of attention.

use super::*;
use crate::case::{Case, Random, Variant};

impl Variant for AttentionChained {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let (full, alone) = (TILE * self.tiles(), ALONE * self.positions());
        let plain = ChainedCase { position: 0, ctx: 1, splits: 1, kv_heads: 1, idle: 0, outlier: 1.0 };
        // One position; a whole tile among blocks without work, and one position more; a position past the cache,
        // which ends with it; one position more than a block holds, and than it takes alone; outliers.
        let short = [
            ChainedCase { ..plain },
            ChainedCase { position: 15, ctx: 40, splits: 2, kv_heads: 2, idle: 1, ..plain },
            ChainedCase { position: 16, ctx: 17, ..plain },
            ChainedCase { position: 50, ctx: 31, ..plain },
            ChainedCase { position: full, ctx: full + 3, splits: 3, ..plain },
            ChainedCase { position: alone, ctx: alone + 3, splits: 3, ..plain },
            ChainedCase { position: 100, ctx: 101, outlier: 100.0, ..plain },
        ];
        // As many positions as a block takes alone; more than that in the only range, and in two; parts that are merged
        // in several steps. The number of queries changes nothing here, nor that of dimensions in the last.
        let long = [
            ChainedCase { position: alone - 1, ctx: alone, splits: 2, ..plain },
            ChainedCase { position: alone + 100, ctx: 2 * alone, ..plain },
            ChainedCase { position: 2 * alone + 40, ctx: 3 * alone, splits: 2, ..plain },
            ChainedCase {
                position: 9 * self.positions() - 17,
                ctx: 9 * self.positions(),
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
        short.into_iter().chain(long).map(|case| case.filled(self, seed)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct ChainedCase {
    position: u32,
    ctx: u32,
    splits: u32,
    kv_heads: u32,
    /// Blocks without work at any position.
    idle: u32,
    /// What every 37th number of the caches is multiplied by, and of the queries divided by.
    outlier: f32,
}

impl ChainedCase {
    fn filled(&self, kernel: &AttentionChained, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let (heads, units) = (self.kv_heads * kernel.queries, self.kv_heads * kernel.groups());
        // The last column is where the only one would be.
        let columns = kernel.columns;
        let position = |column: u32| self.position.saturating_sub(columns - 1 - column);
        let state = (0..columns).flat_map(|i| [0, position(i), 0, 0, 0, 0, 0, 0]).collect();
        let mut numbers = |n: u32, factor: f32| {
            let mut v = random.units(n as usize * dim);
            v.chunks_mut(dim).for_each(|row| row.iter_mut().step_by(37).for_each(|x| *x *= factor));
            v
        };
        let q = numbers(columns * heads, 1.0 / self.outlier);
        let mut cache = || {
            CpuArg::F16(
                numbers(self.kv_heads * self.ctx, self.outlier).into_iter().map(f16::from_f32).collect(),
            )
        };
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::F32(q),
            cache(),
            cache(),
            CpuArg::U16(vec![0; (columns * heads) as usize * dim]),
            CpuArg::F32(vec![0.0; (columns * heads) as usize * dim / EIGHT as usize]),
            CpuArg::F32(vec![0.0; (columns * heads * self.splits * kernel.part()) as usize]),
            CpuArg::U32(vec![0; (columns * kernel.tickets(self.kv_heads)) as usize]),
        ];
        args.extend([heads, self.kv_heads, self.ctx, self.splits].map(CpuArg::scalar));
        // A larger factor than models have, so that weights differ by powers of ten.
        args.push(CpuArg::scalar(4.0 / (dim as f32).sqrt()));
        args.extend([columns * units * self.splits + self.idle, kernel.shared()].map(CpuArg::scalar));
        args.push(CpuArg::U64(vec![0]));
        // Two halves hold 22 bits of a query and of a weight; sums of some hundred products add their roundings.
        Case { label: format!("{self:?}"), args, bound: 1e-5 }
    }
}
