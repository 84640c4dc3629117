//! The names that most kernels need: `use ptx_gen::prelude::*;`.
//!
//! The prelude contains the traits and types of a [`KernelDef`], the macro [`args!`](crate::args),
//! values, pointers and [`print()`]. Import names for special tasks, for example
//! [`Mbarrier`](crate::Mbarrier) or [`Tile`](crate::Tile), from the root of the crate.
//!
//! No name in it shadows a name of the standard prelude. You can import it together with the
//! prelude of `warpwright-driver`.
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
//!         for (y, x) in a.y.iter_mut().zip(a.x.iter().rev()) {
//!             *y = *x;
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ptx = print(&Reverse.build()?, Target::named("sm_75").unwrap())?;
//!
//! // Any program that reads PTX can run it. Here it is the emulator.
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
