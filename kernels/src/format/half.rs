//! `F16` and `BF16`: IEEE binary16 and bfloat16. A block is a single value.
//!
//! A tile has 128 columns. Word `x` of a lane holds two adjacent columns of a row.

use super::activations::Encoding;
use super::fields::bits::{Bits, Field, one};
use super::fields::layout::{lane, word};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::unpack::halves;
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Fragment, LaneSplit, Unquantized};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// One of the two formats.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Half {
    F16,
    BF16,
}

impl BlockFormat for Half {
    fn block(&self) -> Block {
        let ggml_type = if *self == Half::F16 { 1 } else { 30 };
        Block {
            ggml_type,
            len: 1,
            bytes: 2,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        Vec::new()
    }

    fn in_block(&self, _: Field) -> Bits {
        one(0, 0, 16)
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let bits = number(Field::Code(k));
        match self {
            Half::F16 => f16_value(bits),
            Half::BF16 => f32::from_bits(bits << 16),
        }
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        match self {
            Half::F16 => put_f16(block, 0, v),
            Half::BF16 => block.copy_from_slice(&bf16::from_f32(v).0.to_le_bytes()),
        }
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 4,
            bytes: 8,
            lanes: 1,
            float4s: &[0],
        }
    }

    fn fragment<'k>(&self, k: Builder<'k>, _: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        let load = |at: Ptr<'k, u8, ReadOnly>| at.stream().cast::<u32>().ld2().into();
        let half = *self;
        Box::new(Unquantized {
            first: k.val(0),
            load,
            unpack: move |words: &[U32<'k>]| half.unpack(words),
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

impl Half {
    /// Converts words of two values each to floats.
    fn unpack<'k>(self, words: &[U32<'k>]) -> Vec<F32<'k>> {
        let pair = |&w: &U32<'k>| match self {
            Half::F16 => halves(w),
            Half::BF16 => [(w << 16).bits(), (w & 0xffff_0000).bits()],
        };
        words.iter().flat_map(pair).collect()
    }
}

impl TileFormat for Half {
    fn columns(&self) -> u32 {
        128
    }

    fn encoding(&self) -> Encoding {
        if *self == Half::F16 {
            Encoding::F16
        } else {
            Encoding::Bf16
        }
    }

    fn in_tile(&self, r: usize, k: usize, _: Field) -> Bits {
        // A lane has eight adjacent columns of each 32: two steps, in which two pairs of columns of
        // two rows are the registers of an A fragment.
        let x = 8 * (k / 32) + 4 * (k / 4 % 2) + 2 * (k / 2 % 2) + r / 8;
        one(word(x, lane(r, k / 8)) + 2 * (k % 2), 0, 16)
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        for c in 0..4 {
            let [a, b] = rows.map(|row| row.at(64 * c).row(lane.t, 16).cast::<u32>().ld4());
            lane.words(2 * c, [a[0], b[0], a[1], b[1]]);
            lane.words(2 * c + 1, [a[2], b[2], a[3], b[3]]);
        }
    }

    fn group(&self) -> u32 {
        8
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, _: u32) -> Vec<Codes<'k>> {
        let codes = |words| {
            if *self == Half::F16 {
                Codes::Binary16(words)
            } else {
                Codes::Bfloat16(words)
            }
        };
        (0..8).map(|c| codes(lane.words(tile, c))).collect()
    }

    fn values(&self) -> CodeValues {
        CodeValues::signed(0)
    }

    fn scales<'k>(&self, _: &TileLane<'k>, _: TilePtr<'k>, _: Units<'k>) -> Vec<[Affine<'k>; 2]> {
        Vec::new()
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: Ptr<'k, u8, Shared>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let words: [_; 8] = from_fn(|c| multiplier.words(tile, c as u32));
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let x = multiplier.x(kt, item);

            // Two sums alternate, so that a matrix instruction does not wait for the previous one.
            let mut sums: [Sums<f32>; 2] = from_fn(|_| Sums::zero(multiplier.k));
            for c in 0..4 {
                let quad = multiplier.quad(x.at(128 * c as u32));
                for u in 0..2 {
                    let a = LeftFragment(words[2 * c + u]);
                    let b = RightFragment([&quad[2 * u], &quad[2 * u + 1]]);
                    match self {
                        Half::F16 => sums[u].add_f16(a, b),
                        Half::BF16 => sums[u].add_bf16(a, b),
                    }
                }
            }

            let scale =
                (*self == Half::F16).then(|| multiplier.side(kt, 4, item).cast::<f32>().ld());
            for (r, row) in rows.iter_mut().enumerate() {
                // The columns of the rounded values and of the residuals add up to the activations.
                let of_columns = |s: &Sums<'k, f32>| s.0[2 * r].get() + &s.0[2 * r + 1];
                let [even, odd] = sums.each_ref().map(of_columns);
                let sum = even + odd;
                match scale {
                    Some(scale) => row.fma(sum, scale),
                    None => *row += sum,
                }
            }
        }
    }

    fn row_len(&self) -> u32 {
        4
    }

    /// Returns the weights of fragment `8 c + 2 t + u`.
    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let c = ((row.index >> 3) << 1) | (row.index & 1);
        let words = row.words(c, row.lane((row.index >> 1) & 3)).at(row.second);
        self.unpack(&[words.ld(), words.at(2).ld()])
    }
}
