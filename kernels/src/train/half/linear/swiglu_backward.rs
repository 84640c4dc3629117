//! The gradient of the feed-forward block's last projection through SwiGLU, as one product:
//!
//! ```text
//! da  = dy W + du A        a = silu(g) up
//! dg  = da up silu'(g)
//! dup = da silu(g)
//! ```
//!
//! `da` is never in memory, and not rounded.

use super::ahead::{self, Ahead, AheadArgs};
use super::{BOUND, LoraLinear, MapTiles, Operands, X, Y, matrix, scalar};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::simple::swiglu::Activation;
use crate::tiled::{GROUPS, Leaving, Pair, Product, ProductTile, Summed, Tiled};
use crate::train::half::rows::unpack;
use crate::train::half::{narrow, wide};
use crate::train::products::{Form, nn};
use crate::train::swiglu::backward;
use ptx_gen::*;

args! {
    /// Arguments of [`LoraSwiGluBackward`].
    pub struct LoraSwiGluBackwardArgs {
        /// `[rows, depth]`: `dy`
        x: InMap<bf16>,
        /// `[depth, columns]`
        w: InMap<bf16>,
        /// `[rows, rank]`: `du`; anything if `rank` is 0
        u: InMap<bf16>,
        /// `[rank, columns]`; anything if `rank` is 0
        a: InMap<bf16>,
        /// `[rows, columns]`
        g: InMap<bf16>,
        /// `[rows, columns]`
        up: InMap<bf16>,
        /// `[rows, columns]`
        dg: OutMap<bf16>,
        /// `[rows, columns]`
        dup: OutMap<bf16>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `g`, a multiple of 8.
        columns: u32,
        /// Length of a row of `dy`, a multiple of 8.
        depth: u32,
        /// Rank of the adapter, a multiple of 8; 0 without one.
        rank: u32,
        /// Blocks, as many as the device has multiprocessors.
        blocks: u32,
        /// What is unpacked beside.
        ahead: AheadArgs,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraSwiGluBackward {
    /// The tile of a block.
    pub tile: ProductTile,
}

/// What leaves is in four tiles of shared memory.
const BESIDE: u32 = 2 * GROUPS * Y.bytes();

impl LoraSwiGluBackward {
    /// What the tensor maps copy: `x` of every left operand, `w` of weights, `b` of A, `y` of all that has rows and columns.
    pub fn map_tiles(&self) -> MapTiles {
        LoraLinear {
            form: Form::Nn,
            tile: self.tile,
            bias: false,
            residual: false,
        }
        .map_tiles()
    }

    /// `dg` and `dup` of 64 columns, from `from` on: `dg` in place of the sums, `dup` in sums of its own.
    fn finish<'k>(
        k: Builder<'k>,
        summed: &mut Summed<'_, 'k, bf16>,
        dup: &mut Accumulators<'k, f32>,
        from: u32,
    ) {
        let (g, up) = (summed.extra(), summed.extra());
        for (i, (g, up)) in (0..).zip(g.into_iter().flatten().zip(up.into_iter().flatten())) {
            if i % 4 == 0 {
                k.section("train/linear/swiglu_backward", "dg and dup of 16 columns");
            }
            for (j, (g, up)) in (0..).zip(unpack(g).into_iter().zip(unpack(up))) {
                let at = 2 * i + j;
                let sum = &mut summed.sums.0[from as usize / 2 + at];
                let (da, sigmoid) = (sum.get(), Activation::Silu.sigmoid(g));
                sum.set(da * up * (sigmoid * g.fma(-sigmoid + 1.0, 1.0)));
                dup.0[at].set(da * (g * sigmoid));
            }
        }
    }
}

impl KernelDef for LoraSwiGluBackward {
    type Args<S: Side> = LoraSwiGluBackwardArgs<S>;

    fn name(&self) -> String {
        format!("train_linear_swiglu_backward_{}", self.tile.suffix())
    }

    fn block(&self) -> u32 {
        self.tile.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn cluster(&self) -> u32 {
        self.tile.cluster()
    }

    fn grid(&self, a: &LoraSwiGluBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let LoraSwiGluBackwardArgs {
            rows,
            columns,
            depth,
            rank,
            blocks,
            ..
        } = *a;
        let (frozen, adapter) = ([a.x, a.w], [a.u, a.a]);
        Operands {
            rows,
            columns,
            depth,
            rank,
            blocks,
            frozen,
            adapter,
        }
        .check(self, "a")?;
        for (name, len) in [("g", a.g), ("up", a.up), ("dg", a.dg), ("dup", a.dup)] {
            self.length(name, len, "rows * columns", &[a.rows, a.columns])?;
        }
        ahead::grid(
            self,
            &a.ahead,
            self.tile,
            ([a.rows, a.columns], a.blocks),
            BESIDE,
        )
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraSwiGluBackwardArgs<Dev<'k>>) {
        let (memory, ahead) = (k.tile_memory("tiles"), Ahead::new(k, a.ahead));
        let shape = Product {
            rows: a.rows,
            columns: a.columns,
        };
        let pair = |left: TensorArg<'k, bf16, ReadOnly>,
                    right: TensorArg<'k, bf16, ReadOnly>,
                    depth| Pair {
            left: left.of(X),
            right: right.of(self.tile.right(true)),
            by_rows: true,
            depth,
        };
        let pairs = vec![pair(a.x, a.w, a.depth), pair(a.u, a.a, a.rank)];
        let tiled = Tiled::new(
            (memory, k),
            (self.tile, BESIDE),
            shape,
            pairs,
            vec![a.g.of(X), a.up.of(X)],
        );
        let out = memory.at(self.tile.ring(BESIDE).memory());
        let finish = |leaving: &Leaving<'k>, mut summed: Summed<'_, 'k, bf16>| {
            let out = out.row(leaving.group, 2 * Y.bytes());
            let (dg, dup) = (a.dg.of(Y).at(out), a.dup.of(Y).at(out.at(Y.bytes())));
            let mut of_up = Accumulators::zero(k, 64);
            for from in (0..self.tile.columns()).step_by(64) {
                k.section(
                    "train/linear/swiglu_backward_inputs",
                    "g and up of 64 columns",
                );
                Self::finish(k, &mut summed, &mut of_up, from);
                k.section(
                    "train/linear/swiglu_backward_store",
                    "round and store 64 columns of dg and dup",
                );
                let place = [summed.column + from, summed.row];
                leaving.store(&[(dg, &*summed.sums, from), (dup, &of_up, 0)], place);
            }
        };
        tiled.run_with_idle(finish, Some(&|thread| ahead.run(thread)));
    }

    fn reference(&self, a: LoraSwiGluBackwardArgs<Cpu<'_>>) {
        let mut da = vec![0.0; a.dg.len()];
        nn(&wide(a.x), &wide(a.w), a.columns as usize, &mut da);
        if a.rank > 0 {
            nn(&wide(a.u), &wide(a.a), a.columns as usize, &mut da);
        }
        let (dg, dup) = backward(&da, &wide(a.g), &wide(a.up));
        narrow(&dg, a.dg);
        narrow(&dup, a.dup);
        ahead::reference(a.ahead);
    }
}

impl Variant for LoraSwiGluBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |([rows, columns, depth, rank, blocks], n): ([u32; 5], u32)| {
            let mut random = Random(seed);
            let shapes = [
                [rows, depth],
                [depth, columns],
                [rows, rank.max(8)],
                [rank.max(8), columns],
            ];
            let shapes = shapes.into_iter().chain([[rows, columns]; 4]);
            let mut args: Vec<CpuArg> = shapes.map(|[n, m]| matrix(&mut random, n, m)).collect();
            args.extend([rows, columns, depth, rank, blocks].map(CpuArg::scalar));
            args.extend(ahead::case(&mut random, n));
            let label = format!(
                "rows={rows} columns={columns} depth={depth} rank={rank} blocks={blocks} n={n}"
            );
            Case {
                label,
                args,
                bound: BOUND,
            }
        };
        let cases = [
            ([1, 8, 8, 0, 1], 0),
            ([64, 72, 200, 72, 1], 192),
            ([130, self.tile.columns() + 8, 136, 8, 2], 0),
        ];
        cases.map(case).into()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns, depth, rank] = [8, 9, 10, 11].map(|i| scalar(&args[i]));
        Some(match param {
            "x" => [rows, depth],
            "w" => [depth, columns],
            "u" => [rows, rank.max(8)],
            "a" => [rank.max(8), columns],
            _ => [rows, columns],
        })
    }
}
