//! The formats of weights: the meaning of a file's bytes, the way the simple kernels read them, and
//! their layout in tiles.
//!
//! Each format is one file with all the knowledge that kernels have of it, and one row of the table
//! below. As data, it states which bits of a block belong to which field (`BlockFormat::in_block`),
//! and where the field is in a tile (`TileFormat::in_tile`). All CPU code follows from these two:
//! [`Format::dequantize`], which is the specification of the kernels, [`tile::pack`] and
//! [`tile::dequantize`]. The programs of a format load and unpack the same bits:
//!
//! - a fragment of a row (`fragment.rs`),
//! - a row into a tile (`pack.rs`),
//! - a tile times activations (`multiply.rs`),
//! - a row of a tile (`row.rs`).
//!
//! A row of a matrix is a whole number of blocks. Names, type numbers and layouts are ggml's:
//! `ggml.h`, `block_q4_0` and its like in `ggml-common.h`, and `dequantize_row_q4_0` and its like
//! in `ggml-quants.c`.

pub mod activations;
pub(crate) mod bits;
pub mod dequantize;
pub(crate) mod fragment;
pub(crate) mod multiply;
pub(crate) mod pack;
pub(crate) mod row;
pub mod tile;
pub(crate) mod unpack;

// Shared by several formats.
mod fifth_bits;
mod k_scales;
mod legacy;
mod lookup;
mod nibbles;
mod sixteens;
mod two_bits;

// The formats.
mod f32;
mod half;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

use crate::case::Random;
use activations::{ActivationBytes, Encoding};
use bits::{Bits, Field, get};
use dequantize::{Affine, CodeValues, Codes, Units};
use fragment::{Fragment, LaneSplit};
use multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use pack::PackLane;
use ptx_gen::*;
use row::RowFragment;

/// The table of formats: name, and the value that describes it.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident = $of:expr;)*) => {
        /// How the weights of a row are stored.
        #[allow(non_camel_case_types)] // ggml's names
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Format {
            $($(#[$doc])* $name,)*
        }

        impl Format {
            /// Every format.
            pub const ALL: [Format; [$(Format::$name),*].len()] = [$(Format::$name),*];

            /// Returns ggml's name, for example `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Format::$name => stringify!($name),)*
                }
            }

            /// Returns the identifier of a section that exists once for each format.
            pub(crate) fn section(self, part: &str) -> String {
                format!("format/{}/{part}", self.name().to_lowercase())
            }

            pub(crate) fn of(self) -> &'static dyn BlockFormat {
                match self {
                    $(Format::$name => &$of,)*
                }
            }
        }
    };
}

formats! {
    /// IEEE binary32.
    F32 = f32::Binary32;
    /// IEEE binary16.
    F16 = half::Half::F16;
    /// bfloat16.
    BF16 = half::Half::BF16;
    /// 32 four-bit weights under one scale.
    Q4_0 = q4_0::Q4_0;
    /// 32 four-bit weights with a scale and a minimum.
    Q4_1 = q4_1::Q4_1;
    /// 32 five-bit weights under one scale.
    Q5_0 = q5_0::Q5_0;
    /// 32 five-bit weights with a scale and a minimum.
    Q5_1 = q5_1::Q5_1;
    /// 32 signed bytes under one scale.
    Q8_0 = q8_0::Q8_0;
    /// 256 two-bit weights: 16 groups of 16, each with a four-bit scale and minimum.
    Q2_K = q2_k::Q2_K;
    /// 256 three-bit weights: 16 groups of 16, each with a six-bit scale.
    Q3_K = q3_k::Q3_K;
    /// 256 four-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q4_K = q4_k::Q4_K;
    /// 256 five-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q5_K = q5_k::Q5_K;
    /// 256 six-bit weights: 16 groups of 16, each with an eight-bit scale.
    Q6_K = q6_k::Q6_K;
    /// 32 indices into a table of 16 bytes, under one scale.
    IQ4_NL = iq4_nl::IQ4_NL;
    /// 256 indices into the same table: 8 groups of 32, each with a six-bit scale.
    IQ4_XS = iq4_xs::IQ4_XS;
    /// 32 four-bit floats (E2M1) under one power of two (E8M0), as the OCP microscaling
    /// specification defines MXFP4.
    MXFP4 = mxfp4::MXFP4;
}

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

    /// Returns the bytes per activation, see [`Format::activation_bytes`].
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

impl Format {
    /// Returns the suffix of kernel names, for example `q4_k`.
    pub(crate) fn suffix(self) -> String {
        self.name().to_lowercase()
    }

    /// Returns the type number in a GGUF file.
    pub fn ggml_type(self) -> u32 {
        self.of().block().ggml_type
    }

    /// Returns the format with this type number in a GGUF file, or `None` if no kernel reads it.
    pub fn from_ggml_type(number: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.ggml_type() == number)
    }

    /// Returns the bytes per activation for GEMVs that keys and values depend on, in layers whose
    /// queries, keys or values have this format. `docs/internals/numerics.md` gives the reason.
    pub fn activation_bytes(self) -> ActivationBytes {
        self.of()
            .tiles()
            .map_or(ActivationBytes::Two, |tiles| tiles.activation_bytes())
    }

    /// Returns the number of weights of a block. The length of a row is a multiple of it.
    pub fn block_len(self) -> u32 {
        self.of().block().len
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.of().block().bytes
    }

    /// Returns the bytes of a row of `n` weights, a multiple of [`block_len`](Format::block_len).
    pub fn row_bytes(self, n: usize) -> usize {
        n / self.block_len() as usize * self.block_bytes() as usize
    }

    /// Returns the bits per weight, including scales.
    pub fn bits(self) -> f32 {
        8.0 * self.block_bytes() as f32 / self.block_len() as f32
    }

    /// Dequantizes whole blocks naively. Bytes after the last whole block are ignored.
    pub fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let of = self.of();
        let Block {
            len, bytes: block, ..
        } = of.block();
        let weights = |block| move |k| of.weight(k, &|field| get(block, of.in_block(field)));
        bytes
            .chunks_exact(block as usize)
            .flat_map(|b| (0..len as usize).map(weights(b)))
            .collect()
    }

    /// Returns the bytes of `blocks` random blocks. The codes are arbitrary, and the scales give
    /// weights from about `-size` to `size`.
    pub fn random(self, blocks: usize, size: f32, random: &mut Random) -> Vec<u8> {
        let mut bytes = vec![0; blocks * self.block_bytes() as usize];
        for block in bytes.chunks_exact_mut(self.block_bytes() as usize) {
            block.fill_with(|| random.bits() as u8);
            let v = size * random.unit();
            self.of().scale(block, v, size, random);
        }
        bytes
    }

    /// Returns every field of a block.
    pub(crate) fn fields(self) -> impl Iterator<Item = Field> {
        (0..self.block_len() as usize)
            .map(Field::Code)
            .chain(self.of().numbers())
    }
}

/// Returns the `f16` value with these bits as `f32`.
fn f16_value(bits: u32) -> f32 {
    f16(bits as u16).to_f32()
}

/// Stores `v` as `f16` at byte `at`.
fn put_f16(block: &mut [u8], at: usize, v: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(v).0.to_le_bytes());
}
