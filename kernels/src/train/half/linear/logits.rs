//! The logits `y = x W^T` in `f32`.

use super::operands::{BOUND, X, matrix, scalar};
use crate::harness::{Case, Variant};
use crate::shared::tiled::{OutputShape, Pair, ProductTile, Tiled};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::half::buffers::wide;
use crate::train::products::nt;
use ptx_gen::*;

args! {
    /// Arguments of [`Logits`].
    pub struct LogitsArgs {
        /// `[rows, depth]`: the input
        x: InMap<bf16>,
        /// `[columns, depth]`: the weight of the LM head
        w: InMap<bf16>,
        /// `[rows, columns]`: the logits
        y: Out<f32>,
        /// The number of tokens.
        rows: u32,
        /// The size of the vocabulary, a multiple of 2.
        columns: u32,
        /// The length of a row of `x`, a multiple of 8.
        depth: u32,
        /// The number of blocks: the number of the device's multiprocessors.
        blocks: u32,
    }
}

/// Kernel of the logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logits;

const TILE: ProductTile = ProductTile::ALL[0];

impl Logits {
    /// The tile that the tensor map of `x` copies.
    pub const X: TileOf<bf16> = X;
    /// The tile that the tensor map of `w` copies.
    pub const W: TileOf<bf16> = TILE.right(false);
}

impl KernelDef for Logits {
    type Args<S: Side> = LogitsArgs<S>;

    fn name(&self) -> String {
        "train_logits".into()
    }

    fn block(&self) -> u32 {
        TILE.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &LogitsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LogitsArgs {
            columns,
            depth,
            rows,
            ..
        } = a;
        self.range("rows", rows, 1, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.multiple("columns", columns, 2)?;
        self.multiple("depth", depth, 8)?;
        check_lengths! { self, a:
            x == rows * depth,
            w == columns * depth,
            y == rows * columns,
        }
        Ok(TILE.grid([rows, columns], a.blocks, 0))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LogitsArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let shape = OutputShape {
            rows: a.rows,
            columns: a.columns,
        };
        let left = a.x.of(X);
        let right = a.w.of(TILE.right(false));
        let pairs = vec![Pair {
            left,
            right,
            by_rows: false,
            depth: a.depth,
        }];
        let tiled = Tiled::new(k, memory, TILE, 0, shape, pairs, vec![]);
        tiled.run(|_, summed| {
            // Results are `f32` and twice as wide as the tiles for results, so they are stored from
            // registers.
            let lane = k.lane();
            let row = summed.row + ((k.tid() & 127) / 32 * 16 + (lane >> 2));
            let column = summed.column + (lane & 3) * 2;
            for eight in 0..TILE.columns() / 8 {
                if eight % 8 == 0 {
                    k.section("train/linear/store_logits", "store 64 columns");
                }
                for half in 0..2 {
                    let row = row + 8 * half;
                    let column = column + 8 * eight;
                    let at = (4 * eight + 2 * half) as usize;
                    k.when(row.lt(a.rows) & column.lt(a.columns), || {
                        a.y.at(row * a.columns + column)
                            .st2([0, 1].map(|i| summed.sums.0[at + i].get()));
                    });
                }
            }
        });
    }

    fn reference(&self, a: LogitsArgs<Cpu<'_>>) {
        let mut y = vec![0.0; a.y.len()];
        nt(&wide(a.x), &wide(a.w), a.depth as usize, &mut y);
        for (to, &y) in a.y.iter_mut().zip(&y) {
            *to = y as f32;
        }
    }
}

impl Variant for Logits {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, columns, depth, blocks]: [u32; 4]| {
            let mut random = Random(seed);
            let args = vec![
                matrix(&mut random, [rows, depth]),
                matrix(&mut random, [columns, depth]),
                CpuArg::F32(vec![0.0; (rows * columns) as usize]),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
                CpuArg::scalar(depth),
                CpuArg::scalar(blocks),
            ];
            let label = format!("rows={rows} columns={columns} depth={depth} blocks={blocks}");
            Case {
                label,
                args,
                bound: BOUND,
            }
        };
        [[1, 2, 8, 1], [130, 266, 136, 2]].map(case).into()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns, depth] = [3, 4, 5].map(|i| scalar(&args[i]));
        Some(if param == "x" {
            [rows, depth]
        } else {
            [columns, depth]
        })
    }
}
