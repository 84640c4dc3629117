//! The knowledge of kernels about a format, and about its tiles.

use super::activations::{ActivationBytes, Encoding};
use super::fields::bits::{Bits, Field};
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Fragment, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use crate::shared::Random;
use ptx_gen::*;

/// The size of a format's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// The type number in a GGUF file.
    pub(crate) ggml_type: u32,
    /// The number of weights.
    pub(crate) len: u32,
    /// The number of bytes.
    pub(crate) bytes: u32,
}

/// The number of loads that a GEMV has in flight.
#[derive(Clone, Copy)]
pub(crate) struct Loads {
    /// The number of fragments of each row that a lane loads per iteration.
    pub(crate) depth: u32,
    /// The number of resident blocks per SM: the maximum that leaves enough registers for these
    /// loads.
    pub(crate) blocks: u32,
}

/// The knowledge of kernels about a format.
pub(crate) trait BlockFormat: Sync {
    /// Returns the size of its blocks.
    fn block(&self) -> Block;

    /// Returns the fields of a block other than the codes of its weights.
    fn numbers(&self) -> Vec<Field>;

    /// Returns the bits of a field in a block. Each bit of a block belongs to one field.
    fn in_block(&self, field: Field) -> Bits;

    /// Returns weight `k` of a block, given the block's fields. This is the specification of the
    /// format.
    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32;

    /// Sets the scales of a block of random bits, so that its weights are about `-size` to `size`.
    /// `v` is a random value in that range.
    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random);

    /// Returns the division of a row among the lanes of a warp.
    fn split(&self) -> LaneSplit;

    /// Returns the fragment of `thread`. The low bits of `thread` are its index among the lanes
    /// that share a block.
    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k>;

    /// Returns the number of loads that a GEMV has in flight.
    fn loads(&self) -> Loads {
        match self.block().len {
            1 => Loads {
                depth: 4,
                blocks: 8,
            },
            32 => Loads {
                depth: 4,
                blocks: 5,
            },
            _ => Loads {
                depth: 2,
                blocks: 5,
            },
        }
    }

    /// Returns the format's tiles, or `None` if no kernel reads tiles of it.
    fn tiles(&self) -> Option<&dyn TileFormat>;
}

/// The knowledge of kernels about a format's tiles.
pub(crate) trait TileFormat: Sync {
    /// Returns the number of columns of a tile.
    fn columns(&self) -> u32 {
        256
    }

    /// Returns the encoding of activations for GEMVs with the tiles.
    fn encoding(&self) -> Encoding {
        Encoding::SplitInt8(ActivationBytes::Two)
    }

    /// Returns the bytes per activation, see
    /// [`Format::activation_bytes`](super::Format::activation_bytes).
    fn activation_bytes(&self) -> ActivationBytes {
        ActivationBytes::Two
    }

    /// Returns the number of adjacent columns that a lane holds: 16 or 32 that share a scale, or 8
    /// of 16-bit formats.
    fn group(&self) -> u32 {
        32
    }

    /// Returns the bits of a field in a tile, for row `r` and block `block` of that row. Each bit
    /// of a tile belongs to one field.
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits;

    /// Packs the lane's share of a tile.
    fn pack<'k>(&self, lane: &PackLane<'k>);

    /// Multiplies tile `kt` of a row by the activations of each token, and adds the results to the
    /// token's sums. The whole warp must call it.
    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: Ptr<'k, u8, Shared>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    );

    /// Returns the lane's codes of set `set` of 128 columns, in steps of four columns.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>>;

    /// Returns the values that codes stand for.
    fn values(&self) -> CodeValues;

    /// Returns the scales of the lane's groups in a tile, for the rows `g` and `g + 8`, times the
    /// rows' units. The result is empty if the format has no scales.
    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]>;

    /// Returns the number of weights of a [`RowFragment`].
    fn row_len(&self) -> u32 {
        16
    }

    /// Returns the weights of a fragment of a row.
    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>>;
}
