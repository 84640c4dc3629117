//! Write GPU kernels in Rust and print them as PTX, without nvcc, LLVM or a CUDA toolkit.
//!
//! A kernel is a Rust function that combines typed values. Every operation appends one PTX
//! instruction. Building a kernel validates it, and printing it gives the text of a `.ptx` file for
//! a chosen [`Target`]. This crate has no dependencies. To run kernels, pass the text to the CUDA
//! driver, for example with the crate `warpwright-driver`, or to the emulator `ptx-emu`, which
//! needs no GPU.
//!
//! This page is a guide. It starts with a first kernel and ends with tensor cores. The
//! [outline](#outline) at the end lists the items of the crate by topic.
//!
//! # A first kernel
//!
//! A kernel implements [`KernelDef`]: a name, an argument list, a launch contract, a program, and a
//! reference on the CPU. The macro [`args!`] declares the arguments once for all of them. This
//! kernel computes `y = a * x + y` with one thread per element:
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
//!         /// The number of elements.
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
//!
//!     fn block(&self) -> u32 {
//!         128
//!     }
//!
//!     // The launch contract, which the driver checks at each launch: `x` and `y` are lengths.
//!     fn grid(&self, a: &AxpyArgs<Shape>) -> Result<Grid, ShapeError> {
//!         let n = a.n as usize;
//!         self.require(a.x == n && a.y == n, || format!("x and y must hold n = {n} elements"))?;
//!         Ok(Grid::line(a.n.div_ceil(128)))
//!     }
//!
//!     // The program: `x` and `y` are pointers, `a` and `n` are registers.
//!     fn program<'k>(&self, k: Builder<'k>, a: AxpyArgs<Dev<'k>>) {
//!         let i = k.ctaid() * 128 + k.tid();
//!         k.when(i.lt(a.n), || {
//!             let x = a.x.at(i).ld();
//!             let y = a.y.at(i);
//!             y.st(a.a.fma(x, y.ld()));
//!         });
//!     }
//!
//!     // The specification: `x` and `y` are slices.
//!     fn reference(&self, a: AxpyArgs<Cpu<'_>>) {
//!         for (y, x) in a.y.iter_mut().zip(a.x) {
//!             *y = a.a.mul_add(*x, *y);
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = Axpy.build()?;
//! let ptx = print(&program, Target::named("sm_75").unwrap())?;
//! assert!(ptx.starts_with(".version 6.3\n.target sm_75\n"));
//! assert!(ptx.contains("fma.rn.f32 %f1_2, %f0, %f1_0, %f1_1;"));
//!
//! // Run it on the emulator, with two blocks for 200 elements.
//! let module = ptx_emu::Module::parse(&ptx)?.complete()?;
//! let memory = ptx_emu::Memory::new(1 << 20);
//! let x = memory.alloc(800)?;
//! let y = memory.alloc(800)?;
//! memory.write(x, &1.5f32.to_le_bytes().repeat(200))?;
//! memory.write(y, &1.0f32.to_le_bytes().repeat(200))?;
//! let mut params = [x.to_le_bytes(), y.to_le_bytes()].concat();
//! params.extend(2.0f32.to_le_bytes());
//! params.extend(200u32.to_le_bytes());
//! let launch = ptx_emu::Launch {
//!     kernel: module.kernel("axpy").unwrap(),
//!     grid: [2, 1, 1],
//!     block: [128, 1, 1],
//!     dynamic_shared: 0,
//!     params: &params,
//! };
//! ptx_emu::run(&memory, &launch, &ptx_emu::Schedule::default(), ptx_emu::Trace::Off)?;
//! let mut last = [0; 4];
//! memory.read(y + 796, &mut last)?;
//! assert_eq!(f32::from_le_bytes(last), 4.0);
//! # Ok(())
//! # }
//! ```
//!
//! The program prints as follows. The branch skips the threads beyond the end, and registers of the
//! inner block have the nesting depth in their names:
//!
//! ```text
//! .visible .entry axpy(
//!     .param .u64 x,
//!     .param .u64 y,
//!     .param .f32 a,
//!     .param .u32 n
//! )
//! .reqntid 128, 1, 1
//! {
//!     .reg .pred %p<1>; .reg .b32 %r<5>; .reg .f32 %f<1>; .reg .b64 %rd<4>;
//!     ld.param.u64 %rd0, [x];
//!     cvta.to.global.u64 %rd1, %rd0;
//!     ...
//!     setp.lt.u32 %p0, %r4, %r0;
//!     @!%p0 bra $end0;
//!     {
//!         .reg .f32 %f1_<3>; .reg .b64 %rd1_<2>;
//!         ...
//!         fma.rn.f32 %f1_2, %f0, %f1_0, %f1_1;
//!         st.global.f32 [%rd1_1], %f1_2;
//!     }
//! $end0:
//!     ret;
//! }
//! ```
//!
//! # Values, operators and methods
//!
//! A [`Val`] is a register that is written once. [`F32`], [`U32`], [`I32`], [`U64`] and [`Pred`]
//! are values of one type. A method has the name of its mnemonic, and an operator is the plain
//! operation of the type. Multiplications and additions are never fused, unless you write
//! [`fma`](Val::fma). Nothing converts implicitly: [`cvt`](Val::cvt) converts and
//! [`bits`](Val::bits) reinterprets. Literals can be operands:
//!
//! ```
//! # use ptx_gen::prelude::*;
//! # let ptx = ptx_gen::example(|k, a| {
//! let i = k.ctaid() * 128 + k.tid();
//! let x = a.x.at(i).ld();
//! let scaled = (x * 0.5 + 1.0).max(0.0);
//! let index = i.cvt::<f32>();
//! a.x.at(i).st(scaled * index);
//! # })?;
//! assert!(ptx.contains("mul.rn.f32 %f1, %f0, 0f3F000000;"));
//! assert!(ptx.contains("cvt.rn.f32.u32"));
//! # Ok::<(), ptx_gen::Errors>(())
//! ```
//!
//! In the examples of this crate, `k` is the [`Builder`] and `ptx` the printed kernel. `a.x` and
//! `a.i` are [`InOut`] buffers of `f32` and `u32`, and `a.w` and `a.h` are [`In`] buffers of `f32`
//! and `f16`. `a.n` is their length. Blocks have 128 threads.
//!
//! There is no way to insert raw text. An instruction that is missing is a row to be added to the
//! table in [`isa`].
//!
//! # Branches, variables and loops
//!
//! [`Builder::when`] and [`When::otherwise`] branch on the GPU. A [`Var`] is a register that can be
//! written many times. It carries values out of branches and through loops. [`Builder::for_each`]
//! counts, and [`Builder::repeat`] loops until a predicate holds. In contrast, a Rust `for` or `if`
//! runs while the kernel is built, for example to unroll a loop:
//!
//! ```
//! # use ptx_gen::prelude::*;
//! # let ptx = ptx_gen::example(|k, a| {
//! let mut sum = k.var(0.0);
//! // A GPU loop: each thread adds up every 128th element, four at a time.
//! k.for_each(k.tid() * 4, a.n, 512, |i| {
//!     for x in a.w.at(i).ld4() {
//!         sum += x;
//!     }
//! });
//! let mut sign = k.var(0u32);
//! k.when(sum.get().lt(0.0), || sign.set(1))
//!     .otherwise(|| sign.set(2));
//! a.i.at(k.tid()).st(&sign);
//! # })?;
//! assert_eq!(ptx.matches("add.rn.f32").count(), 4);
//! assert!(ptx.contains("$loop0:"));
//! assert!(ptx.contains("bra $else1;"));
//! # Ok::<(), ptx_gen::Errors>(())
//! ```
//!
//! Control flow is a tree without labels. Validation walks this tree to check scopes, uniformity
//! and divergence.
//!
//! # Shared memory and barriers
//!
//! [`Builder::shared`] allocates static shared memory, and [`Builder::barrier`] waits for the
//! block. Between a store of one thread and a load of another there must be a barrier. This program
//! reverses 128 elements:
//!
//! ```
//! # use ptx_gen::prelude::*;
//! # let ptx = ptx_gen::example(|k, a| {
//! let staged = k.shared::<f32>("staged", 128);
//! let i = k.tid();
//! staged.at(i).st(a.w.at(i).ld());
//! k.barrier();
//! a.x.at(i).st(staged.at(127 - i).ld());
//! # })?;
//! assert!(ptx.contains(".shared .align 16 .b8 staged[512];"));
//! assert!(ptx.contains("bar.sync 0;"));
//! # Ok::<(), ptx_gen::Errors>(())
//! ```
//!
//! A missing barrier is a race, which validation cannot find in general. The emulator reports it
//! with both source lines.
//!
//! # Reductions
//!
//! Lanes of a warp exchange registers with [`shfl_bfly`](Val::shfl_bfly),
//! [`shfl_idx`](Val::shfl_idx) and similar methods. Five exchanges reduce a value over the warp.
//! One value per warp in shared memory reduces it over the block:
//!
//! ```
//! # use ptx_gen::prelude::*;
//! /// Returns the sum of `x` over the lanes of a warp, in every lane.
//! fn warp_sum<'k>(k: Builder<'k>, x: F32<'k>) -> F32<'k> {
//!     let mut sum = k.var(x);
//!     for lanes in [16u32, 8, 4, 2, 1] {
//!         sum += sum.get().shfl_bfly(lanes);
//!     }
//!     sum.get()
//! }
//!
//! # let ptx = ptx_gen::example(|k, a| {
//! let x = a.x.at(k.tid()).ld();
//! let sums = k.shared::<f32>("sums", 4);
//! let of_warp = warp_sum(k, x * x);
//! k.when(k.lane().eq(0), || sums.at(k.warp()).st(of_warp));
//! k.barrier();
//! let [s0, s1, s2, s3] = sums.ld4();
//! let mean = (s0 + s1 + (s2 + s3)) * (1.0 / 128.0);
//! a.x.at(k.tid()).st(x * (mean + 1e-5).rsqrt());
//! # })?;
//! assert_eq!(ptx.matches("shfl.sync.bfly.b32").count(), 5);
//! assert!(ptx.contains("rsqrt.approx.ftz.f32"));
//! # Ok::<(), ptx_gen::Errors>(())
//! ```
//!
//! This is RMSNorm of rows of 128 elements. Helper functions such as `warp_sum` are plain Rust
//! functions that take the builder. Accuracy is part of the documentation of each method:
//! [`rsqrt`](Val::rsqrt) has an error of at most 2 ulp.
//!
//! # Validation errors
//!
//! [`AnyKernel::build`] returns all errors of a program together. Each one names the Rust source
//! line, the problem and a remedy. In this kernel the barrier is inside a branch that only some
//! threads take:
//!
//! ```
//! # use ptx_gen::prelude::*;
//! # let errors = ptx_gen::example(|k, a| {
//! k.when(k.tid().lt(a.n), || {
//!     a.x.at(k.tid()).st(0.0);
//!     k.barrier();
//! });
//! # }).unwrap_err();
//! let error = errors.0[0].to_string();
//! assert!(error.contains("`bar.sync` needs the whole block, but the branch of line "));
//! assert!(error.ends_with("branch on a value that is the same in the whole block"));
//! ```
//!
//! It prints as one line, which is wrapped here:
//!
//! ```text
//! src/kernels/zero.rs:27: `bar.sync` needs the whole block, but the branch of line 25 splits it;
//! move it out, or branch on a value that is the same in the whole block
//! ```
//!
//! Validation checks operands, scopes, uniformity, the use of mbarriers and of asynchronous
//! matmuls, and the limits of devices. It does not check addresses, races or uninitialized memory.
//! The emulator checks these while the kernel runs.
//!
//! # Tensor cores
//!
//! A warp multiplies 16 by 16 and 16 by 8 matrices with `mma.sync` (sm_80). [`Sums`] are the
//! accumulators. [`LeftFragment`] and [`RightFragment`] are the operands, which
//! [`ldmatrix4`](Ptr::ldmatrix4) and [`ldmatrix2`](Ptr::ldmatrix2) load from shared memory. See
//! [`Sums`] for an example.
//!
//! On sm_90a, a warpgroup multiplies tiles of shared memory asynchronously with `wgmma`. A
//! [`TileOf`] constant describes such a tile: its layout, the tensor map that copies it, and the
//! operand of the matmul. This program copies a 64 by 64 tile of each matrix and multiplies them:
//!
//! ```
//! use ptx_gen::prelude::*;
//! use ptx_gen::{Accumulators, Swizzle, TileOf};
//!
//! const TILE: TileOf<f16> = TileOf::new(64, 64, Swizzle::B128);
//!
//! args! {
//!     /// `y = a b^T` for 64 by 64 matrices
//!     pub struct MatmulArgs {
//!         /// `[64, 64]`
//!         a: InMap<f16>,
//!         /// `[64, 64]`
//!         b: InMap<f16>,
//!         /// `[64, 64]`
//!         y: OutMap<f16>,
//!     }
//! }
//!
//! struct Matmul;
//!
//! impl KernelDef for Matmul {
//! #   type Args<S: Side> = MatmulArgs<S>;
//! #   fn name(&self) -> String {
//! #       "matmul".into()
//! #   }
//! #   fn block(&self) -> u32 {
//! #       128
//! #   }
//! #   fn grid(&self, _: &MatmulArgs<Shape>) -> Result<Grid, ShapeError> {
//! #       Ok(Grid { shared: 3 * TILE.bytes(), ..Grid::line(1) })
//! #   }
//! #   fn reference(&self, _: MatmulArgs<Cpu<'_>>) {}
//!     fn program<'k>(&self, k: Builder<'k>, args: MatmulArgs<Dev<'k>>) {
//!         let memory = k.tile_memory("tiles");
//!         let a = args.a.of(TILE).at(memory);
//!         let b = args.b.of(TILE).at(memory.at(TILE.bytes()));
//!         let y = args.y.of(TILE).at(memory.at(2 * TILE.bytes()));
//!         let landed = k.shared::<u64>("landed", 1).mbarrier();
//!         let zero = k.val(0u32);
//!
//!         // One thread starts both copies, and an mbarrier counts their bytes.
//!         k.when(k.tid().eq(0), || {
//!             landed.init(1);
//!             k.fence_mbarriers();
//!             landed.arrive_expect(2 * TILE.bytes());
//!             a.load(zero, zero, landed);
//!             b.load(zero, zero, landed);
//!         });
//!         k.barrier();
//!         landed.wait(0);
//!
//!         // The matmul runs asynchronously between the fence and the wait.
//!         let mut sums = Accumulators::zero(k, 64);
//!         k.wgmma_fence();
//!         sums.multiply_tiles(a.by_columns(), b.by_columns(), k.always());
//!         k.wgmma_commit();
//!         k.wgmma_wait(0);
//!
//!         // Round the accumulators into the third tile, and copy that to global memory.
//!         y.put(&sums, 0);
//!         k.fence_async();
//!         k.barrier();
//!         k.when(k.tid().eq(0), || {
//!             y.store(zero, zero);
//!             k.commit_stores();
//!             k.wait_stores(0);
//!         });
//!     }
//! }
//!
//! let program = Matmul.build().unwrap();
//! let ptx = print(&program, Target::named("sm_90a").unwrap()).unwrap();
//! // The inner dimension of 64 takes four instructions of 16.
//! let wgmma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16";
//! assert_eq!(ptx.matches(wgmma).count(), 4);
//! let error = print(&program, Target::named("sm_80").unwrap()).unwrap_err();
//! assert_eq!(error.to_string(), "matmul needs sm_90a, not sm_80");
//! ```
//!
//! A real kernel overlaps copies with matmuls. [`Ring`] is a pipeline of stages in shared memory,
//! and [`Builder::roles`] lets one warpgroup copy while the others multiply.
//!
//! # Outline
//!
//! - **Kernels**: [`KernelDef`], [`AnyKernel`], [`Grid`], [`Geometry`], [`ShapeError`],
//!   [`Program`], [`Note`].
//! - **Arguments**: [`args!`], [`In`], [`Out`], [`InOut`], [`InMap`], [`OutMap`], and the sides
//!   [`Dev`], [`Shape`] and [`Cpu`]. Tools that walk argument lists use [`ArgList`], [`Source`],
//!   [`Sink`], [`Field`], [`Param`], [`ParamKind`], [`Access`], [`ShapeArg`] and [`CpuArg`].
//! - **Building**: [`Builder`], [`When`], [`Role`]. `Builder` has thread and block indices, control
//!   flow, barriers and shared memory.
//! - **Values**: [`Val`], [`Var`], [`Src`], [`Pred`], [`F32`], [`U32`], [`I32`], [`U64`].
//!   Half-precision types: [`f16`](struct@f16), [`bf16`], [`f16x2`].
//! - **Types of values**: [`Ty`], [`Lit`], [`Num`], [`Int`], [`Int32`], [`Scalar`], [`Ordered`],
//!   [`Signed`], [`Dividable`], [`Shuffled`], [`ConvertFrom`], [`SameWidth`], [`Kind`].
//! - **Memory**: [`Ptr`] in the spaces [`ReadOnly`], [`ReadOnce`], [`Fresh`], [`WriteOnly`],
//!   [`ReadWrite`], [`Shared`] and [`Peer`], and the traits [`Elem`], [`Space`], [`Loads`] and
//!   [`Stores`]. `Ptr` has loads, stores and atomics.
//! - **Asynchronous copies**: [`Mbarrier`], [`Ring`], [`RingShape`], [`RingAt`]. Tensor maps:
//!   [`TensorArg`], [`TileOf`], [`Tile`], [`Tiles`], [`Staged`], [`TensorBox`], [`Boxes`],
//!   [`StagedBox`], [`MapBox`], [`Swizzle`].
//! - **Tensor cores**: [`Sums`], [`LeftFragment`] and [`RightFragment`] for a warp.
//!   [`Accumulators`], [`Descriptor`], [`Times`], [`Packed`] and [`TileElem`] with [`tf32`],
//!   [`e4m3`] and [`e5m2`] for a warpgroup.
//! - **Validation**: [`Errors`], [`BuildError`], [`ErrorKind`], [`Unmatched`], [`Misused`].
//! - **Printing**: [`print()`], [`print_with_lines`], [`Target`], [`Version`], [`TargetError`].
//! - **The instruction table**: [`isa`].

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
#[cfg(feature = "samples")]
mod example;
mod fold;
mod inline_vec;
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
pub use ir::{Access, At, Note, Param, ParamKind, Program, Reg};
pub use kernel::{AnyKernel, Geometry, Grid, KernelDef, ShapeError};
pub use mem::{
    Fresh, Loads, Peer, Ptr, ReadOnce, ReadOnly, ReadWrite, Shared, Space, Stores, WriteOnly,
};
pub use mma::{LeftFragment, RightFragment, Sums};
pub use ops::{ConvertFrom, Dividable, Ordered, SameWidth, Shuffled, Signed};
pub use print::{TargetError, print, print_with_lines, version};
pub use ring::{Ring, RingAt, RingShape};
pub use target::{Target, Version};
pub use tensor::{Descriptor, Staged, TensorArg, TileElem, TileOf, Tiles, e4m3, e5m2, tf32};
pub use tile::{MapBox, Swizzle, Tile};
pub use ty::{Class, Imm, Int, Int32, Kind, Lit, Num, Scalar, Ty, bf16, f16, f16x2};
pub use wgmma::{Accumulators, Packed, Times};

// The intermediate representation and the samples are for the tools of this workspace.
#[cfg(feature = "samples")]
#[doc(hidden)]
pub use example::{ExampleArgs, example};
#[doc(hidden)]
pub use inline_vec::InlineVec;
#[doc(hidden)]
pub use ir::{Base, Inst, Needs, Operand, SharedArray, Stmt, StmtBlock};
#[doc(hidden)]
pub use level::Level;
#[doc(hidden)]
pub use mem::Rows;
#[doc(hidden)]
pub use print::inst;
#[cfg(feature = "samples")]
#[doc(hidden)]
pub use sample::{Sample, samples};

/// Implements `Debug` as `Display`, so that `unwrap` and an error of `main` print the sentence.
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
