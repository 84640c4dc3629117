//! A projection with its adapter, or the gradient of its input.

use super::ahead::{self, Ahead, AheadArgs};
use super::operands::{BOUND, Operands, X, Y, matrix, scalar};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{GROUPS, Leaving, OutputShape, Pair, ProductTile, Summed, Tiled};
use crate::shared::{Contract, Random};
use crate::train::half::rows::unpack;
use crate::train::half::{narrow, wide};
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

    fn pairs<'k>(&self, a: &LoraLinearArgs<Dev<'k>>) -> Vec<Pair<'k, bf16>> {
        let by_rows = self.form == MatmulLayout::Nn;
        let of = |left: TensorArg<'k, bf16, ReadOnly>,
                  right: Tiles<'k, bf16, ReadOnly>,
                  by_rows,
                  depth| {
            Pair {
                left: left.of(X),
                right,
                by_rows,
                depth,
            }
        };
        vec![
            of(a.x, a.w.of(self.tile.right(by_rows)), by_rows, a.depth),
            of(a.u, a.b.of(self.tile.right(true)), true, a.rank),
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
                let word = residual
                    .as_ref()
                    .map(|all| all[(eight / 2) as usize][(eight % 2 * 2 + half) as usize]);
                let added = word.map(unpack);
                for (i, bias) in bias.iter().enumerate() {
                    let sum = &mut summed.sums.0[(from / 2 + 4 * eight + 2 * half) as usize + i];
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
        self.length(
            "bias",
            a.bias,
            "columns",
            &[if self.bias { a.columns } else { 0 }],
        )?;
        if self.residual {
            self.length(
                "residual",
                a.residual,
                "rows * columns",
                &[a.rows, a.columns],
            )?;
        }
        self.exactly("factor", a.factor, 1)?;
        self.length("y", a.y, "rows * columns", &[a.rows, a.columns])?;
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
        let case = |([rows, columns, depth, rank, blocks], n): ([u32; 5], u32)| {
            let mut random = Random(seed);
            let mut args = vec![
                matrix(&mut random, rows, depth),
                matrix(&mut random, columns, depth),
                matrix(&mut random, rows, rank.max(8)),
                matrix(&mut random, rank.max(8), columns),
                CpuArg::F32(random.units(if self.bias { columns as usize } else { 0 })),
                matrix(&mut random, rows, columns),
                CpuArg::F32(vec![0.5]),
                matrix(&mut random, rows, columns),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
                CpuArg::scalar(depth),
                CpuArg::scalar(rank),
                CpuArg::scalar(blocks),
            ];
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
        let [rows, columns, depth, rank] = [8, 9, 10, 11].map(|i| scalar(&args[i]));
        Some(match param {
            "x" => [rows, depth],
            "w" if self.form == MatmulLayout::Nt => [columns, depth],
            "w" => [depth, columns],
            "u" => [rows, rank.max(8)],
            "b" => [rank.max(8), columns],
            _ => [rows, columns],
        })
    }
}
