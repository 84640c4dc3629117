//! The codes of weights in a tile, and the functions that make weights of them.

use crate::format::fields::unpack::Code;
use ptx_gen::*;

/// The codes of four adjacent columns of a lane, for the rows `g` and `g + 8`.
#[derive(Clone, Copy)]
pub(crate) enum Codes<'k> {
    /// One byte per column: row `g` in the low nibble, row `g + 8` in the high nibble.
    Nibbles(U32<'k>),
    /// One byte per column: a word of row `g` and a word of row `g + 8`.
    Bytes([U32<'k>; 2]),
    /// `f16` values: the fragment itself.
    Binary16([U32<'k>; 4]),
    /// `bf16` values in the order of the fragment.
    Bfloat16([U32<'k>; 4]),
}

/// The values that codes stand for, before scales are applied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CodeValues {
    /// Whether bytes are signed.
    pub(crate) signed: bool,
    /// The value that is subtracted from a code.
    pub(crate) bias: u32,
    /// The largest magnitude of a code less the bias.
    pub(crate) largest: u32,
    /// The bit of a byte that has the value 1.
    pub(crate) shift: u32,
}

impl CodeValues {
    /// Returns the values of signed bytes of at most this magnitude.
    pub(crate) const fn signed(largest: u32) -> CodeValues {
        CodeValues {
            signed: true,
            bias: 0,
            largest,
            shift: 0,
        }
    }

    /// Returns these values for codes that start at bit `shift` of a byte.
    pub(crate) const fn above_bit(self, shift: u32) -> CodeValues {
        CodeValues { shift, ..self }
    }

    /// Returns the value that the fraction of an `f16` adds a code to, without conversion.
    fn base(self) -> f32 {
        (1024 >> self.shift) as f32
    }

    /// Returns the value to subtract from that sum. In signed bytes, the highest bit is inverted
    /// before.
    pub(crate) fn zero(self) -> f32 {
        self.base() + if self.signed { 128.0 } else { self.bias as f32 }
    }
}

impl std::convert::From<Code> for CodeValues {
    fn from(Code { bits, bias, .. }: Code) -> Self {
        CodeValues {
            signed: false,
            bias,
            largest: bias.max((1 << bits) - 1 - bias),
            shift: 0,
        }
    }
}

/// The powers of two that the rows `g` and `g + 8` are multiplied by.
pub(crate) type Units<'k> = [F32<'k>; 2];

/// Multiplies values of both rows by the rows' units.
pub(crate) fn times<'k>(numbers: [F32<'k>; 2], unit: Units<'k>) -> [F32<'k>; 2] {
    [numbers[0] * unit[0], numbers[1] * unit[1]]
}

/// The function that a group applies to its codes less the bias.
#[derive(Clone, Copy)]
pub(crate) enum Affine<'k> {
    /// `scale * x`
    Scale(F32<'k>),
    /// `scale * x + offset`
    Offset(F32<'k>, F32<'k>),
    /// `block * (scale * x)`, for codes in bytes. `scale` and its product with [`CodeValues::zero`]
    /// are exact in `f16`. Only two results are rounded: the product with `x`, if it has more than
    /// eleven bits, and the weight.
    Block { block: F32<'k>, scale: F32<'k> },
}

impl<'k> Affine<'k> {
    /// Returns `scale * code - min`.
    ///
    /// The weights of a group share the error of rounding scale and offset to `f16`. With codes of
    /// 0 to 15, the minimum is about 8 scales, and both errors weigh twice as much as with codes of
    /// -8 to 7, whose offset is nearly 0.
    pub(crate) fn less(scale: F32<'k>, min: F32<'k>, values: CodeValues) -> Self {
        Affine::Offset(scale, scale.fma(values.bias as f32, -min))
    }

    /// Returns the factor that is rounded to `f16` and may have many bits. It must not exceed the
    /// range of `f16`.
    pub(crate) fn factor(&self) -> F32<'k> {
        match *self {
            Affine::Scale(scale) | Affine::Offset(scale, _) => scale,
            Affine::Block { block, .. } => block,
        }
    }

    /// Returns the weights in `f32`.
    pub(crate) fn weights(&self, numbers: impl IntoIterator<Item = F32<'k>>) -> Vec<F32<'k>> {
        let (scale, offset) = match *self {
            Affine::Scale(scale) => (scale, None),
            Affine::Offset(scale, offset) => (scale, Some(offset)),
            Affine::Block { block, scale } => (block * scale, None),
        };
        let weight =
            |number: F32<'k>| offset.map_or(number * scale, |offset| number * scale + offset);
        numbers.into_iter().map(weight).collect()
    }
}
