//! PTX types, register classes, and the Rust types that represent them.

/// A PTX type, as it appears in the suffix of an instruction or as the element type of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A predicate of one bit (`.pred`).
    Pred,
    /// An unsigned byte. Memory only: registers hold it as [`Kind::U32`].
    U8,
    /// A signed byte. Memory only: registers hold it as [`Kind::S32`].
    S8,
    /// An unsigned 16-bit integer. Memory only: registers hold it as [`Kind::U32`].
    U16,
    /// An 8-bit float with 4 exponent and 3 fraction bits and without infinities. Tiles of matrices
    /// only.
    E4m3,
    /// An 8-bit float with 5 exponent and 2 fraction bits. Tiles of matrices only.
    E5m2,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16, the upper half of an `f32`.
    Bf16,
    /// An unsigned 32-bit integer.
    U32,
    /// A signed 32-bit integer.
    S32,
    /// Two binary16 values, the first in the low half.
    F16x2,
    /// The upper 19 bits of an `f32`. Tiles of matrices only.
    Tf32,
    /// IEEE 754 binary32.
    F32,
    /// An unsigned 64-bit integer or an address.
    U64,
    /// A signed 64-bit integer.
    S64,
}

use Kind::*;

impl Kind {
    /// All types.
    pub const ALL: [Kind; 15] = [
        Pred, U8, S8, U16, E4m3, E5m2, F16, Bf16, U32, S32, F16x2, Tf32, F32, U64, S64,
    ];

    /// Returns the suffix of arithmetic instructions, for example `f16x2` in `fma.rn.f16x2`.
    pub fn name(self) -> &'static str {
        match self {
            Pred => "pred",
            U8 => "u8",
            S8 => "s8",
            U16 => "u16",
            E4m3 => "e4m3",
            E5m2 => "e5m2",
            F16 => "f16",
            Bf16 => "bf16",
            U32 => "u32",
            S32 => "s32",
            F16x2 => "f16x2",
            Tf32 => "tf32",
            F32 => "f32",
            U64 => "u64",
            S64 => "s64",
        }
    }

    /// Returns the suffix of loads, stores and parameters, where 16-bit floats are plain bits, such
    /// as `b16`.
    pub fn memory_name(self) -> &'static str {
        match self {
            E4m3 | E5m2 => "b8",
            F16 | Bf16 => "b16",
            F16x2 | Tf32 => "b32",
            _ => self.name(),
        }
    }

    /// Returns the suffix of instructions for which only the width matters, for example `b32` in
    /// `and.b32`.
    pub fn bits_name(self) -> &'static str {
        match (self, self.bytes()) {
            (Pred, _) => "pred",
            (_, 1) => "b8",
            (_, 2) => "b16",
            (_, 4) => "b32",
            _ => "b64",
        }
    }

    /// Returns the size in memory in bytes, which is 0 for a predicate.
    pub fn bytes(self) -> u32 {
        match self {
            Pred => 0,
            U8 | S8 | E4m3 | E5m2 => 1,
            U16 | F16 | Bf16 => 2,
            U32 | S32 | F16x2 | Tf32 | F32 => 4,
            U64 | S64 => 8,
        }
    }

    /// Returns the class of the registers that hold values of this type.
    pub fn class(self) -> Class {
        match self {
            Pred => Class::Pred,
            F16 | Bf16 => Class::Half,
            U8 | S8 | U16 | E4m3 | E5m2 | U32 | S32 | F16x2 | Tf32 => Class::Word,
            F32 => Class::Float,
            U64 | S64 => Class::Long,
        }
    }
}

/// A register class: the prefix of register names and the type of their declaration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Predicate registers: `%p`, declared as `.pred`.
    Pred,
    /// 16-bit registers: `%h`, declared as `.b16`.
    Half,
    /// 32-bit integer registers: `%r`, declared as `.b32`.
    Word,
    /// 32-bit float registers: `%f`, declared as `.f32`.
    Float,
    /// 64-bit registers: `%rd`, declared as `.b64`.
    Long,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Class; 5] = [
        Class::Pred,
        Class::Half,
        Class::Word,
        Class::Float,
        Class::Long,
    ];

    /// Returns the prefix of register names without the percent sign.
    pub fn prefix(self) -> &'static str {
        ["p", "h", "r", "f", "rd"][self as usize]
    }

    /// Returns the type in the `.reg` declaration.
    pub fn declared(self) -> &'static str {
        ["pred", "b16", "b32", "f32", "b64"][self as usize]
    }
}

/// A literal operand: a type and the bits of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imm {
    /// The type of the literal.
    pub kind: Kind,
    /// The bits of the literal, zero-extended to 64 bits.
    pub bits: u64,
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A Rust type that represents the contents of a register. The trait is sealed.
pub trait Ty: sealed::Sealed + Copy + 'static {
    /// The PTX type.
    const KIND: Kind;
}

/// A type whose values can be immediate operands.
pub trait Lit: Ty {
    /// Returns the value as a literal operand.
    fn imm(self) -> Imm;
}

/// A type that supports `+`, `-` and `*`: the integers, `f32`, `f16` and `f16x2`.
pub trait Num: Lit {}
/// An integer type: `u32`, `i32`, `u64` or `i64`.
pub trait Int: Num {}
/// A 32-bit integer type: `u32` or `i32`.
pub trait Int32: Int {}

/// A type that a kernel can take by value: `u32`, `i32`, `u64` or `f32`.
pub trait Scalar: Lit + Send + Sync {
    /// Returns the bits of the value, zero-extended.
    fn to_bits64(self) -> u64;
    /// Returns the value with the given bits.
    fn from_bits64(bits: u64) -> Self;
}

/// An IEEE 754 binary16 value, stored as its bits.
///
/// The type converts on the CPU with [`to_f32`](Self::to_f32) and [`from_f32`](Self::from_f32). In a
/// kernel it supports `+`, `-` and `*`.
///
/// # Example
/// ```
/// use ptx_gen::f16;
///
/// assert_eq!(f16::from_f32(1.0), f16(0x3c00));
/// assert_eq!(f16(0x3c01).to_f32(), 1.0 + 1.0 / 1024.0);
/// ```
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct f16(pub u16);

/// A bfloat16 value, stored as its bits.
///
/// In a kernel, convert it to `f32` with [`cvt`](crate::Val::cvt) before you compute with it.
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct bf16(pub u16);

/// Two binary16 values in one 32-bit register. The low 16 bits hold the first value.
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct f16x2(pub u32);

impl f16 {
    /// Converts the value to `f32`, exactly.
    pub fn to_f32(self) -> f32 {
        let sign = self.0 >> 15;
        let exponent = (self.0 >> 10) & 31;
        let fraction = u32::from(self.0 & 0x3ff);
        let magnitude = match exponent {
            // A subnormal has no implicit leading one.
            0 => fraction as f32 * 2f32.powi(-24),
            31 => f32::from_bits(0x7f80_0000 | fraction << 13),
            // 112 is the difference of the exponent biases, 127 and 15.
            _ => f32::from_bits((u32::from(exponent) + 112) << 23 | fraction << 13),
        };
        if sign == 1 { -magnitude } else { magnitude }
    }

    /// Returns the nearest `f16`, with ties to even. Values that are too large become infinity.
    pub fn from_f32(v: f32) -> f16 {
        let sign = ((v.to_bits() >> 16) & 0x8000) as u16;
        let a = v.abs();
        let magnitude = if a.is_nan() {
            0x7e00 | (v.to_bits() >> 13) as u16 & 0x3ff
        } else if a < 2f32.powi(-14) {
            // The unit in the last place of 0.5 is that of f16 subnormals, so this addition lets
            // the FPU round to even at the right bit.
            ((a + 0.5).to_bits() - 0.5f32.to_bits()) as u16
        } else {
            let bits = a.to_bits();
            // Adding just under half a unit, and the lowest kept bit, rounds ties to even. The
            // carry may reach the exponent, which is correct.
            let rounded = bits + 0xfff + ((bits >> 13) & 1);
            ((rounded.saturating_sub(112 << 23)) >> 13).min(0x7c00) as u16
        };
        f16(sign | magnitude)
    }
}

impl bf16 {
    /// Converts the value to `f32`, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Returns the nearest `bf16`, with ties to even. NaN stays NaN.
    pub fn from_f32(v: f32) -> bf16 {
        let bits = v.to_bits();
        if v.is_nan() {
            // The quiet bit keeps a NaN whose payload is only in the low bits from becoming
            // infinity.
            return bf16((bits >> 16) as u16 | 0x40);
        }
        bf16(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

/// Implements [`Ty`] and [`Lit`] with one line per type: `type: kind, value => bits`.
macro_rules! literals {
    ($($t:ty: $kind:ident, $v:ident => $bits:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Ty for $t { const KIND: Kind = $kind; }
        impl Lit for $t { fn imm(self) -> Imm { let $v = self; Imm { kind: $kind, bits: $bits } } }
    )*};
}
literals! {
    bool: Pred, v => v.into();
    u32: U32, v => v.into();
    i32: S32, v => v as u32 as u64;
    u64: U64, v => v;
    i64: S64, v => v as u64;
    f32: F32, v => v.to_bits().into();
    f16: F16, v => v.0.into();
    bf16: Bf16, v => v.0.into();
    f16x2: F16x2, v => v.0.into();
}
macro_rules! mark {
    ($($marker:ident: $($t:ty),*;)*) => { $($(impl $marker for $t {})*)* };
}
mark! {
    Num: u32, i32, u64, i64, f32, f16, f16x2;
    Int: u32, i32, u64, i64;
    Int32: u32, i32;
}
macro_rules! scalars {
    ($($t:ty: $v:ident => $to:expr, $b:ident => $from:expr;)*) => {$(
        impl Scalar for $t {
            fn to_bits64(self) -> u64 { let $v = self; $to }
            fn from_bits64($b: u64) -> Self { $from }
        }
    )*};
}
scalars! {
    u32: v => v.into(), b => b as u32;
    i32: v => v as u32 as u64, b => b as u32 as i32;
    u64: v => v, b => b;
    f32: v => v.to_bits().into(), b => f32::from_bits(b as u32);
}
