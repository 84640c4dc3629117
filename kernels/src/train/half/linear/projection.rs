//! A projection with its adapter, or the gradient of its input.

use super::ahead::{self, Ahead, AheadArgs};
use super::operands::{BOUND, Operands, ProjectionSizes, X, Y, matrix, pair};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{GROUPS, Leaving, OutputShape, Pair, ProductTile, Summed, Tiled};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::half::buffers::{narrow, wide};
use crate::train::half::rows::unpack;
use crate::train::products::{MatmulLayout, add_scaled, nn, nt};
use ptx_gen::*;

args! {
    /// Arguments of [`LoraLinear`].
    pub struct LoraLinearArgs {
        /// `[rows, depth]`: the input
        x: InMap<bf16>,
        /// `[columns, depth]` for NT, or `[depth, columns]` for NN: the weight
        w: InMap<bf16>,
        /// `[rows, rank]`: `u`. Ignored if `rank` is 0.
        u: InMap<bf16>,
        /// `[rank, columns]`: the adapter's matrix. Ignored if `rank` is 0.
        b: InMap<bf16>,
        /// `[columns]` if the kernel adds a bias, and empty otherwise
        bias: In<f32>,
        /// `[rows, columns]` if the kernel adds a residual, and ignored otherwise
        residual: InMap<bf16>,
        /// `[1]`: the factor of the matmuls. It is in memory, so that a captured graph stays valid
        /// when the factor of a batch changes.
        factor: In<f32>,
        /// `[rows, columns]`: the result
        y: OutMap<bf16>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `y`, a multiple of 8.
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

/// Kernel of a projection with its adapter, or of the gradient of its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraLinear {
    /// The layout of the weight: NT or NN.
    pub form: MatmulLayout,
    /// The tile of a block. The best one depends on the shape of `y` and on the number of the
    /// device's multiprocessors.
    pub tile: ProductTile,
    /// True if a bias is added.
    pub bias: bool,
    /// True if a residual is added.
    pub residual: bool,
}

/// The bytes of shared memory beside the ring: results leave through two tiles.
const BESIDE: u32 = GROUPS * Y.bytes();

/// The tiles that the tensor maps of a [`LoraLinear`] copy.
#[derive(Clone, Copy)]
pub struct MapTiles {
    /// The tile of `x` and `u`.
    pub x: TileOf<bf16>,
    /// The tile of `w`.
    pub w: TileOf<bf16>,
    /// The tile of `b`.
    pub b: TileOf<bf16>,
    /// The tile of `y` and the residual.
    pub y: TileOf<bf16>,
}

impl LoraLinear {
    /// Returns the tiles that the tensor maps copy.
    pub fn map_tiles(&self) -> MapTiles {
        MapTiles {
            x: X,
            w: self.tile.right(self.form == MatmulLayout::Nn),
            b: self.tile.right(true),
            y: Y,
        }
    }

    /// Returns the operands of the projection and of its adapter.
    fn pairs<'k>(&self, a: &LoraLinearArgs<Dev<'k>>) -> Vec<Pair<'k, bf16>> {
        vec![
            pair(self.form, self.tile, a.x, a.w, a.depth),
            pair(MatmulLayout::Nn, self.tile, a.u, a.b, a.rank),
        ]
    }

    /// Applies factor, bias and residual to 64 columns of sums, from `from` on, before they are
    /// rounded. A lane has pairs of columns of two rows.
    fn finish<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraLinearArgs<Dev<'k>>,
        summed: &mut Summed<'_, 'k, bf16>,
        from: u32,
    ) {
        let residual = self.residual.then(|| summed.extra());
        let factor = a.factor.ld();
        let column = summed.column + (k.lane() & 3) * 2;
        for eight in 0..8 {
            let column = column + (from + 8 * eight);
            let mut bias = [k.var(0.0), k.var(0.0)];

            // One pass adds everything, so that the result is rounded once.
            if self.bias {
                a.bias.at(column).ld2_if(column.lt(a.columns), &mut bias);
            }

            for half in 0..2 {
                // A lane has four words of the residual for each 16 columns: of both rows for the
                // first eight, then for the others.
                let sixteen = (eight / 2) as usize;
                let word = (eight % 2 * 2 + half) as usize;
                let added = residual.as_ref().map(|all| unpack(all[sixteen][word]));

                // And four sums for each eight columns: two of each row.
                let first = (from / 2 + 4 * eight + 2 * half) as usize;
                for (i, bias) in bias.iter().enumerate() {
                    let sum = &mut summed.sums.0[first + i];
                    let added = added.map_or_else(|| bias.get(), |added| bias.get() + added[i]);
                    sum.set(sum.get().fma(factor, added));
                }
            }
        }
    }
}

impl KernelDef for LoraLinear {
    type Args<S: Side> = LoraLinearArgs<S>;

    fn name(&self) -> String {
        let form = if self.form == MatmulLayout::Nn {
            "nn"
        } else {
            "nt"
        };
        let bias = if self.bias { "_bias" } else { "" };
        let residual = if self.residual { "_residual" } else { "" };
        format!("train_linear_{form}_{}{bias}{residual}", self.tile.suffix())
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

    fn grid(&self, a: &LoraLinearArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(self.form != MatmulLayout::Tn, || {
            "the kernel's form is TN, must be NT or NN".into()
        })?;
        let LoraLinearArgs {
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
        let bias = if self.bias { a.columns } else { 0 };
        self.length("bias", a.bias, "columns", &[bias])?;
        if self.residual {
            check_lengths! { self, a:
                residual == rows * columns,
            }
        }

        self.exactly("factor", a.factor, 1)?;
        check_lengths! { self, a:
            y == rows * columns,
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

    fn program<'k>(&self, k: Builder<'k>, a: LoraLinearArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let ahead = Ahead::new(k, a.ahead);
        let shape = OutputShape {
            rows: a.rows,
            columns: a.columns,
        };
        let residual = vec![a.residual.of(X)];
        let residual = if self.residual { residual } else { vec![] };
        let tiled = Tiled::new(
            k,
            memory,
            self.tile,
            BESIDE,
            shape,
            self.pairs(&a),
            residual,
        );
        let out = memory.at(self.tile.ring(BESIDE).memory());
        let finish = |leaving: &Leaving<'k>, mut summed: Summed<'_, 'k, bf16>| {
            let y = a.y.of(Y).at(out.row(leaving.group, Y.bytes()));
            // A tile of results has 64 columns, which are the 128 bytes of the swizzle.
            for from in (0..self.tile.columns()).step_by(64) {
                k.section(
                    "train/linear/store",
                    "factor, bias and residual of 64 columns; round and store them",
                );
                self.finish(k, &a, &mut summed, from);
                leaving.store(
                    &[(y, &*summed.sums, from)],
                    [summed.column + from, summed.row],
                );
            }
        };
        tiled.run_with_idle(finish, Some(&|thread| ahead.run(thread)));
    }

    fn reference(&self, a: LoraLinearArgs<Cpu<'_>>) {
        let columns = a.columns as usize;
        let depth = a.depth as usize;
        let rank = a.rank as usize;
        let mut y = vec![0.0; a.rows as usize * columns];
        let x = wide(a.x);
        let w = wide(a.w);
        match self.form {
            MatmulLayout::Nt => nt(&x, &w, depth, &mut y),
            _ => nn(&x, &w, columns, &mut y),
        }

        if rank > 0 {
            nn(&wide(a.u), &wide(a.b), columns, &mut y);
        }
        for y in &mut y {
            *y *= f64::from(a.factor[0]);
        }

        // The bias is empty if the kernel adds none.
        let bias: Vec<f64> = a.bias.iter().copied().map(f64::from).collect();
        for y in y.chunks_exact_mut(columns) {
            add_scaled(1.0, &bias, y);
        }
        if self.residual {
            add_scaled(1.0, &wide(a.residual), &mut y);
        }

        narrow(&y, a.y);
        ahead::reference(a.ahead);
    }
}

impl Variant for LoraLinear {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(sizes, n): ([u32; 5], u32)| {
            let sizes = ProjectionSizes::new(sizes);
            let mut random = Random(seed);
            let operands = sizes.operands(self.form);
            let mut args: Vec<_> = operands.map(|shape| matrix(&mut random, shape)).into();
            let [_, columns] = sizes.result();
            let bias = if self.bias { columns as usize } else { 0 };
            args.extend([
                CpuArg::F32(random.units(bias)),
                matrix(&mut random, sizes.result()),
                CpuArg::F32(vec![0.5]),
                matrix(&mut random, sizes.result()),
            ]);
            args.extend(sizes.scalars());
            args.extend(ahead::case(&mut random, n));
            Case {
                label: sizes.label(n),
                args,
                bound: BOUND,
            }
        };
        let mut cases = vec![([1, 8, 8, 0, 1], 0), ([64, 72, 200, 72, 1], 192)];
        if self.tile.columns() == 64 {
            // One tile for two blocks, whose idle threads make several rounds.
            cases.push(([1, 8, 8, 0, 2], 64_000));
        }

        if self.tile.cluster() == 2 {
            // Two pairs of blocks, of which one pair has no tile.
            cases.push(([1, 8, 8, 0, 4], 6_400));
        }

        if self.tile.columns() == 128 {
            cases.push(([130, 136, 136, 8, 2], 0));
        }

        if self.tile.columns() == 256 && !self.bias && !self.residual {
            // Two bands of rows, of which the last is short, and a block with several tiles.
            cases.push(([1100, self.tile.columns() + 8, 8, 0, 3], 0));
        }

        cases.into_iter().map(case).collect()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let sizes = ProjectionSizes::of_args(args, 8);
        Some(sizes.of_param(param, self.form, "b"))
    }
}
