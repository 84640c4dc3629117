//! The names that most kernels need, for import as a whole: `use ptx_gen::prelude::*;`.
//!
//! The prelude has the traits and types of a [`KernelDef`], the macro [`args!`](crate::args), values, pointers and
//! [`print()`]. Names for special tasks, for example [`Mbarrier`](crate::Mbarrier) or [`Tile`](crate::Tile), are only in the
//! root of the crate.
//!
//! No name of this crate is a name of the standard prelude. The prelude of `warpwright-driver` can be imported in the same
//! file.
//!
//! # Example: a kernel on the CPU emulator
//! ```
//! use ptx_gen::prelude::*;
//!
//! args! {
//!     /// `y = x` in reverse order
//!     pub struct ReverseArgs {
//!         /// `[64]`
//!         x: In<f32>,
//!         /// `[64]`
//!         y: Out<f32>,
//!     }
//! }
//!
//! struct Reverse;
//!
//! impl KernelDef for Reverse {
//!     type Args<S: Side> = ReverseArgs<S>;
//!
//!     fn name(&self) -> String {
//!         "reverse".into()
//!     }
//!     fn block(&self) -> u32 {
//!         64
//!     }
//!     fn grid(&self, a: &ReverseArgs<Shape>) -> Result<Grid, ShapeError> {
//!         self.require(a.x == 64 && a.y == 64, || "x and y must hold 64 elements".into())?;
//!         Ok(Grid::line(1))
//!     }
//!     fn program<'k>(&self, k: Builder<'k>, a: ReverseArgs<Dev<'k>>) {
//!         a.y.at(63 - k.tid()).st(a.x.at(k.tid()).ld());
//!     }
//!     fn reference(&self, a: ReverseArgs<Cpu<'_>>) {
//!         a.y.iter_mut().zip(a.x.iter().rev()).for_each(|(y, x)| *y = *x);
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ptx = print(&Reverse.build()?, Target::named("sm_75").unwrap())?;
//!
//! // Any program that takes PTX can run it, here the emulator.
//! let module = ptx_emu::Module::parse(&ptx)?.complete()?;
//! let memory = ptx_emu::Memory::new(1 << 20);
//! let x = memory.alloc(256)?;
//! let y = memory.alloc(256)?;
//! let values: Vec<u8> = (0..64).flat_map(|i| (i as f32).to_le_bytes()).collect();
//! memory.write(x, &values)?;
//! let launch = ptx_emu::Launch {
//!     kernel: module.kernel("reverse").unwrap(),
//!     grid: [1, 1, 1],
//!     block: [64, 1, 1],
//!     dynamic_shared: 0,
//!     params: &[x.to_le_bytes(), y.to_le_bytes()].concat(),
//! };
//! ptx_emu::run(&memory, &launch, &ptx_emu::Schedule::default(), ptx_emu::Trace::Off)?;
//! let mut first = [0; 4];
//! memory.read(y, &mut first)?;
//! assert_eq!(f32::from_le_bytes(first), 63.0);
//! # Ok(())
//! # }
//! ```

pub use crate::args;
pub use crate::{
    Access, AnyKernel, Builder, Cpu, CpuArg, Dev, Elem, F32, Geometry, Grid, I32, In, InMap, InOut,
    KernelDef, Num, Ordered, Out, OutMap, Pred, Ptr, ReadOnly, ReadWrite, Scalar, Shape, ShapeArg,
    ShapeError, Shared, Side, Src, Target, U32, U64, Val, Var, WriteOnly, bf16, f16, f16x2, print,
};
