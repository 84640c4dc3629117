//! Element types of buffers: their representation in memory, in registers and in CPU arguments.

use crate::ty::Kind::{self, *};
use crate::ty::{Ty, bf16, f16, sealed};

/// An element type of buffers.
///
/// The trait is sealed. Every implementor is plain data without padding, so the driver can copy
/// buffers as bytes.
///
/// Bytes and 16-bit integers have no register type here. A load widens them to 32 bits and a store
/// keeps the low bits: `u8` and `u16` become `u32`, and `i8` becomes `i32`.
pub trait Elem: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The PTX type of an element in memory.
    const MEM: Kind;
    /// The type of the register that a load fills.
    type Reg: Ty;
    /// Returns the elements of `arg`, or `None` if `arg` has another type.
    fn of(arg: &CpuArg) -> Option<&[Self]>;
    /// Returns the elements of `arg` mutably, or `None` if `arg` has another type.
    fn of_mut(arg: &mut CpuArg) -> Option<&mut [Self]>;
}

/// An untyped argument of a CPU reference: the elements of a buffer, or the bits of a scalar.
///
/// [`AnyKernel::reference_on`](crate::AnyKernel::reference_on) takes a list of these.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "each variant is named after its element type")]
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
    /// The bits of a scalar, zero-extended to 64 bits.
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
