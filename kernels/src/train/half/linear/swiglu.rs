//! The second projection of the feed-forward block followed by SwiGLU, as one matmul:
//!
//! ```text
//! up = x W^T + u B^T
//! a  = silu(g) up
//! ```
//!
//! `a` is computed from the rounded `up`, which the backward pass reads. A separate kernel would
//! give the same bits.

use super::ahead::{self, Ahead, AheadArgs};
use super::operands::{BOUND, Operands, ProjectionSizes, X, Y, pair};
use super::{LoraLinear, MapTiles};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{GROUPS, Leaving, OutputShape, ProductTile, Summed, Tiled};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::swiglu::Activation;
use crate::train::half::buffers::{narrow, wide};
use crate::train::half::rows::unpack;
use crate::train::products::{MatmulLayout, nn, nt};
use crate::train::swiglu::forward;
use ptx_gen::*;

args! {
    /// Arguments of [`LoraSwiGlu`].
    pub struct LoraSwiGluArgs {
        /// `[rows, depth]`: the input
        x: InMap<bf16>,
        /// `[columns, depth]`: the weight
        w: InMap<bf16>,
        /// `[rows, rank]`: `u`. Ignored if `rank` is 0.
        u: InMap<bf16>,
        /// `[rank, columns]`: `B^T`. Ignored if `rank` is 0.
        b: InMap<bf16>,
        /// `[rows, columns]`: the gate
        g: InMap<bf16>,
        /// `[rows, columns]`: the result of the projection
        up: OutMap<bf16>,
        /// `[rows, columns]`: the result of SwiGLU
        a: OutMap<bf16>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `g`, a multiple of 8.
        columns: u32,
        /// The length of a row of `x`, a multiple of 8.
        depth: u32,
        /// The rank of the adapter, a multiple of 8, or 0 without one.
        rank: u32,
        /// The number of blocks: the number of the device's multiprocessors.
        blocks: u32,
        /// The matrix that the idle warps unpack.
        ahead: AheadArgs,
    }
}

/// Kernel of the projection and SwiGLU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraSwiGlu {
    /// The tile of a block.
    pub tile: ProductTile,
}

/// The bytes of shared memory beside the ring: results leave through four tiles.
const BESIDE: u32 = 2 * GROUPS * Y.bytes();

impl LoraSwiGlu {
    /// Returns the tiles that the tensor maps copy: `x` for every left operand, `w` for the weight,
    /// `b` for `B`, and `y` for all tensors `[rows, columns]`.
    pub fn map_tiles(&self) -> MapTiles {
        LoraLinear {
            form: MatmulLayout::Nt,
            tile: self.tile,
            bias: false,
            residual: false,
        }
        .map_tiles()
    }

    /// Computes the rounded `up` and `a` of 64 columns, from `from` on. `up` replaces the sums, and
    /// `a` gets separate accumulators.
    fn finish<'k>(
        k: Builder<'k>,
        summed: &mut Summed<'_, 'k, bf16>,
        a: &mut Accumulators<'k, f32>,
        from: u32,
    ) {
        let g = summed.extra();
        for (i, g) in (0..).zip(g.into_iter().flatten()) {
            if i % 4 == 0 {
                k.section("train/linear/swiglu", "up and a of 16 columns");
            }

            // A lane has two adjacent columns of a row in a word of `g`, and in two sums.
            let at = 2 * i;
            let sums = &mut summed.sums.0[from as usize / 2 + at..][..2];

            // `a` is computed from the rounded `up`, which the backward pass reads.
            let up = unpack(sums[0].get().pack_bf16(sums[1].get()));
            for (j, (g, up)) in unpack(g).into_iter().zip(up).enumerate() {
                sums[j].set(up);
                a.0[at + j].set(g * Activation::Silu.sigmoid(g) * up);
            }
        }
    }
}

impl KernelDef for LoraSwiGlu {
    type Args<S: Side> = LoraSwiGluArgs<S>;

    fn name(&self) -> String {
        format!("train_linear_swiglu_{}", self.tile.suffix())
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

    fn grid(&self, a: &LoraSwiGluArgs<Shape>) -> Result<Grid, ShapeError> {
        let LoraSwiGluArgs {
            rows,
            columns,
            depth,
            rank,
            blocks,
            ..
        } = *a;
        let frozen = [a.x, a.w];
        let adapter = [a.u, a.b];
        Operands {
            rows,
            columns,
            depth,
            rank,
            blocks,
            frozen,
            adapter,
        }
        .check(self, "b")?;
        check_lengths! { self, a:
            g == rows * columns,
            up == rows * columns,
            a == rows * columns,
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

    fn program<'k>(&self, k: Builder<'k>, a: LoraSwiGluArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let ahead = Ahead::new(k, a.ahead);
        let shape = OutputShape {
            rows: a.rows,
            columns: a.columns,
        };
        let pairs = vec![
            pair(MatmulLayout::Nt, self.tile, a.x, a.w, a.depth),
            pair(MatmulLayout::Nn, self.tile, a.u, a.b, a.rank),
        ];
        let tiled = Tiled::new(k, memory, self.tile, BESIDE, shape, pairs, vec![a.g.of(X)]);
        let out = memory.at(self.tile.ring(BESIDE).memory());
        let finish = |leaving: &Leaving<'k>, mut summed: Summed<'_, 'k, bf16>| {
            let out = out.row(leaving.group, 2 * Y.bytes());
            let up = a.up.of(Y).at(out);
            let to = a.a.of(Y).at(out.at(Y.bytes()));

            // Both results leave 64 columns at a time, so `a` needs accumulators for 64 columns
            // only.
            let mut gated = Accumulators::zero(k, 64);
            for from in (0..self.tile.columns()).step_by(64) {
                k.section("train/linear/swiglu_gate", "g of 64 columns");
                Self::finish(k, &mut summed, &mut gated, from);

                k.section(
                    "train/linear/swiglu_store",
                    "round and store 64 columns of up and a",
                );
                let place = [summed.column + from, summed.row];
                leaving.store(&[(up, &*summed.sums, from), (to, &gated, 0)], place);
            }
        };
        tiled.run_with_idle(finish, Some(&|thread| ahead.run(thread)));
    }

    fn reference(&self, a: LoraSwiGluArgs<Cpu<'_>>) {
        let mut up = vec![0.0; a.up.len()];
        nt(&wide(a.x), &wide(a.w), a.depth as usize, &mut up);
        if a.rank > 0 {
            nn(&wide(a.u), &wide(a.b), a.columns as usize, &mut up);
        }
        narrow(&up, a.up);
        narrow(&forward(&wide(a.g), &wide(a.up)), a.a);
        ahead::reference(a.ahead);
    }
}

/// Returns numbers whose sums of products are exact in any order. A sum next to a tie could
/// otherwise round either way, and `a` with it.
fn eighths(random: &mut Random, [rows, columns]: [u32; 2]) -> CpuArg {
    let number = |_| bf16::from_f32((8.0 * random.unit()).round() / 8.0);
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

impl Variant for LoraSwiGlu {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(sizes, n): ([u32; 5], u32)| {
            let sizes = ProjectionSizes::new(sizes);
            let mut random = Random(seed);
            let operands = sizes.operands(MatmulLayout::Nt).into_iter();
            let shapes = operands.chain([sizes.result(); 3]);
            let mut args: Vec<CpuArg> = shapes.map(|shape| eighths(&mut random, shape)).collect();
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
        let sizes = ProjectionSizes::of_args(args, 7);
        Some(sizes.of_param(param, MatmulLayout::Nt, "b"))
    }
}
