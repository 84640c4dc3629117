//! Activations in shared memory, in the order and type in which a warp's matrix instructions take
//! them.
//!
//! For quantized weights, an activation is a 16-bit integer, split into a high and a low signed
//! byte (`256 high + low`), times a scale that 32 of them share. The integer products are exact.
//! For 16-bit weights, an activation is the sum of two values of the weights' type: the rounded
//! value and the residual. Both components are columns of one matrix instruction, whose other
//! columns would be idle.
//!
//! Where that is too coarse ([`Format::activation_bytes`](super::Format::activation_bytes)), the
//! integer has a third byte: the remainder of the rounding, in units of 1 / `THIRD_BYTES_A_UNIT`.
//! It takes separate matrix instructions, in which half of the columns are idle.
//!
//! The activations of a batch follow each other as if they were one vector: all values, then all
//! third bytes, then all scales. Their size bounds the batch.

use ptx_gen::*;

/// The number of units of a third byte in a unit of the integer. A half, which is the largest
/// remainder, is 127 of them.
pub(crate) const THIRD_BYTES_A_UNIT: f32 = 254.0;

/// The number of bytes of an activation's integer for quantized weights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ActivationBytes {
    /// A high and a low byte: 16 bits.
    Two,
    /// A third byte for the remainder of the rounding: 24 bits.
    Three,
}

/// The encoding of `n` activations in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// For each 32 activations, the 32 high bytes, then the 32 low bytes. All third bytes follow,
    /// if there are any. Then, for each 16 activations, the scale and the scaled sum.
    SplitInt8(ActivationBytes),
    /// For each 32 activations, the 32 values rounded to `f16`, then the 32 residuals. The
    /// activations are divided by a scale per 128, and all scales follow.
    F16,
    /// For each 32 activations, the 32 values rounded to `bf16`, then the 32 residuals.
    Bf16,
}

impl Encoding {
    /// Returns this encoding with `bytes` bytes per activation, if activations are integers.
    pub(crate) fn with_bytes(self, bytes: ActivationBytes) -> Encoding {
        match self {
            Encoding::SplitInt8(_) => Encoding::SplitInt8(bytes),
            _ => self,
        }
    }

    /// Returns true if integers have a third byte.
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

    /// Returns the components of an activation as notes name them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::SplitInt8(ActivationBytes::Two) => "two int8",
            Encoding::SplitInt8(ActivationBytes::Three) => "three int8",
            Encoding::F16 => "two f16",
            Encoding::Bf16 => "two bf16",
        }
    }

    /// Returns the bytes of `n` activations, a multiple of 128 if `n` is a multiple of 128.
    pub const fn bytes(self, n: u32) -> u32 {
        (self.values(n) + self.thirds(n) + self.side(n)).next_multiple_of(128)
    }

    /// Returns the bytes of the values of `n` activations.
    pub(crate) const fn values(self, n: u32) -> u32 {
        match self {
            Encoding::SplitInt8(_) => 2 * n,
            Encoding::F16 | Encoding::Bf16 => 4 * n,
        }
    }

    /// Returns the number of third bytes of `n` activations.
    const fn thirds(self, n: u32) -> u32 {
        match self {
            Encoding::SplitInt8(ActivationBytes::Three) => n,
            _ => 0,
        }
    }

    /// Returns the bytes of the scales of `n` activations.
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
    /// The address of the values, followed by the third bytes and the scales.
    pub(crate) memory: Ptr<'k, u8, Shared>,
    /// The number of activations per token.
    pub(crate) n: U32<'k>,
    /// The number of tokens per batch.
    pub(crate) batch: u32,
    /// The number of activations of the whole batch.
    pub(crate) all: U32<'k>,
}

impl<'k> Activations<'k> {
    /// Describes the activations of a batch at `memory`.
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

    /// Returns the first multiple of 128 after all data, as [`Encoding::bytes`] computes it.
    pub(crate) fn end(&self) -> Ptr<'k, u8, Shared> {
        let side = self.side_bytes(self.all);
        self.side().at((side + 127) & !127)
    }

    /// Returns the bytes of the scales of `n` activations.
    fn side_bytes(&self, n: U32<'k>) -> U32<'k> {
        match self.encoding {
            Encoding::SplitInt8(_) => n >> 1,
            Encoding::F16 => n >> 5,
            Encoding::Bf16 => self.k.val(0),
        }
    }

    /// Returns the bytes of a token's values and of its scales. It has `n` third bytes.
    pub(crate) fn token_bytes(&self) -> [U32<'k>; 2] {
        [self.n * self.encoding.values(1), self.side_bytes(self.n)]
    }

    /// Returns the address of the third bytes, if there are any.
    pub(crate) fn thirds(&self) -> Option<Ptr<'k, u8, Shared>> {
        self.encoding
            .has_thirds()
            .then(|| self.memory.at(self.all * self.encoding.values(1)))
    }

    /// Returns the address of the scales.
    pub(crate) fn side(&self) -> Ptr<'k, u8, Shared> {
        let width = self.encoding.values(1) + self.encoding.thirds(1);
        self.memory.at(self.all * width)
    }
}
