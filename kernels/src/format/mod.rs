//! Formats of weights: what a file's bytes mean, how the simple kernels read them, and how they lie in tiles.
//!
//! Each format is one file with everything that kernels know of it, and one row of the table below. It says as data
//! which bits of a block belong to which number (`BlockFormat::in_block`) and where the number is in a tile
//! (`TileFormat::in_tile`). Everything on the CPU follows from the two: [`Format::dequantize`], which is the
//! specification that kernels are held to, [`tile::pack`] and [`tile::dequantize`]. The programs of a format load and
//! unpack the same bits: a fragment of a row (`fragment.rs`), a row into a tile (`pack.rs`), a tile times activations
//! (`product.rs`), and a row of a tile (`row.rs`).
//!
//! A row of a matrix is a whole number of blocks. The names, the numbers of the types and the layouts are those of
//! ggml (`ggml.h`; `block_q4_0` and its like in `ggml-common.h`, `dequantize_row_q4_0` and its like in
//! `ggml-quants.c`).

pub mod activations;
pub(crate) mod bits;
pub mod dequantize;
pub(crate) mod fragment;
pub(crate) mod pack;
pub(crate) mod product;
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
use pack::PackLane;
use product::{RowSums, TileLane, TileProduct, TilePtr};
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

            /// ggml's name: `Q4_K`.
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
    /// 32 four-bit floats (E2M1) under one power of two (E8M0), as the OCP microscaling specification defines MXFP4.
    MXFP4 = mxfp4::MXFP4;
}

/// The size of a format's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// The type's number in a GGUF file.
    pub(crate) ggml_type: u32,
    /// Weights.
    pub(crate) len: u32,
    /// Bytes.
    pub(crate) bytes: u32,
}

/// How many loads of a matrix-vector product are in flight.
#[derive(Clone, Copy)]
pub(crate) struct Loads {
    /// Fragments of each row that a lane loads per iteration.
    pub(crate) depth: u32,
    /// Resident blocks per SM: the maximum that leaves enough registers for these loads.
    pub(crate) blocks: u32,
}

/// What kernels know of a format.
pub(crate) trait BlockFormat: Sync {
    /// The size of its blocks.
    fn block(&self) -> Block;

    /// The numbers of a block besides the codes of its weights.
    fn numbers(&self) -> Vec<Field>;

    /// The bits of a number in a block. Each bit of a block belongs to one number.
    fn in_block(&self, field: Field) -> Bits;

    /// Weight `k` of a block, from the block's numbers. This is the specification of the format.
    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32;

    /// Gives a block of random bits scales that make its weights about `-size` to `size`. `v` is random, and in that
    /// range.
    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random);

    /// How the lanes of a warp divide a row.
    fn split(&self) -> LaneSplit;

    /// The fragment of `thread`, whose low bits are its index among the lanes that share a block.
    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k>;

    /// How many loads of a matrix-vector product are in flight.
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

    /// The format's tiles, if there are kernels that read them.
    fn tiles(&self) -> Option<&dyn TileFormat>;
}

/// What kernels know of a format's tiles.
pub(crate) trait TileFormat: Sync {
    /// Columns of a tile.
    fn columns(&self) -> u32 {
        256
    }

    /// How activations are encoded for products with the tiles.
    fn encoding(&self) -> Encoding {
        Encoding::SplitInt8(ActivationBytes::Two)
    }

    /// See [`Format::activation_bytes`].
    fn activation_bytes(&self) -> ActivationBytes {
        ActivationBytes::Two
    }

    /// Neighbouring columns that a lane holds: 16 or 32, to which a scale is common; 8 of 16-bit numbers.
    fn group(&self) -> u32 {
        32
    }

    /// The bits of a number of row `r` and block `block` of that row in a tile. Each bit of a tile belongs to one
    /// number.
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits;

    /// Packs the lane's part of a tile.
    fn pack<'k>(&self, lane: &PackLane<'k>);

    /// Adds the products of a tile, number `kt` of its row, with the activations of each token to the token's sums.
    /// Whole warp.
    fn multiply<'k>(
        &self,
        product: &TileProduct<'k>,
        tile: Ptr<'k, u8, Shared>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    );

    /// The lane's codes of set `set` of 128 columns, in steps of four columns.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>>;

    /// What a code stands for.
    fn values(&self) -> CodeValues;

    /// The scales of the lane's groups in a tile, of rows `g` and `g + 8`, times the rows' units; none for numbers that
    /// need none.
    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]>;

    /// Weights of a [`RowFragment`].
    fn row_len(&self) -> u32 {
        16
    }

    /// The weights of a fragment of a row.
    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>>;
}

impl Format {
    /// The name as kernels end on it: `q4_k`.
    pub(crate) fn suffix(self) -> String {
        self.name().to_lowercase()
    }

    /// The type's number in a GGUF file.
    pub fn ggml_type(self) -> u32 {
        self.of().block().ggml_type
    }

    /// The format of this number in a GGUF file; `None` for those that no kernel reads.
    pub fn from_ggml_type(number: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.ggml_type() == number)
    }

    /// Bytes that an activation's integer needs in products that keys and values follow from, in layers whose queries,
    /// keys or values have this format: `docs/internals/numerics.md` gives the reason.
    pub fn activation_bytes(self) -> ActivationBytes {
        self.of()
            .tiles()
            .map_or(ActivationBytes::Two, |tiles| tiles.activation_bytes())
    }

    /// Weights in a block; a row's length is a multiple of it.
    pub fn block_len(self) -> u32 {
        self.of().block().len
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.of().block().bytes
    }

    /// Bytes of a row of `n` weights, a multiple of [`block_len`](Format::block_len).
    pub fn row_bytes(self, n: usize) -> usize {
        n / self.block_len() as usize * self.block_bytes() as usize
    }

    /// Bits per weight, scales included.
    pub fn bits(self) -> f32 {
        8.0 * self.block_bytes() as f32 / self.block_len() as f32
    }

    /// The weights that whole blocks stand for, the obvious way; bytes past the last whole block are left out.
    pub fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let (
            of,
            Block {
                len, bytes: block, ..
            },
        ) = (self.of(), self.of().block());
        let weights = |block| move |k| of.weight(k, &|field| get(block, of.in_block(field)));
        bytes
            .chunks_exact(block as usize)
            .flat_map(|b| (0..len as usize).map(weights(b)))
            .collect()
    }

    /// The bytes of `blocks` random blocks: any codes, scales that give weights from about `-size` to `size`.
    pub fn random(self, blocks: usize, size: f32, random: &mut Random) -> Vec<u8> {
        let mut bytes = vec![0; blocks * self.block_bytes() as usize];
        for block in bytes.chunks_exact_mut(self.block_bytes() as usize) {
            block.fill_with(|| random.bits() as u8);
            let v = size * random.unit();
            self.of().scale(block, v, size, random);
        }
        bytes
    }

    /// Every number of a block.
    pub(crate) fn fields(self) -> impl Iterator<Item = Field> {
        (0..self.block_len() as usize)
            .map(Field::Code)
            .chain(self.of().numbers())
    }
}

/// The binary16 value with these bits.
fn f16_value(bits: u32) -> f32 {
    f16(bits as u16).to_f32()
}

/// Stores `v` as binary16 at byte `at`.
fn put_f16(block: &mut [u8], at: usize, v: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(v).0.to_le_bytes());
}
