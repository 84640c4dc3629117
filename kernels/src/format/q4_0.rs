//! `Q4_0`: `d: f16, qs: [u8; 16]`, `w = d * (q - 8)`.
//!
//! A tile has the nibbles, then `d` of each group of 32.

use super::bits::{BitRange, Bits, Field, two};
use super::fragment::{Fragment, LaneSplit};
use super::legacy::{Legacy, Values};
use super::pack::PackLane;
use super::product::{RowSums, Set, TileProduct, TilePtr};
use super::row::RowFragment;
use super::tile::halves_in_tile;
use super::unpack::{NIBBLE_LESS_8, halves};
use super::{Block, BlockFormat, Loads, TileFormat, f16_value, nibbles, put_f16};
use crate::case::Random;
use ptx_gen::*;

const LAYOUT: Legacy = Legacy { ggml_type: 2, min: false, fifth: false };

#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q4_0;

impl BlockFormat for Q4_0 {
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
        f16_value(number(Field::D)) * (number(Field::Code(k)) as f32 - 8.0)
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 0, v / 8.0);
    }

    fn split(&self) -> LaneSplit {
        LAYOUT.split()
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        LAYOUT.fragment(thread, Values::Numbers(NIBBLE_LESS_8))
    }

    fn loads(&self) -> Loads {
        LAYOUT.loads()
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

impl TileFormat for Q4_0 {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, 32 * block + k), BitRange::NONE),
            _ => halves_in_tile(nibbles::BYTES, r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        for s in 0..2 {
            let (codes, d) = lane.halfword_blocks::<4>(rows, 18, s);
            lane.halves_of_nibbles(s, codes);
            lane.group_halves(nibbles::BYTES, s, d);
        }
    }

    fn multiply<'k>(
        &self,
        product: &TileProduct<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = product.nibbles(tile);
        let d = product.group_halves(tile, nibbles::BYTES).map(halves);
        for (item, rows) in (0..).zip(batch) {
            product.token();
            let sets = product.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b)).map(Set::separated);
            for (set, d) in sets.into_iter().zip(d) {
                let ([first, second], offset) = (set.scaled(), set.sum * -8.0);
                rows[0].fma(first + offset, d[0]);
                rows[1].fma(second.fma(0.0625, offset), d[1]);
            }
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let d = row.half_of_group(nibbles::BYTES);
        row.codes(NIBBLE_LESS_8, row.nibbles()).into_iter().map(|q| q * d).collect()
    }
}
