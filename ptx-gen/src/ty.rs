//! Types: what a register holds, what memory holds, and the Rust types that stand for them.

/// A PTX type, as an instruction's suffix or a buffer's element names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// One bit that guards: `.pred`.
    Pred,
    /// An unsigned byte; memory only, registers hold it as [`Kind::U32`].
    U8,
    /// A signed byte; memory only, registers hold it as [`Kind::S32`].
    S8,
    /// An unsigned 16-bit integer; memory only, registers hold it as [`Kind::U32`].
    U16,
    /// An 8-bit float of 4 exponent and 3 fraction bits, without infinities; tiles of matrices only.
    E4m3,
    /// An 8-bit float of 5 exponent and 2 fraction bits; tiles of matrices only.
    E5m2,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// An unsigned 32-bit integer.
    U32,
    /// A signed 32-bit integer.
    S32,
    /// Two binary16 values, the first in the low half.
    F16x2,
    /// The upper 19 bits of an `f32`; tiles of matrices only.
    Tf32,
    /// IEEE binary32.
    F32,
    /// An unsigned 64-bit integer, also an address.
    U64,
    /// A signed 64-bit integer.
    S64,
}

use Kind::*;

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 15] = [
        Pred, U8, S8, U16, E4m3, E5m2, F16, Bf16, U32, S32, F16x2, Tf32, F32, U64, S64,
    ];

    /// The suffix in arithmetic: `f16x2` of `fma.rn.f16x2`.
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

    /// The suffix in loads, stores and parameters, where halves and pairs are plain bits.
    pub fn memory_name(self) -> &'static str {
        match self {
            E4m3 | E5m2 => "b8",
            F16 | Bf16 => "b16",
            F16x2 | Tf32 => "b32",
            _ => self.name(),
        }
    }

    /// The suffix where only the width counts: `b32` of `and.b32`.
    pub fn bits_name(self) -> &'static str {
        match (self, self.bytes()) {
            (Pred, _) => "pred",
            (_, 1) => "b8",
            (_, 2) => "b16",
            (_, 4) => "b32",
            _ => "b64",
        }
    }

    /// Size in memory, in bytes; a predicate has none.
    pub fn bytes(self) -> u32 {
        match self {
            Pred => 0,
            U8 | S8 | E4m3 | E5m2 => 1,
            U16 | F16 | Bf16 => 2,
            U32 | S32 | F16x2 | Tf32 | F32 => 4,
            U64 | S64 => 8,
        }
    }

    /// The file of registers that holds it.
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

/// A file of registers: the prefix of their names and their declared type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// `%p`, `.pred`
    Pred,
    /// `%h`, `.b16`
    Half,
    /// `%r`, `.b32`
    Word,
    /// `%f`, `.f32`
    Float,
    /// `%rd`, `.b64`
    Long,
}

impl Class {
    /// Every class, in the order of declaration.
    pub const ALL: [Class; 5] = [
        Class::Pred,
        Class::Half,
        Class::Word,
        Class::Float,
        Class::Long,
    ];

    /// Prefix of a register's name.
    pub fn prefix(self) -> &'static str {
        ["p", "h", "r", "f", "rd"][self as usize]
    }

    /// Type in the `.reg` declaration.
    pub fn declared(self) -> &'static str {
        ["pred", "b16", "b32", "f32", "b64"][self as usize]
    }
}

/// A literal: its type and its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imm {
    /// The type of the literal.
    pub kind: Kind,
    /// Its bits, zero-extended.
    pub bits: u64,
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A Rust type that stands for what a register holds. Sealed.
pub trait Ty: sealed::Sealed + Copy + 'static {
    /// The PTX type.
    const KIND: Kind;
}

/// A type with literals, usable as an immediate operand.
pub trait Lit: Ty {
    /// The literal as an operand.
    fn imm(self) -> Imm;
}

/// A type with `+`, `-` and `*`.
pub trait Num: Lit {}
/// An integer type.
pub trait Int: Num {}
/// A 32-bit integer type: also what a kernel's scalar integers are.
pub trait Int32: Int {}

/// What a kernel takes by value: `u32`, `i32`, `u64` or `f32`.
pub trait Scalar: Lit + Send + Sync {
    /// The value's bits, zero-extended.
    fn to_bits64(self) -> u64;
    /// The value of these bits.
    fn from_bits64(bits: u64) -> Self;
}

/// IEEE binary16, as its bits.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct f16(pub u16);

/// bfloat16, as its bits.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct bf16(pub u16);

/// Two binary16 values in one register; the low 16 bits hold the first.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct f16x2(pub u32);

impl f16 {
    /// The value, exactly.
    pub fn to_f32(self) -> f32 {
        let (sign, exponent, fraction) =
            (self.0 >> 15, (self.0 >> 10) & 31, u32::from(self.0 & 0x3ff));
        let magnitude = match exponent {
            0 => fraction as f32 * 2f32.powi(-24),
            31 => f32::from_bits(0x7f80_0000 | fraction << 13),
            _ => f32::from_bits((u32::from(exponent) + 112) << 23 | fraction << 13),
        };
        if sign == 1 { -magnitude } else { magnitude }
    }

    /// The nearest value, ties to even; too large becomes infinity.
    pub fn from_f32(v: f32) -> f16 {
        let sign = ((v.to_bits() >> 16) & 0x8000) as u16;
        let a = v.abs();
        let magnitude = if a.is_nan() {
            0x7e00 | (v.to_bits() >> 13) as u16 & 0x3ff
        } else if a < 2f32.powi(-14) {
            // Adding 0.5 in the unit of the subnormals lets the FPU round to even.
            ((a + 0.5).to_bits() - 0.5f32.to_bits()) as u16
        } else {
            let bits = a.to_bits();
            let rounded = bits + 0xfff + ((bits >> 13) & 1);
            ((rounded.saturating_sub(112 << 23)) >> 13).min(0x7c00) as u16
        };
        f16(sign | magnitude)
    }
}

impl bf16 {
    /// The value, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The nearest value, ties to even; NaN stays NaN.
    pub fn from_f32(v: f32) -> bf16 {
        let bits = v.to_bits();
        if v.is_nan() {
            return bf16((bits >> 16) as u16 | 0x40);
        }
        bf16(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

/// `type: register kind, literal's bits`
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
