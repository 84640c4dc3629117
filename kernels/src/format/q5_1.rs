//! `Q5_1`: `d, m: f16, qh: u32, qs: [u8; 16]`, `w = d * q + m`.
//!
//! A tile has the nibbles, the fifth bits, then `d` and then `m` of each group of 32.

use super::bits::{Bits, Field, two};
use super::fragment::{Fragment, LaneSplit};
use super::legacy::{Legacy, Values};
use super::pack::PackLane;
use super::product::{RowSums, TileProduct, TilePtr};
use super::row::RowFragment;
use super::tile::halves_in_tile;
use super::unpack::{FIVE, halves};
use super::{Block, BlockFormat, Loads, TileFormat, f16_value, fifth_bits, nibbles, put_f16};
use crate::case::Random;
use ptx_gen::*;

const LAYOUT: Legacy = Legacy { ggml_type: 7, min: true, fifth: true };
/// `d` of each group in a tile, then `m`.
const D: u32 = fifth_bits::AT + fifth_bits::BYTES;
const M: u32 = D + 256;

#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q5_1;

impl BlockFormat for Q5_1 {
    fn block(&self) -> Block {
        LAYOUT.block()
    }

    fn numbers(&self) -> Vec<Field> {
        LAYOUT.numbers()
    }

    fn in_block(&self, field: Field) -> Bits {
        LAYOUT.in_block(field)
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        f16_value(number(Field::D)) * number(Field::Code(k)) as f32 + f16_value(number(Field::Dmin))
    }

    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random) {
        put_f16(block, 0, v / 32.0);
        put_f16(block, 2, size * random.unit() / 2.0);
    }

    fn split(&self) -> LaneSplit {
        LAYOUT.split()
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        LAYOUT.fragment(thread, Values::Numbers(FIVE))
    }

    fn loads(&self) -> Loads {
        LAYOUT.loads()
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

impl TileFormat for Q5_1 {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let column = 32 * block + k;
                two(nibbles::in_tile(r, column), fifth_bits::in_tile(r, column))
            }
            Field::Dmin => halves_in_tile(M, r, block),
            _ => halves_in_tile(D, r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let fifth = [0, 1].map(|s| {
            let words = rows.map(|row| lane.word_blocks::<6>(row, 24, s));
            lane.halves_of_nibbles(s, words.each_ref().map(|w| [w[2], w[3], w[4], w[5]]));
            lane.group_halves(D, s, words[0][0].prmt(words[1][0], 0x5410));
            lane.group_halves(M, s, words[0][0].prmt(words[1][0], 0x7632));
            words.map(|w| w[1])
        });
        lane.fifth_bits_in_order(fifth);
    }

    fn multiply<'k>(
        &self,
        product: &TileProduct<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = product.five_bits(tile);
        product.k.note("Q5_1: scales of a tile");
        let d = product.group_halves(tile, D).map(halves);
        let m = product.group_halves(tile, M).map(halves);
        for (item, rows) in (0..).zip(batch) {
            product.token();
            let sets = product.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b));
            for ((set, d), m) in sets.iter().zip(d).zip(m) {
                for (r, (row, sum)) in rows.iter_mut().zip(set.scaled()).enumerate() {
                    row.fma(sum, d[r]);
                    row.fma(set.sum, m[r]);
                }
            }
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let d = row.half_of_group(D);
        let m = row.half_of_group(M);
        row.codes(FIVE, row.five_bits()).into_iter().map(|q| q.fma(d, m)).collect()
    }
}
