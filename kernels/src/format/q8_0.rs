//! `Q8_0`: `d: f16, qs: [i8; 32]`, `w = d * q`.
//!
//! A tile has the bytes, then `d` of each group of 32.

use super::fields::bits::{Bits, Field, one};
use super::fields::layout::{halves_in_tile, lane, word};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::unpack::{BYTE, halfword, halves};
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, Loads, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The bytes of a tile's codes.
const CODES: u32 = 4096;

/// The format `Q8_0`.
#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q8_0;

impl BlockFormat for Q8_0 {
    fn block(&self) -> Block {
        Block {
            ggml_type: 8,
            len: 32,
            bytes: 34,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        vec![Field::D]
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => one(2 + k, 0, 8),
            _ => one(0, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        f16_value(number(Field::D)) * f32::from(number(Field::Code(k)) as u8 as i8)
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 0, v / 128.0);
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 32,
            bytes: 34,
            lanes: 8,
            float4s: &[0],
        }
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(FourBytes {
            first: (thread & 7) << 2,
        })
    }

    fn loads(&self) -> Loads {
        Loads {
            depth: 4,
            blocks: 8,
        }
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A fragment of four bytes of 32, and their scale. Blocks have 34 bytes, so only halfwords are
/// aligned.
struct FourBytes<'k> {
    first: U32<'k>,
}

impl<'k> Fragment<'k> for FourBytes<'k> {
    fn first(&self) -> U32<'k> {
        self.first
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.at(self.first)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        vec![
            halfword(addresses[0], bytes),
            halfword(addresses[1], bytes + 2),
            halfword(addresses[1], bytes + 4),
        ]
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, q01, q23] = words else {
            unreachable!("three words are loaded")
        };
        let q = [q01, q23]
            .into_iter()
            .flat_map(|w| [BYTE.at(w, 0), BYTE.at(w, 8)])
            .collect();
        vec![Group {
            q,
            scale: Some(halves(d)[0]),
            offset: None,
        }]
    }
}

impl TileFormat for Q8_0 {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let x = 16 * (block / 4) + 4 * (k / 8) + 2 * (k / 4 % 2) + r / 8;
                one(word(x, lane(r, block)) + k % 4, 0, 8)
            }
            _ => halves_in_tile(CODES, r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        for s in 0..2 {
            let ([a, b], d) = lane.halfword_blocks(rows, 34, 8, s);
            for (i, (a, b)) in (0..).zip(a.chunks(2).zip(b.chunks(2))) {
                lane.words(4 * s + i, [a[0], b[0], a[1], b[1]]);
            }
            lane.group_halves(CODES, s, d);
        }
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        let two = |i| {
            let [a, b, c, d] = lane.words(tile, 4 * set + i);
            [Codes::Bytes([a, b]), Codes::Bytes([c, d])]
        };
        (0..4).flat_map(two).collect()
    }

    fn values(&self) -> CodeValues {
        CodeValues::signed(128)
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let d = lane.two_words(tile, CODES).map(halves);
        d.map(|rows| [0, 1].map(|r| Affine::Scale(rows[r] * unit[r])))
            .into()
    }

    /// Multiplies a tile, one set at a time, because both sets would need too many registers for
    /// the whole batch.
    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let d = multiplier.two_words(tile, CODES).map(halves);
        for (s, d) in (0..).zip(d) {
            let codes = from_fn(|i| multiplier.words(tile, 4 * s + i as u32));
            for (item, rows) in (0..).zip(&mut *batch) {
                multiplier.token();
                let token = multiplier.of_token(kt, item);
                let set = multiplier.set(token, s, &codes, |sums, a, b| sums.add_i8(a, b));
                for ((row, sum), d) in rows.iter_mut().zip(set.scaled()).zip(d) {
                    row.fma(sum, d);
                }
            }
        }
    }

    fn row_len(&self) -> u32 {
        8
    }

    /// Returns the weights of fragment `16 s + 4 t + i`.
    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let s = row.index >> 4;
        let lane = row.lane((row.index >> 2) & 3);
        let words = row.words(s.mad(4, row.index & 3), lane).at(row.second);
        let d = row.half(CODES, lane.mad(2, s), 4);
        row.codes(BYTE, [words.ld(), words.at(2).ld()])
            .into_iter()
            .map(|q| q * d)
            .collect()
    }
}
