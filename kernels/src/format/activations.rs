//! Activations in shared memory, in the order and type in which a warp's matrix instructions take them.
//!
//! Against quantized weights, an activation is a 16-bit integer, split into a high and a low signed byte (`256 high +
//! low`), times a scale that 32 of them share. The products are exact. Against 16-bit weights, it is the sum of two
//! numbers of the weights' type: the rounded value and the residual. Both components are columns of one matrix
//! instruction, whose other columns would be idle.
//!
//! Where that is too coarse ([`Format::activation_bytes`]), the integer has a third byte: what rounding left, in units
//! of 1 / `THIRD_BYTES_A_UNIT`. It takes matrix instructions of its own, with half of their columns idle.
//!
//! The activations of a batch follow each other as if they were one vector: all values, then all third bytes, then all
//! scales. Their size bounds the batch.

use super::Format;
use ptx_gen::*;

/// Third bytes in a unit of the integer: a half, which is the most that rounding leaves, is 127 of them.
pub(crate) const THIRD_BYTES_A_UNIT: f32 = 254.0;

/// Bytes of an activation's integer against quantized weights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ActivationBytes {
    /// High and low: 16 bits.
    Two,
    /// And what rounding to those leaves: 24 bits.
    Three,
}

/// The encoding of `n` activations in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// For each 32: the 32 high bytes, then the 32 low bytes. After all of them the third bytes, if there are any;
    /// then, for each 16: the scale, and the scaled sum.
    SplitInt8(ActivationBytes),
    /// For each 32: the 32 values rounded to `f16`, then the 32 residuals, of activations divided by the scale. After
    /// all of them the scale of each 128.
    F16,
    /// For each 32: the 32 values rounded to `bf16`, then the 32 residuals.
    Bf16,
}

impl Encoding {
    /// The encoding for products with a format's tiles, of two bytes; `None` for a format without tiles.
    pub fn of(format: Format) -> Option<Encoding> {
        Some(format.of().tiles()?.encoding())
    }

    /// The same, with as many bytes if activations are integers.
    pub(crate) fn with_bytes(self, bytes: ActivationBytes) -> Encoding {
        match self {
            Encoding::SplitInt8(_) => Encoding::SplitInt8(bytes),
            _ => self,
        }
    }

    /// Whether integers have a third byte.
    pub(crate) fn has_thirds(self) -> bool {
        self == Encoding::SplitInt8(ActivationBytes::Three)
    }

    /// Returns the identifier of this encoding in the identifiers of sections.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Encoding::SplitInt8(ActivationBytes::Two) => "int8x2",
            Encoding::SplitInt8(ActivationBytes::Three) => "int8x3",
            Encoding::F16 => "f16",
            Encoding::Bf16 => "bf16",
        }
    }

    /// What an activation becomes, for headings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::SplitInt8(ActivationBytes::Two) => "two int8",
            Encoding::SplitInt8(ActivationBytes::Three) => "three int8",
            Encoding::F16 => "two f16",
            Encoding::Bf16 => "two bf16",
        }
    }

    /// The size of `n` activations in bytes, a multiple of 128 for `n` a multiple of 128.
    pub const fn bytes(self, n: u32) -> u32 {
        (self.values(n) + self.thirds(n) + self.side(n)).next_multiple_of(128)
    }

    pub(crate) const fn values(self, n: u32) -> u32 {
        match self {
            Encoding::SplitInt8(_) => 2 * n,
            Encoding::F16 | Encoding::Bf16 => 4 * n,
        }
    }

    const fn thirds(self, n: u32) -> u32 {
        match self {
            Encoding::SplitInt8(ActivationBytes::Three) => n,
            _ => 0,
        }
    }

    const fn side(self, n: u32) -> u32 {
        match self {
            Encoding::SplitInt8(_) => n / 16 * 8,
            Encoding::F16 => n / 128 * 4,
            Encoding::Bf16 => 0,
        }
    }
}

/// A block's activations in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) encoding: Encoding,
    /// The values, then the third bytes, then the scales.
    pub(crate) memory: Ptr<'k, u8, Shared>,
    /// Activations per token.
    pub(crate) n: U32<'k>,
    /// Tokens per batch.
    pub(crate) batch: u32,
    /// Activations of the whole batch.
    pub(crate) all: U32<'k>,
}

impl<'k> Activations<'k> {
    pub(crate) fn new(
        k: Builder<'k>,
        encoding: Encoding,
        memory: Ptr<'k, u8, Shared>,
        n: U32<'k>,
        batch: u32,
    ) -> Self {
        let all = if batch == 1 { n } else { n * batch };
        Activations {
            k,
            encoding,
            memory,
            n,
            batch,
            all,
        }
    }

    /// The first multiple of 128 after all of it: [`Encoding::bytes`].
    pub(crate) fn end(&self) -> Ptr<'k, u8, Shared> {
        let side = self.side_bytes(self.all);
        self.side().at((side + 127) & !127)
    }

    fn side_bytes(&self, n: U32<'k>) -> U32<'k> {
        match self.encoding {
            Encoding::SplitInt8(_) => n >> 1,
            Encoding::F16 => n >> 5,
            Encoding::Bf16 => self.k.val(0),
        }
    }

    /// Bytes of a token's values, and of its scales; of its third bytes there are `n`.
    pub(crate) fn token_bytes(&self) -> [U32<'k>; 2] {
        [self.n * self.encoding.values(1), self.side_bytes(self.n)]
    }

    /// Where the third bytes begin, if there are any.
    pub(crate) fn thirds(&self) -> Option<Ptr<'k, u8, Shared>> {
        self.encoding
            .has_thirds()
            .then(|| self.memory.at(self.all * self.encoding.values(1)))
    }

    /// Where the scales begin.
    pub(crate) fn side(&self) -> Ptr<'k, u8, Shared> {
        let width = self.encoding.values(1) + self.encoding.thirds(1);
        self.memory.at(self.all * width)
    }
}
