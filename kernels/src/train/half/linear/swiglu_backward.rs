//! The gradient of the feed-forward block's last projection through SwiGLU, as one product:
//!
//! ```text
//! da  = dy W + du A        a = silu(g) up
//! dg  = da up silu'(g)
//! dup = da silu(g)
//! ```
//!
//! `da` is never in memory, and not rounded.

use super::{BOUND, Frozen, LoraLinear, MapTiles, Operands, Weights, X, Y, matrix, nf4_shapes, scalar};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::simple::swiglu::Activation;
use crate::tiled::{GROUPS, Pair, Product, ProductTile, Right, Summed, Tiled};
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
        /// `[depth, columns]`; anything if it is in NF4
        w: InMap<bf16>,
        /// `[columns * depth / 2]`: `w` in NF4, two codes a byte, from an address that is a multiple of 16; else empty
        packed: In<u8>,
        /// `[columns * depth / 64]`; empty with `packed`
        absmax: In<f32>,
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
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraSwiGluBackward {
    /// The tile of a block.
    pub tile: ProductTile,
    /// How `w` lies in memory.
    pub frozen: Frozen,
}

/// What leaves is in four tiles of shared memory.
const BESIDE: u32 = 2 * GROUPS * Y.bytes();

impl LoraSwiGluBackward {
    /// What the tensor maps copy: `x` of every left operand, `w` of weights, `b` of A, `y` of all that has rows and columns.
    pub fn map_tiles(&self) -> MapTiles {
        LoraLinear { form: Form::Nn, tile: self.tile, bias: false, residual: false, frozen: self.frozen }
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
                k.note("dg and dup of 16 columns");
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
        format!("train_linear_swiglu_backward_{}{}", self.tile.suffix(), self.frozen.suffix())
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
        let LoraSwiGluBackwardArgs { rows, columns, depth, rank, blocks, .. } = *a;
        Operands { rows, columns, depth, rank, blocks, x: a.x, adapter: [a.u, a.a] }.check(self, "a")?;
        let weights = Weights { w: a.w, packed: a.packed, absmax: a.absmax };
        self.frozen.check(self, "", weights, ([depth, columns], "depth * columns"))?;
        for (name, len) in [("g", a.g), ("up", a.up), ("dg", a.dg), ("dup", a.dup)] {
            self.length(name, len, "rows * columns", &[a.rows, a.columns])?;
        }
        Ok(self.tile.grid([a.rows, a.columns], a.blocks, BESIDE))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraSwiGluBackwardArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let shape = Product { rows: a.rows, columns: a.columns };
        let pair = |left: TensorMap<'k, bf16, Read>, right, depth| Pair {
            left: left.of(X),
            right,
            by_rows: true,
            depth,
        };
        let weights = Weights { w: a.w, packed: a.packed, absmax: a.absmax };
        let w = self.frozen.right(weights, self.tile.right(true), a.columns);
        let right = Right::Tiles(a.a.of(self.tile.right(true)));
        let pairs = vec![pair(a.x, w, a.depth), pair(a.u, right, a.rank)];
        let tiled = Tiled::new((memory, k), (self.tile, BESIDE), shape, pairs, vec![a.g.of(X), a.up.of(X)]);
        let out = memory.at(self.tile.ring(BESIDE).memory());
        tiled.run(|leaving, mut summed| {
            let out = out.row(leaving.group, 2 * Y.bytes());
            let (dg, dup) = (a.dg.of(Y).at(out), a.dup.of(Y).at(out.at(Y.bytes())));
            let mut of_up = Accumulators::zero(k, 64);
            for from in (0..self.tile.columns()).step_by(64) {
                k.note("g and up of 64 columns");
                Self::finish(k, &mut summed, &mut of_up, from);
                k.note("round and store 64 columns of dg and dup");
                let place = [summed.column + from, summed.row];
                leaving.store(&[(dg, &*summed.sums, from), (dup, &of_up, 0)], place);
            }
        });
    }

    fn reference(&self, a: LoraSwiGluBackwardArgs<Cpu<'_>>) {
        let mut da = vec![0.0; a.dg.len()];
        nn(
            &wide(a.x),
            &self.frozen.weights(Weights { w: a.w, packed: a.packed, absmax: a.absmax }),
            a.columns as usize,
            &mut da,
        );
        if a.rank > 0 {
            nn(&wide(a.u), &wide(a.a), a.columns as usize, &mut da);
        }
        let (dg, dup) = backward(&da, &wide(a.g), &wide(a.up));
        narrow(&dg, a.dg);
        narrow(&dup, a.dup);
    }
}

impl Variant for LoraSwiGluBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, columns, depth, rank, blocks]: [u32; 5]| {
            let mut random = Random(seed);
            let x = matrix(&mut random, rows, depth);
            let w = match self.frozen {
                Frozen::Bf16 => {
                    [matrix(&mut random, depth, columns), CpuArg::U8(vec![]), CpuArg::F32(vec![])]
                }
                Frozen::Nf4 => self.frozen.case(&mut random, [depth, columns]),
            };
            let shapes = [[rows, rank.max(8)], [rank.max(8), columns]];
            let shapes = shapes.into_iter().chain([[rows, columns]; 4]);
            let mut args: Vec<CpuArg> = [x].into_iter().chain(w).collect();
            args.extend(shapes.map(|[n, m]| matrix(&mut random, n, m)));
            args.extend([rows, columns, depth, rank, blocks].map(CpuArg::scalar));
            let label = format!("rows={rows} columns={columns} depth={depth} rank={rank} blocks={blocks}");
            Case { label, args, bound: BOUND }
        };
        match self.frozen {
            Frozen::Bf16 => {
                [[1, 8, 8, 0, 1], [64, 72, 200, 72, 1], [130, self.tile.columns() + 8, 136, 8, 2]]
                    .map(case)
                    .into()
            }
            Frozen::Nf4 => nf4_shapes(self.tile, false).into_iter().map(case).collect(),
        }
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns, depth, rank] = [10, 11, 12, 13].map(|i| scalar(&args[i]));
        Some(match param {
            "x" => [rows, depth],
            "w" if self.frozen == Frozen::Nf4 => [8, 8],
            "w" => [depth, columns],
            "u" => [rows, rank.max(8)],
            "a" => [rank.max(8), columns],
            _ => [rows, columns],
        })
    }
}
