//! `Q4_K`: `d, dmin: f16, scales: [u8; 12], qs: [u8; 128]`, `w = d * scale * q - dmin * min`.
//!
//! Each 32 bytes of `qs` hold 64 weights: the first 32 in the low nibbles, the next 32 in the high
//! nibbles. A tile has the nibbles, then the scales.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::k_scales::{self, LaneScales, TileScales};
use super::fields::nibbles;
use super::fields::unpack::{NIBBLE, NIBBLE_LESS_8, bytes, split};
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, Set, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;

/// The offset of the scales in a tile.
const SCALES: u32 = nibbles::BYTES;

/// The format `Q4_K`.
#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q4_K;

impl BlockFormat for Q4_K {
    fn block(&self) -> Block {
        Block {
            ggml_type: 12,
            len: 256,
            bytes: 144,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        k_scales::numbers()
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => one(16 + 32 * (k / 64) + k % 32, 4 * (k / 32 % 2), 4),
            _ => k_scales::in_block(field),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        k_scales::weight(k / 32, number, Field::Code(k))
    }

    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random) {
        k_scales::scale(block, 16.0, v, size, random);
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 256,
            bytes: 144,
            lanes: 16,
            float4s: &[0, 4, 32, 36],
        }
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(EightBytes::new(thread & 15))
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A fragment of eight bytes of 32. The low nibbles are in one group, and the high nibbles in the
/// next.
pub(super) struct EightBytes<'k> {
    pub(super) lane: U32<'k>,
    pub(super) scales: LaneScales<'k>,
}

impl<'k> EightBytes<'k> {
    /// Creates the fragment of a lane.
    pub(super) fn new(lane: U32<'k>) -> Self {
        EightBytes {
            lane,
            scales: LaneScales::new(lane >> 2),
        }
    }
}

impl<'k> Fragment<'k> for EightBytes<'k> {
    /// Returns the first weight. The 64 weights of the pair of groups start at `64 (lane / 4)`, and
    /// the lane's eight `8 (lane % 4)` later.
    fn first(&self) -> U32<'k> {
        (self.lane + (self.lane & 12)) << 3
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 8)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = addresses[0].at(bytes).cast::<u32>().ld4();
        let codes = addresses[1].at(bytes + 16).stream().cast::<u32>().ld2();
        [&header[..], &codes].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, s0, s1, s2, low, high] = words else {
            unreachable!("six words are loaded")
        };
        let codes = [split(low), split(high)];
        let q = |at| codes.iter().flat_map(|&w| bytes(NIBBLE, w, at)).collect();
        self.scales.groups([d, s0, s1, s2], [q(0), q(4)])
    }
}

impl TileFormat for Q4_K {
    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, k), BitRange::NONE),
            _ => k_scales::in_tile(SCALES, r, field),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let header = rows.map(|row| row.cast::<u32>().ld4());
        for s in 0..2 {
            lane.nibbles_k(rows.map(|row| row.at(16)), s);
        }
        lane.scales_k(SCALES, header);
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        lane.nibble_codes(tile, set)
    }

    fn values(&self) -> CodeValues {
        NIBBLE_LESS_8.into()
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        TileScales::load(lane, tile, SCALES).affine(self.values(), unit)
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = multiplier.nibbles(tile);
        let scales = TileScales::load(multiplier, tile, SCALES);

        // The separated sums of row `g + 8` count 16 per unit of its codes.
        let scales = TileScales {
            d: [scales.d[0], scales.d[1] * 0.0625],
            ..scales
        };
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let sets = multiplier.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b));
            scales.apply(rows, &sets.map(Set::separated));
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        row.scaled_k(SCALES, row.codes(NIBBLE, row.nibbles()))
    }
}
