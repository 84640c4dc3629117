//! `IQ4_NL`: `d: f16, qs: [u8; 16]`, `w = d * table[q]`, the blocks of Q4_0 with codes that are indices into a table of
//! 16 bytes.
//!
//! A tile has the nibbles, then `d` of each group of 32.

use super::bits::{BitRange, Bits, Field, two};
use super::fragment::{Fragment, LaneSplit};
use super::legacy::{Legacy, Values};
use super::lookup::IQ4;
use super::pack::PackLane;
use super::product::{RowSums, TileProduct, TilePtr};
use super::row::RowFragment;
use super::tile::halves_in_tile;
use super::unpack::halves;
use super::{Block, BlockFormat, Loads, TileFormat, f16_value, nibbles, put_f16};
use crate::case::Random;
use ptx_gen::*;

const LAYOUT: Legacy = Legacy { ggml_type: 20, min: false, fifth: false };
/// `d` of each group in a tile.
const D: u32 = nibbles::BYTES;

#[allow(non_camel_case_types)] // ggml's name
pub(super) struct IQ4_NL;

impl BlockFormat for IQ4_NL {
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
        f16_value(number(Field::D)) * IQ4.value(number(Field::Code(k)))
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 0, v / 128.0);
    }

    fn split(&self) -> LaneSplit {
        LAYOUT.split()
    }

    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        LAYOUT.fragment(thread, Values::Table(IQ4.load(k)))
    }

    fn loads(&self) -> Loads {
        LAYOUT.loads()
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

impl TileFormat for IQ4_NL {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, 32 * block + k), BitRange::NONE),
            _ => halves_in_tile(D, r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        for s in 0..2 {
            let (codes, d) = lane.halfword_blocks::<4>(rows, 18, s);
            lane.halves_of_nibbles(s, codes);
            lane.group_halves(D, s, d);
        }
    }

    fn multiply<'k>(
        &self,
        product: &TileProduct<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = product.entries(tile, &IQ4);
        product.k.note("IQ4_NL: scales of a tile");
        let d = product.group_halves(tile, D).map(halves);
        product.multiply_entries(&codes, d, kt, batch);
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let d = row.half_of_group(D);
        row.entries(&IQ4).into_iter().map(|q| q * d).collect()
    }
}
