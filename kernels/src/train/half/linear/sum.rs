//! The gradient of the common input of two or three projections, as one matmul:
//!
//! ```text
//! dx = sum over the projections of dy W + du A
//! ```
//!
//! The result is the sum of one matmul whose `depth` is that of all projections together, and it is
//! rounded once.

use super::ahead::{self, Ahead, AheadArgs};
use super::operands::{BOUND, Y, matrix, pair, scalar};
use super::{LoraLinear, MapTiles};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{GROUPS, Leaving, OutputShape, ProductTile, Summed, Tiled};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::half::buffers::{narrow, wide};
use crate::train::products::{MatmulLayout, nn};
use ptx_gen::*;

args! {
    /// Arguments of [`LoraSum`] for three projections. With two, the matrices of the third are
    /// ignored and its lengths are 0.
    pub struct LoraSumArgs {
        /// `[rows, depth0]`: `dy` of the first projection
        x0: InMap<bf16>,
        /// `[rows, depth1]`: `dy` of the second projection
        x1: InMap<bf16>,
        /// `[rows, depth2]`: `dy` of the third projection
        x2: InMap<bf16>,
        /// `[depth0, columns]`: the weight of the first projection
        w0: InMap<bf16>,
        /// `[depth1, columns]`: the weight of the second projection
        w1: InMap<bf16>,
        /// `[depth2, columns]`: the weight of the third projection
        w2: InMap<bf16>,
        /// `[rows, rank0]`: `du` of the first projection. Ignored if `rank0` is 0.
        u0: InMap<bf16>,
        /// `[rows, rank1]`: `du` of the second projection. Ignored if `rank1` is 0.
        u1: InMap<bf16>,
        /// `[rows, rank2]`: `du` of the third projection. Ignored if `rank2` is 0.
        u2: InMap<bf16>,
        /// `[rank0, columns]`: `A` of the first projection. Ignored if `rank0` is 0.
        a0: InMap<bf16>,
        /// `[rank1, columns]`: `A` of the second projection. Ignored if `rank1` is 0.
        a1: InMap<bf16>,
        /// `[rank2, columns]`: `A` of the third projection. Ignored if `rank2` is 0.
        a2: InMap<bf16>,
        /// `[rows, columns]`: the gradient
        y: OutMap<bf16>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `y`, a multiple of 8.
        columns: u32,
        /// The number of outputs of the first projection, a multiple of 8 and at least 8.
        depth0: u32,
        /// The number of outputs of the second projection, a multiple of 8.
        depth1: u32,
        /// The number of outputs of the third projection, a multiple of 8.
        depth2: u32,
        /// The rank of the first adapter, a multiple of 8, or 0 without one.
        rank0: u32,
        /// The rank of the second adapter, a multiple of 8, or 0 without one.
        rank1: u32,
        /// The rank of the third adapter, a multiple of 8, or 0 without one.
        rank2: u32,
        /// The number of blocks: the number of the device's multiprocessors.
        blocks: u32,
        /// The matrix that the idle warps unpack.
        ahead: AheadArgs,
    }
}

/// Kernel of the gradient of the input of several projections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraSum {
    /// The tile of a block.
    pub tile: ProductTile,
}

/// The bytes of shared memory beside the ring: results leave through two tiles.
const BESIDE: u32 = GROUPS * Y.bytes();

impl LoraSum {
    /// Returns the tiles that the tensor maps copy: `x` for every left operand, `w` for weights,
    /// and `b` for `A`.
    pub fn map_tiles(&self) -> MapTiles {
        LoraLinear {
            form: MatmulLayout::Nn,
            tile: self.tile,
            bias: false,
            residual: false,
        }
        .map_tiles()
    }

    /// Checks a pair of operands, whose inner dimension may be 0.
    fn operands(
        &self,
        names: &str,
        a: &LoraSumArgs<Shape>,
        [left, right]: [usize; 2],
        inner: u32,
    ) -> Result<(), ShapeError> {
        let fit = |len: usize, other: u32| {
            inner == 0 || len as u64 == u64::from(inner) * u64::from(other)
        };
        self.require(inner.is_multiple_of(8) && fit(left, a.rows) && fit(right, a.columns), || {
            format!(
                "{names} are of {left}, {right} and {inner}; the last must be a multiple of 8, and \
                 the matrices as long as that times rows ({}) and columns ({})",
                a.rows, a.columns
            )
        })
    }
}

impl KernelDef for LoraSum {
    type Args<S: Side> = LoraSumArgs<S>;

    fn name(&self) -> String {
        format!("train_linear_sum_{}", self.tile.suffix())
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

    fn grid(&self, a: &LoraSumArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LoraSumArgs { columns, rows, .. } = a;
        self.range("rows", rows, 1, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.multiple("columns", columns, 8)?;
        self.range("depth0", a.depth0, 8, 1 << 24)?;
        let frozen = [
            (a.x0, a.w0, a.depth0),
            (a.x1, a.w1, a.depth1),
            (a.x2, a.w2, a.depth2),
        ];
        let adapters = [
            (a.u0, a.a0, a.rank0),
            (a.u1, a.a1, a.rank1),
            (a.u2, a.a2, a.rank2),
        ];
        for (i, [(x, w, depth), (u, b, rank)]) in frozen
            .into_iter()
            .zip(adapters)
            .map(<[_; 2]>::from)
            .enumerate()
        {
            self.operands(&format!("x{i}, w{i}, depth{i}"), a, [x, w], depth)?;
            self.operands(&format!("u{i}, a{i}, rank{i}"), a, [u, b], rank)?;
        }

        check_lengths! { self, a:
            y == rows * columns,
        }
        ahead::grid(self, &a.ahead, self.tile, [rows, columns], a.blocks, BESIDE)
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraSumArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let ahead = Ahead::new(k, a.ahead);
        let shape = OutputShape {
            rows: a.rows,
            columns: a.columns,
        };

        // Pairs with a depth of 0 have no steps, so one kernel serves two and three projections.
        let frozen = [
            (a.x0, a.w0, a.depth0),
            (a.x1, a.w1, a.depth1),
            (a.x2, a.w2, a.depth2),
        ];
        let adapters = [
            (a.u0, a.a0, a.rank0),
            (a.u1, a.a1, a.rank1),
            (a.u2, a.a2, a.rank2),
        ];
        let pairs = frozen
            .into_iter()
            .chain(adapters)
            .map(|(left, right, depth)| pair(MatmulLayout::Nn, self.tile, left, right, depth))
            .collect();
        let tiled = Tiled::new(k, memory, self.tile, BESIDE, shape, pairs, vec![]);
        let out = memory.at(self.tile.ring(BESIDE).memory());
        let finish = |leaving: &Leaving<'k>, summed: Summed<'_, 'k, bf16>| {
            let y = a.y.of(Y).at(out.row(leaving.group, Y.bytes()));
            for from in (0..self.tile.columns()).step_by(64) {
                k.section("train/linear/store_sum", "round and store 64 columns");
                leaving.store(
                    &[(y, &*summed.sums, from)],
                    [summed.column + from, summed.row],
                );
            }
        };
        tiled.run_with_idle(finish, Some(&|thread| ahead.run(thread)));
    }

    fn reference(&self, a: LoraSumArgs<Cpu<'_>>) {
        let mut y = vec![0.0; a.y.len()];
        let frozen = [
            (a.x0, a.w0, a.depth0),
            (a.x1, a.w1, a.depth1),
            (a.x2, a.w2, a.depth2),
        ];
        let adapters = [
            (a.u0, a.a0, a.rank0),
            (a.u1, a.a1, a.rank1),
            (a.u2, a.a2, a.rank2),
        ];
        for (x, w, _) in frozen
            .into_iter()
            .chain(adapters)
            .filter(|(.., depth)| *depth > 0)
        {
            nn(&wide(x), &wide(w), a.columns as usize, &mut y);
        }

        narrow(&y, a.y);
        ahead::reference(a.ahead);
    }
}

impl Variant for LoraSum {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |([rows, columns, blocks, n], depths, ranks): ([u32; 4], [u32; 3], [u32; 3])| {
            let mut random = Random(seed);
            let by_rows = |len: [u32; 3]| len.map(|len| [rows, len.max(8)]);
            let by_columns = |len: [u32; 3]| len.map(|len| [len.max(8), columns]);
            let shapes = [
                by_rows(depths),
                by_columns(depths),
                by_rows(ranks),
                by_columns(ranks),
                [[rows, columns]; 3],
            ];
            let shapes = shapes.into_iter().flatten().take(13);
            let mut args: Vec<CpuArg> = shapes.map(|shape| matrix(&mut random, shape)).collect();
            let lengths = [rows, columns]
                .into_iter()
                .chain(depths)
                .chain(ranks)
                .chain([blocks]);
            args.extend(lengths.map(CpuArg::scalar));
            args.extend(ahead::case(&mut random, n));
            let label = format!(
                "rows={rows} columns={columns} depths={depths:?} ranks={ranks:?} blocks={blocks} \
                 n={n}"
            );
            Case {
                label,
                args,
                bound: BOUND,
            }
        };
        let cases = [
            ([1, 8, 1, 0], [8, 0, 0], [0, 0, 0]),
            ([64, 72, 1, 192], [72, 200, 0], [16, 72, 0]),
            (
                [130, self.tile.columns() + 8, 2, 0],
                [136, 8, 72],
                [8, 0, 16],
            ),
        ];
        cases.map(case).into()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns] = [13, 14].map(|i| scalar(&args[i]));
        // The index in the last letter of a matrix's name gives the argument of its length.
        let length = |first: usize| {
            let index = param[1..]
                .parse::<usize>()
                .expect("each matrix but y is numbered");
            scalar(&args[first + index]).max(8)
        };
        Some(match &param[..1] {
            "x" => [rows, length(15)],
            "w" => [length(15), columns],
            "u" => [rows, length(18)],
            "a" => [length(18), columns],
            _ => [rows, columns],
        })
    }
}
