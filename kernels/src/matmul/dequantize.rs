//! Dequantizes tiles to `f16` values in memory, to make the weights that the matmuls use visible to
//! tests.

use super::bounds::RowBounds;
use super::load_tile::load_tile;
use crate::format::Format;
use crate::format::dequantize::{ColumnOrder, Dequantizer, SET};
use crate::format::tile::{self, ROWS};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`DequantizeTiles`].
    pub struct DequantizeArgs {
        /// `[rows, n]`: the weights as tiles
        w: In<u8>,
        /// `[rows]`: the powers of two that rows are multiplied by, in the order of the tiles
        unit: In<f32>,
        /// `[rows, n]`: the weights, with rows in the order of the tiles and columns in
        /// [`ColumnOrder`]
        y: Out<f16>,
        /// The number of rows of the matrix, a multiple of 16.
        rows: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
    }
}

/// Kernel that dequantizes tiles, one per warp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DequantizeTiles {
    /// The format of the tiles.
    pub format: Format,
}

impl KernelDef for DequantizeTiles {
    type Args<S: Side> = DequantizeArgs<S>;

    fn name(&self) -> String {
        format!("dequantize_tiles_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &DequantizeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &DequantizeArgs { n, rows, .. } = a;
        let tile = tile::of(self.format);
        self.multiple("rows", rows, ROWS)?;
        self.multiple("n", n, tile.columns)?;
        check_lengths! { self, a:
            unit == rows,
            y == rows * n,
        }
        let tiles = (rows / ROWS) as usize * (n / tile.columns) as usize;
        self.exactly("w", a.w, tiles * tile.bytes as usize)?;
        Ok(Grid::plane(n / tile.columns, rows / ROWS))
    }

    fn program<'k>(&self, k: Builder<'k>, a: DequantizeArgs<Dev<'k>>) {
        let size = tile::of(self.format);

        k.section("matmul/dequantize/tile", "copy the tile to shared memory");
        let tile = k.shared::<u8>("tile", size.bytes);
        let row_block = k.ctaid_y();
        let row_tiles = a.n / size.columns;
        let index = row_block * row_tiles + k.ctaid();
        load_tile(k, a.w.row(index, size.bytes), tile, size.bytes);
        let g = k.lane() >> 2;
        let t = k.lane() & 3;
        let rows = [0, 8].map(|r| k.ctaid_y() * ROWS + g + r);
        let units = rows.map(|row| a.unit.at(row).ld());
        let w = Dequantizer::new(k, self.format, units);
        let scales = w.scales(tile);
        let first = k.ctaid() * size.columns + t * 2;
        for set in 0..w.sets() {
            for (step, codes) in (0..).zip(w.codes(tile, set)) {
                let LeftFragment(regs) = w.fragment(&codes, &scales, 8 * set + step);
                // Registers 0 and 1 are two columns of rows `g` and `g + 8`. Registers 2 and 3 are
                // the same rows, eight columns later.
                for (r, pair) in (0..).zip(regs) {
                    let column = first + (SET * set + 16 * step + r / 2 * 8);
                    let row = rows[r as usize % 2];
                    let to = a.y.at(row.mad(a.n, column)).cast::<u32>();
                    to.st(pair);
                }
            }
        }
    }

    fn reference(&self, a: DequantizeArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let order = ColumnOrder::of(self.format).expect("a format with a tile");
        let weights = tile::dequantize(self.format, a.w, n);
        for ((y, w), unit) in a.y.chunks_mut(n).zip(weights.chunks(n)).zip(a.unit) {
            for (k, w) in w.iter().enumerate() {
                y[order.slot(k as u32) as usize] = f16::from_f32(w * unit);
            }
        }
    }
}

impl Variant for DequantizeTiles {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let columns = tile::of(self.format).columns;
        let case = |(row_blocks, tiles, size): (u32, u32, f32)| {
            let mut random = Random(seed);
            let rows = row_blocks * ROWS;
            let n = tiles * columns;
            let w = tile::random(
                self.format,
                (row_blocks * tiles) as usize,
                size,
                &mut random,
            );
            // The units of RowBounds, or smaller ones.
            let bounds = RowBounds {
                format: self.format,
            };
            let unit = tile::dequantize(self.format, &w, n as usize)
                .chunks(n as usize)
                .map(|row| {
                    let largest = row.iter().fold(0.0f32, |most, w| most.max(w.abs()));
                    bounds.unit_of(largest) / f32::from(1u16 << random.below(7))
                })
                .collect();
            let y = vec![f16(0); (rows * n) as usize];
            let args = vec![
                CpuArg::U8(w),
                CpuArg::F32(unit),
                CpuArg::F16(y),
                CpuArg::scalar(rows),
                CpuArg::scalar(n),
            ];

            // The distance of the weights from the nearest `f16` values. Formats with offsets round
            // their scales and offsets, and the others round nothing.
            let bound = match self.format {
                Format::Q2_K | Format::Q4_K | Format::Q5_K => 5e-4,
                _ => 1e-6,
            };
            Case {
                label: format!("rows={rows} n={n} size={size:e}"),
                args,
                bound,
            }
        };
        [(1, 1, 0.5), (3, 2, 0.5), (1, 1, 1e-3), (1, 1, 0.0)]
            .map(case)
            .into()
    }
}
