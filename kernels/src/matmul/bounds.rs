//! Bounds of each row's weights, which the conversion to `f16` needs.

use super::load_tile::load_tile;
use crate::format::Format;
use crate::format::dequantize::SET;
use crate::format::fields::unpack::halves;
use crate::format::lanes::codes::{Affine, CodeValues, Codes};
use crate::format::lanes::multiply::{TileLane, number};
use crate::format::tile::{self, ROWS};
use crate::harness::{Case, Variant};
use crate::shared::reduce::{lanes_max, lanes_sum};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`RowBounds`].
    pub struct RowBoundsArgs {
        /// `[rows, n]`: the weights as tiles
        w: In<u8>,
        /// `[rows]`: for each row, in the order of the tiles, a power of two that brings its
        /// weights below 2^9 and its scales below 2^11. It is at most 2^15 for `f16` weights
        unit: Out<f32>,
        /// `[rows]`: the Euclidean length of each row
        length: Out<f32>,
        /// The number of rows of the matrix, a multiple of 16.
        rows: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
    }
}

/// Kernel that computes the bounds of rows, one row block per warp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowBounds {
    /// The format of the tiles.
    pub format: Format,
}

/// The exponent of the largest weights: they stay below 2^9, far from both ends of the range of
/// `f16`.
const EXPONENT: u32 = 8;

impl RowBounds {
    /// Returns the power of two of a row from the bound of its weights.
    pub(super) fn unit_of(self, largest: f32) -> f32 {
        let exponent = (largest.to_bits() >> 23) as i32;
        let most = self.largest_unit() as i32;
        f32::from_bits(((254 + EXPONENT as i32 - exponent).clamp(1, most) as u32) << 23)
    }

    /// Returns the biased exponent of the largest unit.
    fn largest_unit(self) -> u32 {
        match self.format {
            // These weights are multiplied in `f16`, where 2^16 is infinite and would make NaN of a
            // row of zeros. The smallest `f16` value times 2^15 is far from both ends of its range.
            Format::F16 => 127 + 15,
            // All other weights or their scales are multiplied in `f32`. The reciprocal of this
            // unit is normal.
            _ => 253,
        }
    }

    /// Adds a tile to the lane's largest weights and sums of squares of the rows `g` and `g + 8`.
    fn tile<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: Ptr<'k, u8, Shared>,
        rows: &mut [[Var<'k, f32>; 2]; 2],
    ) {
        let tiles = self.format.tiles();
        let scales = tiles.scales(lane, tile, [lane.k.val(1.0); 2]);

        // A scale must be finite in `f16` even if all its weights are zero.
        lane.k
            .section("matmul/bounds/scales", "a quarter of each scale");
        for group in &scales {
            for ([largest, _], affine) in rows.iter_mut().zip(group) {
                largest.set(largest.get().max(affine.factor().abs() * 0.25));
            }
        }

        for set in 0..tiles.columns() / SET {
            for (step, codes) in (8 * set..).zip(tiles.codes(lane, tile, set)) {
                lane.k.section(
                    "matmul/bounds/weights",
                    "weights of four columns of both rows",
                );
                let scales = scales.get((step / (tiles.group() / 4)) as usize);
                let weights = weights(tiles.values(), &codes, scales);
                for ([largest, squares], weights) in rows.iter_mut().zip(weights) {
                    for weight in weights {
                        largest.set(largest.get().max(weight.abs()));
                        squares.fma(weight, weight);
                    }
                }
            }
        }
    }
}

/// Returns the weights of four columns, of the rows `g` and `g + 8`.
fn weights<'k>(
    values: CodeValues,
    codes: &Codes<'k>,
    scales: Option<&[Affine<'k>; 2]>,
) -> [Vec<F32<'k>>; 2] {
    let four = |word: U32<'k>, r: usize| {
        let affine = scales.expect("codes have scales")[r];
        let (word, bias) = if values.signed {
            // Flipping the sign bits adds 128, so signed codes become unsigned codes with a bias.
            (word ^ 0x8080_8080, 128)
        } else {
            (word, values.bias)
        };
        let unit = 1.0 / (1 << values.shift) as f32;
        let less = -(bias as f32);
        let code = |byte| number(word, byte).fma(unit, less);
        affine.weights((0..4).map(code))
    };
    let pairs = |words: &[U32<'k>; 4], numbers: fn(U32<'k>) -> [F32<'k>; 2]| {
        [0, 1].map(|r| [numbers(words[r]), numbers(words[r + 2])].concat())
    };
    match codes {
        Codes::Nibbles(word) => [
            four(*word & 0x0f0f_0f0f, 0),
            four((*word >> 4) & 0x0f0f_0f0f, 1),
        ],
        Codes::Bytes([a, b]) => [four(*a, 0), four(*b, 1)],
        Codes::Binary16(words) => pairs(words, halves),
        Codes::Bfloat16(words) => pairs(words, |w| [(w << 16).bits(), (w & 0xffff_0000).bits()]),
    }
}

impl KernelDef for RowBounds {
    type Args<S: Side> = RowBoundsArgs<S>;

    fn name(&self) -> String {
        format!("row_bounds_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &RowBoundsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RowBoundsArgs { rows, .. } = a;
        let tile = tile::of(self.format);
        self.multiple("rows", rows, ROWS)?;
        self.multiple("n", a.n, tile.columns)?;
        check_lengths! { self, a:
            unit == rows,
            length == rows,
        }
        let tiles = (rows / ROWS) as usize * (a.n / tile.columns) as usize;
        self.exactly("w", a.w, tiles * tile.bytes as usize)?;
        Ok(Grid::line(rows / ROWS))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RowBoundsArgs<Dev<'k>>) {
        let size = tile::of(self.format);
        let memory = k.shared::<u8>("tile", size.bytes);
        let lane = TileLane::new(k, self.format.section_name());
        let mut rows = [[k.var(0.0), k.var(0.0)], [k.var(0.0), k.var(0.0)]];
        let tiles = a.n / size.columns;
        let first = a.w.row(k.ctaid() * tiles, size.bytes);
        k.for_each(0, tiles, 1, |column| {
            k.section("matmul/bounds/tile", "copy a tile to shared memory");
            load_tile(k, first.row(column, size.bytes), memory, size.bytes);
            self.tile(&lane, memory, &mut rows);
            // The next iteration overwrites the tile.
            k.warp_barrier();
        });

        k.section(
            "matmul/bounds/reduce",
            "reduce over the four lanes of a row",
        );
        let results = rows.map(|[largest, squares]| {
            let largest = lanes_max(3, largest.get());
            let squares = lanes_sum(3, squares.get());
            [largest, squares]
        });
        k.when((k.lane() & 3).eq(0), || {
            for (r, [largest, squares]) in (0..).zip(results) {
                let row = k.ctaid() * ROWS + (k.lane() >> 2) + 8 * r;
                let exponent = largest.bits::<u32>() >> 23;
                // `254 + EXPONENT - exponent` is the exponent of the unit.
                let inverse = exponent.min(254 + EXPONENT) * u32::MAX + (254 + EXPONENT);
                let unit = inverse.max(1).min(self.largest_unit()) << 23;
                a.unit.at(row).st(unit.bits::<f32>());
                a.length.at(row).st(squares.sqrt_rn());
            }
        });
    }

    fn reference(&self, a: RowBoundsArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (i, weights) in tile::dequantize(self.format, a.w, n).chunks(n).enumerate() {
            // Weights alone: no row of a case has a scale of four times its largest weight.
            let largest = weights
                .iter()
                .fold(0.0f32, |largest, w| largest.max(w.abs()));
            let squares = weights.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>();
            a.unit[i] = self.unit_of(largest);
            a.length[i] = squares.sqrt() as f32;
        }
    }
}

impl Variant for RowBounds {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let columns = tile::of(self.format).columns;
        let case = |(row_blocks, tiles, size): (u32, u32, f32)| {
            let rows = row_blocks * ROWS;
            let n = tiles * columns;
            let w = tile::random(
                self.format,
                (row_blocks * tiles) as usize,
                size,
                &mut Random(seed),
            );
            let zeros = vec![0.0; rows as usize];
            let args = vec![
                CpuArg::U8(w),
                CpuArg::F32(zeros.clone()),
                CpuArg::F32(zeros),
                CpuArg::scalar(rows),
                CpuArg::scalar(n),
            ];
            Case {
                label: format!("rows={rows} n={n} size={size:e}"),
                args,
                bound: 2e-6,
            }
        };
        [(1, 1, 0.5), (3, 2, 1e-3)].map(case).into()
    }
}
