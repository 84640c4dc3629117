//! The table of formats, and the properties that follow from a row.

use super::activations::{ActivationBytes, Encoding};
use super::fields::bits::{Field, get};
use super::fields::layout::{ROWS, Tile};
use super::lanes::fragment::LaneSplit;
use super::lanes::multiply::{RowSums, TileMultiplier, TilePtr};
use super::lanes::name::FormatName;
use super::lanes::pack::PackLane;
use super::traits::{Block, BlockFormat, TileFormat};
use super::{
    f32, half, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0,
};
use crate::shared::Random;
use ptx_gen::*;

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

impl Format {
    /// Returns the formats that can be packed into tiles.
    pub(crate) fn tiled() -> impl Iterator<Item = Format> {
        Format::ALL
            .into_iter()
            .filter(|format| format.tile().is_some())
    }

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

    /// Returns the division of the format's rows among the lanes of a warp.
    pub(crate) fn split(self) -> LaneSplit {
        self.of().split()
    }

    /// Returns the encoding of activations for GEMVs with the format's tiles, with two bytes per
    /// integer, or `None` for a format without tiles.
    pub fn encoding(self) -> Option<Encoding> {
        Some(self.of().tiles()?.encoding())
    }

    /// Returns the identifier of a section that exists once for each format.
    pub(crate) fn section(self, part: &str) -> String {
        self.section_name().section(part)
    }

    /// Returns the name for the sections of programs.
    pub(crate) fn section_name(self) -> FormatName {
        FormatName(self.name())
    }

    /// Returns the format's tile, or `None` if no kernel reads tiles of it.
    pub fn tile(self) -> Option<Tile> {
        let columns = self.of().tiles()?.columns();
        Some(Tile {
            columns,
            bytes: ROWS * self.row_bytes(columns as usize) as u32,
        })
    }

    /// Returns the knowledge of kernels about the format's tiles.
    ///
    /// # Panics
    /// Panics if the format has no tile.
    pub(crate) fn tiles(self) -> &'static dyn TileFormat {
        self.of()
            .tiles()
            .unwrap_or_else(|| panic!("{} has no tile", self.name()))
    }

    /// Packs the lane's share of a tile.
    pub(crate) fn pack_tile(self, lane: &PackLane<'_>) {
        lane.k.section(
            self.section("pack"),
            format!("{}: pack both rows", self.name()),
        );
        self.tiles().pack(lane);
    }

    /// Multiplies tile `kt` of a row by the activations of each token, and adds the results to the
    /// token's sums. The whole warp must call it.
    pub(crate) fn multiply_tile<'k>(
        self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        multiplier.k.section(
            self.section("tile_unpack"),
            format!("{}: unpack a tile", self.name()),
        );
        self.tiles().multiply(multiplier, tile, kt, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_make_up_whole_blocks() {
        for format in Format::ALL {
            let LaneSplit {
                len,
                bytes,
                lanes,
                float4s,
            } = format.split();
            assert_eq!(len % format.block_len(), 0, "{}", format.name());
            assert_eq!(
                format.row_bytes(len as usize),
                bytes as usize,
                "{}",
                format.name()
            );
            assert_eq!(lanes * 4 * float4s.len() as u32, len, "{}", format.name());
        }
    }
}
