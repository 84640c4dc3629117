//! The gradient of the last input of the feed-forward block, through SwiGLU, as one matmul:
//!
//! ```text
//! da  = dy W + du A        a = silu(g) up
//! dg  = da up silu'(g)
//! dup = da silu(g)
//! ```
//!
//! `da` is never in memory and not rounded.

use super::ahead::{self, Ahead, AheadArgs};
use super::operands::{BOUND, Operands, ProjectionSizes, X, Y, matrix, pair};
use super::{LoraLinear, MapTiles};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{GROUPS, Leaving, OutputShape, ProductTile, Summed, Tiled};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::swiglu::Activation;
use crate::train::half::buffers::{narrow, wide};
use crate::train::half::rows::unpack;
use crate::train::products::{MatmulLayout, nn};
use crate::train::swiglu::backward;
use ptx_gen::*;

args! {
    /// Arguments of [`LoraSwiGluBackward`].
    pub struct LoraSwiGluBackwardArgs {
        /// `[rows, depth]`: `dy`
        x: InMap<bf16>,
        /// `[depth, columns]`: the weight
        w: InMap<bf16>,
        /// `[rows, rank]`: `du`. Ignored if `rank` is 0.
        u: InMap<bf16>,
        /// `[rank, columns]`: `A`. Ignored if `rank` is 0.
        a: InMap<bf16>,
        /// `[rows, columns]`: the gate
        g: InMap<bf16>,
        /// `[rows, columns]`: the other factor
        up: InMap<bf16>,
        /// `[rows, columns]`: the gradient of `g`
        dg: OutMap<bf16>,
        /// `[rows, columns]`: the gradient of `up`
        dup: OutMap<bf16>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `g`, a multiple of 8.
        columns: u32,
        /// The length of a row of `dy`, a multiple of 8.
        depth: u32,
        /// The rank of the adapter, a multiple of 8, or 0 without one.
        rank: u32,
        /// The number of blocks: the number of the device's multiprocessors.
        blocks: u32,
        /// The matrix that the idle warps unpack.
        ahead: AheadArgs,
    }
}

/// Kernel of the gradient through the projection and SwiGLU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraSwiGluBackward {
    /// The tile of a block.
    pub tile: ProductTile,
}

/// The bytes of shared memory beside the ring: results leave through four tiles.
const BESIDE: u32 = 2 * GROUPS * Y.bytes();

impl LoraSwiGluBackward {
    /// Returns the tiles that the tensor maps copy: `x` for every left operand, `w` for the weight,
    /// `b` for `A`, and `y` for all tensors `[rows, columns]`.
    pub fn map_tiles(&self) -> MapTiles {
        LoraLinear {
            form: MatmulLayout::Nn,
            tile: self.tile,
            bias: false,
            residual: false,
        }
        .map_tiles()
    }

    /// Computes `dg` and `dup` of 64 columns, from `from` on. `dg` replaces the sums, and `dup`
    /// gets separate accumulators.
    fn finish<'k>(
        k: Builder<'k>,
        summed: &mut Summed<'_, 'k, bf16>,
        dup: &mut Accumulators<'k, f32>,
        from: u32,
    ) {
        let g = summed.extra();
        let up = summed.extra();
        for (i, (g, up)) in (0..).zip(g.into_iter().flatten().zip(up.into_iter().flatten())) {
            if i % 4 == 0 {
                k.section("train/linear/swiglu_backward", "dg and dup of 16 columns");
            }
            for (j, (g, up)) in (0..).zip(unpack(g).into_iter().zip(unpack(up))) {
                let at = 2 * i + j;
                let sum = &mut summed.sums.0[from as usize / 2 + at];

                // `da` is not rounded, unlike `up` in the forward pass, because nothing else reads
                // it.
                let da = sum.get();
                let sigmoid = Activation::Silu.sigmoid(g);
                let through_up = da * up;

                // silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))
                let inner = g.fma(-sigmoid + 1.0, 1.0);
                let derivative = sigmoid * inner;
                sum.set(through_up * derivative);
                let silu = g * sigmoid;
                dup.0[at].set(da * silu);
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
        let frozen = [a.x, a.w];
        let adapter = [a.u, a.a];
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
        check_lengths! { self, a:
            g == rows * columns,
            up == rows * columns,
            dg == rows * columns,
            dup == rows * columns,
        }
        ahead::grid(
            self,
            &a.ahead,
            self.tile,
            [a.rows, a.columns],
            a.blocks,
            BESIDE,
        )
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraSwiGluBackwardArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let ahead = Ahead::new(k, a.ahead);
        let shape = OutputShape {
            rows: a.rows,
            columns: a.columns,
        };
        let pairs = vec![
            pair(MatmulLayout::Nn, self.tile, a.x, a.w, a.depth),
            pair(MatmulLayout::Nn, self.tile, a.u, a.a, a.rank),
        ];
        let tiled = Tiled::new(
            k,
            memory,
            self.tile,
            BESIDE,
            shape,
            pairs,
            vec![a.g.of(X), a.up.of(X)],
        );
        let out = memory.at(self.tile.ring(BESIDE).memory());
        let finish = |leaving: &Leaving<'k>, mut summed: Summed<'_, 'k, bf16>| {
            let out = out.row(leaving.group, 2 * Y.bytes());
            let dg = a.dg.of(Y).at(out);
            let dup = a.dup.of(Y).at(out.at(Y.bytes()));

            // Both results leave 64 columns at a time, so `dup` needs accumulators for 64 columns
            // only.
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
        let case = |(sizes, n): ([u32; 5], u32)| {
            let sizes = ProjectionSizes::new(sizes);
            let mut random = Random(seed);
            let operands = sizes.operands(MatmulLayout::Nn).into_iter();
            let shapes = operands.chain([sizes.result(); 4]);
            let mut args: Vec<CpuArg> = shapes.map(|shape| matrix(&mut random, shape)).collect();
            args.extend(sizes.scalars());
            args.extend(ahead::case(&mut random, n));
            Case {
                label: sizes.label(n),
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
        let sizes = ProjectionSizes::of_args(args, 8);
        Some(sizes.of_param(param, MatmulLayout::Nn, "a"))
    }
}
