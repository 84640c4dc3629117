//! `MXFP4`: `e: u8, qs: [u8; 16]`, `w = 2^(e - 127) * q`. A block has 32 four-bit floats (E2M1)
//! under one power of two (E8M0), as the OCP Microscaling Formats (MX) Specification v1.0 defines
//! them. The low nibbles are the first 16 weights.
//!
//! Like ggml, the table has twice the values, which are integers, and the scale is half the power
//! of two (`ggml_e8m0_to_fp32_half`). As in ggml, an exponent of 255 is 2^127 instead of NaN. A
//! tile has the nibbles, then `e` of each group of 32.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::layout::lane;
use super::fields::lookup::{Lookup, Table};
use super::fields::nibbles;
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;

/// Twice the values of E2M1.
const E2M1: Lookup = Lookup([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);
/// The offset of the groups' exponents `e` in a tile.
const E: u32 = nibbles::BYTES;

/// The format `MXFP4`.
pub(super) struct MXFP4;

impl BlockFormat for MXFP4 {
    fn block(&self) -> Block {
        Block {
            ggml_type: 39,
            len: 32,
            bytes: 17,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        vec![Field::D]
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => one(1 + k % 16, 4 * (k / 16), 4),
            _ => one(0, 0, 8),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let half = match number(Field::D) {
            e @ ..2 => 0x0020_0000 << e,
            e => (e - 1) << 23,
        };
        f32::from_bits(half) * E2M1.value(number(Field::Code(k)))
    }

    /// Sets the power of two at or below a sixteenth of `v`, because the largest code is 12.
    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        block[0] = ((v / 16.0).abs().to_bits() >> 23) as u8 + 1;
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 32,
            bytes: 17,
            lanes: 4,
            float4s: &[0, 16],
        }
    }

    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(FourBytes {
            lane: thread & 3,
            table: E2M1.load(k),
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// Returns half the power of two, `2^(e - 128)`, from the low byte. Below 2^-126 it is a subnormal
/// number.
fn half_power<'k>(e: U32<'k>) -> F32<'k> {
    let subnormal = e
        .lt(2)
        .select((e & 1).mad(0x0020_0000, 0x0020_0000), (e - 1) << 23);
    subnormal.bits()
}

/// A fragment of four bytes of 16. Blocks have 17 bytes, so only bytes are aligned.
struct FourBytes<'k> {
    lane: U32<'k>,
    table: Table<'k>,
}

impl<'k> Fragment<'k> for FourBytes<'k> {
    fn first(&self) -> U32<'k> {
        self.lane << 2
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 4)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let codes = (1..5).map(|i| addresses[1].at(bytes + i).ld());
        [addresses[0].at(bytes).ld()]
            .into_iter()
            .chain(codes)
            .collect()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[e, a, b, c, d] = words else {
            unreachable!("five bytes are loaded")
        };

        let nibbles = a.prmt(b, 0x0040).prmt(c.prmt(d, 0x0040), 0x5410);
        let power = half_power(e);
        let group = |half: u32| {
            let q = self.table.numbers(nibbles >> (4 * half)).into();
            Group {
                q,
                scale: Some(power),
                offset: None,
            }
        };
        vec![group(0), group(1)]
    }
}

impl TileFormat for MXFP4 {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, 32 * block + k), BitRange::NONE),
            _ => one(
                E as usize + 4 * lane(r, block) + 2 * (block / 4) + r / 8,
                0,
                8,
            ),
        }
    }

    /// Packs the lane's blocks. The block of group `4 s + t` starts at byte `t` of the word at `68
    /// s + 16 t`.
    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();

        // A block has 17 bytes, so block `t` starts at byte `t` of a word and its codes one byte
        // later. Each word of codes is joined from two words.
        let codes = lane.t.mad(0x1111, 0x4321);
        let powers = [0, 1].map(|s| {
            let words = rows.map(|row| {
                let words = row.at(68 * s).row(lane.t, 16).cast::<u32>();
                [0, 1, 2, 3, 4].map(|i| words.at(i).ld())
            });
            let nibbles = words
                .each_ref()
                .map(|w| [0, 1, 2, 3].map(|i| w[i].prmt(w[i + 1], codes)));
            lane.halves_of_nibbles(s, nibbles);
            words[0][0].prmt(words[1][0], lane.t.mad(0x11, 0x40))
        });
        lane.tile
            .at(E)
            .row(lane.lane, 4)
            .cast::<u32>()
            .st(powers[0].prmt(powers[1], 0x5410));
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        lane.entry_codes(tile, &E2M1, set)
    }

    fn values(&self) -> CodeValues {
        CodeValues::signed(12)
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let powers = tile.at(lane.lane * 4).at(E).cast::<u32>().ld();
        let row = |s: u32, r: u32| {
            Affine::Scale(half_power(powers.bfe(16 * s + 8 * r, 8)) * unit[r as usize])
        };
        [0, 1].map(|s| [0, 1].map(|r| row(s, r))).into()
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = multiplier.entries(tile, &E2M1);
        multiplier
            .k
            .section("format/mxfp4/tile_scales", "MXFP4: scales of a tile");
        let powers = tile.at(multiplier.lane * 4).at(E).cast::<u32>().ld();
        let power = |byte: u32| half_power(powers.bfe(8 * byte, 8));
        let d = [0, 1].map(|s| [power(2 * s), power(2 * s + 1)]);
        multiplier.multiply_entries(&codes, d, kt, batch);
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let at = row
            .tile
            .at(E)
            .row(row.group_lane(), 4)
            .row(row.index >> 3, 2);
        let power = half_power(at.at(row.second).ld());
        row.entries(&E2M1).into_iter().map(|q| q * power).collect()
    }
}
