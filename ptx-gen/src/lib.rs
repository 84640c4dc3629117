//! A typed language for writing PTX kernels in Rust, without nvcc or LLVM.
//!
//! A kernel is a [`KernelDef`]: arguments declared once with [`args!`], a launch contract, a program and a CPU
//! reference. Building it checks it; printing it gives PTX for a [`Target`].
//!
//! ```
//! use ptx_gen::prelude::*;
//!
//! args! {
//!     /// `y = a * x + y`
//!     pub struct AxpyArgs {
//!         /// `[n]`
//!         x: In<f32>,
//!         /// `[n]`
//!         y: InOut<f32>,
//!         /// The factor.
//!         a: f32,
//!         /// Elements.
//!         n: u32,
//!     }
//! }
//!
//! struct Axpy;
//!
//! impl KernelDef for Axpy {
//!     type Args<S: Side> = AxpyArgs<S>;
//!
//!     fn name(&self) -> String {
//!         "axpy".into()
//!     }
//!     fn block(&self) -> u32 {
//!         128
//!     }
//!     fn grid(&self, a: &AxpyArgs<Shape>) -> Result<Grid, ShapeError> {
//!         self.require(a.x == a.n as usize && a.y == a.x, || format!("x and y must hold n = {} elements", a.n))?;
//!         Ok(Grid::line(a.n.div_ceil(128)))
//!     }
//!     fn program<'k>(&self, k: Builder<'k>, a: AxpyArgs<Dev<'k>>) {
//!         let i = k.ctaid() * 128 + k.tid();
//!         k.when(i.lt(a.n), || {
//!             let (x, y) = (a.x.at(i), a.y.at(i));
//!             y.st(a.a.fma(x.ld(), y.ld()));
//!         });
//!     }
//!     fn reference(&self, a: AxpyArgs<Cpu<'_>>) {
//!         for (y, x) in a.y.iter_mut().zip(a.x) {
//!             *y += a.a * x;
//!         }
//!     }
//! }
//!
//! let program = Axpy.build().expect("valid");
//! let ptx = print(&program, Target::named("sm_75").unwrap()).unwrap();
//! assert!(ptx.starts_with(".version 6.3\n.target sm_75\n"));
//! assert!(ptx.contains("fma.rn.f32 %f1_2, %f0, %f1_0, %f1_1;"));
//! ```
//!
//! A method is the mnemonic, an operator the plain operation of the type, never fused. Nothing converts
//! implicitly. Control flow is a tree: there are no labels, so scope, uniformity and divergence are checked by
//! walking it. There is no way to insert raw text: a missing instruction is a missing row in [`isa`].

#![forbid(unsafe_code)]

pub mod isa;
pub mod prelude;

mod args;
mod asynchronous;
mod boxes;
mod build;
mod check;
mod cluster;
mod elem;
mod few;
mod fold;
mod ir;
mod kernel;
mod level;
mod mem;
mod mma;
mod mnemonic;
mod ops;
mod print;
mod ring;
#[cfg(feature = "samples")]
mod sample;
mod target;
mod tensor;
mod text;
mod tile;
mod ty;
mod wgmma;

pub use args::{
    ArgList, ArgTy, Cpu, Declared, Dev, Field, In, InMap, InOut, Out, OutMap, Shape, ShapeArg,
    Side, Sink, Source,
};
pub use asynchronous::Mbarrier;
pub use boxes::{Boxes, StagedBox, TensorBox};
pub use build::{Builder, F32, I32, Pred, Src, U32, U64, Val, Var, When};
pub use check::{BuildError, ErrorKind, Errors, Misused, Unmatched};
pub use cluster::Role;
pub use elem::{CpuArg, Elem};
pub use few::Few;
pub use ir::{
    Access, At, Base, Inst, Needs, Note, Operand, Param, ParamKind, Program, Reg, SharedArray,
    Stmt, StmtBlock,
};
pub use kernel::{AnyKernel, Geometry, Grid, KernelDef, ShapeError};
pub use level::Level;
pub use mem::{
    Fresh, Loads, Peer, Ptr, ReadOnce, ReadOnly, ReadWrite, Rows, Shared, Space, Stores, WriteOnly,
};
pub use mma::{LeftFragment, RightFragment, Sums};
pub use ops::{ConvertFrom, Dividable, Ordered, SameWidth, Shuffled, Signed};
pub use print::{TargetError, inst, print, print_with_lines, version};
pub use ring::{Ring, RingAt, RingShape};
#[cfg(feature = "samples")]
pub use sample::{Sample, samples};
pub use target::{Target, Version};
pub use tensor::{Descriptor, Staged, TensorArg, TileElem, TileOf, Tiles, e4m3, e5m2, tf32};
pub use tile::{MapBox, Swizzle, Tile};
pub use ty::{Class, Imm, Int, Int32, Kind, Lit, Num, Scalar, Ty, bf16, f16, f16x2};
pub use wgmma::{Accumulators, Packed, Times};

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(BuildError, Errors, ShapeError, TargetError);
