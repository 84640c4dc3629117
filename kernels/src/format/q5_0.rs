//! `Q5_0`: `d: f16, qh: u32, qs: [u8; 16]`, `w = d * (q - 16)`.
//!
//! A tile has the nibbles, the fifth bits, then `d` of each group of 32.

use super::bits::{Bits, Field, two};
use super::fragment::{Fragment, LaneSplit};
use super::legacy::{Legacy, Values};
use super::pack::PackLane;
use super::product::{RowSums, TileProduct, TilePtr};
use super::row::RowFragment;
use super::tile::halves_in_tile;
use super::unpack::{FIVE_LESS_16, halves};
use super::{Block, BlockFormat, Loads, TileFormat, f16_value, fifth_bits, nibbles, put_f16};
use crate::case::Random;
use ptx_gen::*;

const LAYOUT: Legacy = Legacy { ggml_type: 6, min: false, fifth: true };
/// `d` of each group in a tile.
const D: u32 = fifth_bits::AT + fifth_bits::BYTES;

#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q5_0;

impl BlockFormat for Q5_0 {
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
        f16_value(number(Field::D)) * (number(Field::Code(k)) as f32 - 16.0)
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 0, v / 16.0);
    }

    fn split(&self) -> LaneSplit {
        LAYOUT.split()
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        LAYOUT.fragment(thread, Values::Numbers(FIVE_LESS_16))
    }

    fn loads(&self) -> Loads {
        LAYOUT.loads()
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

impl TileFormat for Q5_0 {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let column = 32 * block + k;
                two(nibbles::in_tile(r, column), fifth_bits::in_tile(r, column))
            }
            _ => halves_in_tile(D, r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let fifth = [0, 1].map(|s| {
            let (words, d) = lane.halfword_blocks::<5>(rows, 22, s);
            lane.halves_of_nibbles(s, words.each_ref().map(|w| [w[1], w[2], w[3], w[4]]));
            lane.group_halves(D, s, d);
            words.map(|w| w[0])
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
        product.k.note("Q5_0: scales of a tile");
        let d = product.group_halves(tile, D).map(halves);
        for (item, rows) in (0..).zip(batch) {
            product.token();
            let sets = product.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b));
            for (set, d) in sets.iter().zip(d) {
                let offset = set.sum * -16.0;
                rows.iter_mut().zip(set.scaled()).zip(d).for_each(|((row, sum), d)| row.fma(sum + offset, d));
            }
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let d = row.half_of_group(D);
        row.codes(FIVE_LESS_16, row.five_bits()).into_iter().map(|q| q * d).collect()
    }
}
