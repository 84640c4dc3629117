//! What buffers hold: in memory, in a register, and in an argument on the CPU.

use crate::ty::Kind::{self, *};
use crate::ty::{Ty, bf16, f16, sealed};

/// What a buffer holds. Sealed, and every implementor is plain bytes without padding.
pub trait Elem: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The type in memory.
    const MEM: Kind;
    /// What a load of it gives: bytes and 16-bit integers widen to 32 bits.
    type Reg: Ty;
    /// The typed elements of an argument on the CPU, if they are of this type.
    fn of(arg: &CpuArg) -> Option<&[Self]>;
    /// The same, mutable.
    fn of_mut(arg: &mut CpuArg) -> Option<&mut [Self]>;
}

/// An argument on the CPU, untyped: a buffer's elements or a value's bits.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // the variants are the element types
pub enum CpuArg {
    U8(Vec<u8>),
    S8(Vec<i8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    S32(Vec<i32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    /// A value's bits, zero-extended.
    Scalar(u64),
}

impl sealed::Sealed for u8 {}
impl sealed::Sealed for i8 {}
impl sealed::Sealed for u16 {}

macro_rules! elems {
    ($($t:ty: $mem:ident in $reg:ty;)*) => {$(
        impl Elem for $t {
            const MEM: Kind = $mem;
            type Reg = $reg;
            fn of(arg: &CpuArg) -> Option<&[Self]> {
                match arg { CpuArg::$mem(v) => Some(v), _ => None }
            }
            fn of_mut(arg: &mut CpuArg) -> Option<&mut [Self]> {
                match arg { CpuArg::$mem(v) => Some(v), _ => None }
            }
        }
    )*};
}
elems! {
    u8: U8 in u32;
    i8: S8 in i32;
    u16: U16 in u32;
    u32: U32 in u32;
    i32: S32 in i32;
    u64: U64 in u64;
    f32: F32 in f32;
    f16: F16 in f16;
    bf16: Bf16 in bf16;
}
