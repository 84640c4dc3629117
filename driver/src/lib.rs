//! Safe CUDA driver handles, typed launches and hand-built graphs.
//!
//! The driver is found and opened at run time; nothing is linked and no CUDA version is chosen when building. What
//! is here:
//!
//! - [`Driver`], [`Device`], [`Context`], [`Stream`], [`Event`]: the driver's objects. Each keeps alive what it needs.
//! - [`Buffer`], [`Pinned`], [`Managed`], [`Registered`] and [`View`]: memory, and parts of it to hand to kernels.
//!   [`Boxed`]: rows and slices of it. [`MemoryPool`]: memory in the order of a stream. [`GrowableBuffer`]: memory that
//!   grows where it is. [`Staging`]: much memory of the host, copied to the device at the speed of the bus.
//! - [`kernel!`], [`Module`], [`Library`] and [`Function`]: kernels of PTX, cubins and fatbins of any source, with typed
//!   arguments that are compared with the text. [`LaunchConfig`]: the shape of a launch. [`TensorMap`]: a tensor as an
//!   argument.
//! - [`Kernel`]: a kernel of `ptx-gen`, built, compiled and loaded; its arguments are typed by its `args!`.
//! - [`Queue`]: what takes work. A [`Stream`] runs it, a [`Recorder`] makes it a graph whose edges follow from what
//!   each launch reads and writes, or one pipeline of overlapped kernels, a [`Capture`] has the driver make one.
//! - [`Graph`] and [`GraphExec`]: nodes and edges by hand, replayed, with arguments changed in place. An edge is full,
//!   or [programmatic](EdgeKind::Programmatic): the later kernel starts early and waits by itself.
//!   [`Conditional`] nodes branch and loop on the device.
//!
//! Without a GPU, the emulator takes the driver's place: [`Driver::of`]`(warpwright_cuda_emu::library())` in the same
//! program, or its shared library by the environment variable `WARPWRIGHT_LIBCUDA`, which names the driver to load.
//!
//! ```
//! # use ptx_gen::{args, Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side};
//! # args! { pub struct AddArgs { x: In<f32>, y: Out<f32>, n: u32, add: f32 } }
//! # struct Add;
//! # impl KernelDef for Add {
//! #     type Args<S: Side> = AddArgs<S>;
//! #     fn name(&self) -> String { "add".into() }
//! #     fn block(&self) -> u32 { 128 }
//! #     fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(a.n.div_ceil(128))) }
//! #     fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
//! #         let i = k.ctaid() * 128 + k.tid();
//! #         k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
//! #     }
//! #     fn reference(&self, a: AddArgs<Cpu<'_>>) {
//! #         a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
//! #     }
//! # }
//! use warpwright_driver::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let driver = Driver::of(warpwright_cuda_emu::library())?;
//! # /*
//! let driver = Driver::load()?;
//! # */
//! let context = Context::new(&driver.device(0)?)?;
//! let stream = Stream::new(&context)?;
//! // SAFETY: the program stays below `n`, and the contract refuses buffers that are shorter.
//! let add = unsafe { Kernel::load(&context, Add) }?; // y = x + add
//! let (x, y) = (Buffer::from_slice(&context, &[1.0, 2.0])?, Buffer::zeroed(&context, 2)?);
//!
//! let mut recorder = Recorder::new(&context)?;
//! recorder.launch(&add, AddArgs { x: &x, y: &y, n: 2, add: 10.0 })?;
//! let node = recorder.last().unwrap();
//! recorder.launch(&add, AddArgs { x: &y, y: &x, n: 2, add: 100.0 })?;
//! let graph = recorder.finish();
//! assert_eq!(graph.edges().len(), 1); // the second reads what the first wrote
//!
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(stream.read(&x)?, [111.0, 112.0]);
//! exec.set_args(node, &add, AddArgs { x: &x, y: &y, n: 2, add: 0.0 })?;
//! exec.launch(&stream)?;
//! assert_eq!(stream.read(&x)?, [211.0, 212.0]);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `derive`, `#[derive(Element)]` makes a struct of numbers an [`Element`].
//!
//! Nothing is printed. With the feature `tracing`, its events tell what errors cannot, such as a failure in a destructor.

#![allow(unsafe_code)]
#![deny(missing_debug_implementations)]
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

extern crate warpwright_driver_sys as driver_sys;

// By the name that the tests outside use.
#[cfg(test)]
extern crate self as warpwright_driver;

/// Calls a function of the table and turns its code into a result that names the call.
///
/// Expands to the bare call, so that the caller writes the `unsafe` block and says why it is sound.
macro_rules! cu {
    ($driver:expr, $call:ident($($arg:expr),* $(,)?)) => {
        $driver.check(stringify!($call), ($driver.api().$call)($($arg),*))
    };
}

/// The same for a function that not every driver has: an absent one is an error that says which driver has it.
macro_rules! cu_if_there {
    ($driver:expr, $call:ident($($arg:expr),* $(,)?)) => {
        match $driver.api().$call {
            Some(call) => $driver.check(stringify!($call), call($($arg),*)),
            None => Err($driver.lacks(stringify!($call))),
        }
    };
}

/// Tells what no error can, such as a failure in a destructor: by `tracing`, if that feature is on.
macro_rules! tell {
    ($level:ident, $($what:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!($($what)*);
    }};
}

mod adopt;
mod args;
mod argument;
mod boxes;
mod cache;
mod capture;
mod config;
mod context;
mod device;
mod driver;
mod driver_error;
mod element;
mod error;
mod event;
mod few;
mod function;
mod gate;
mod graph;
mod image;
mod kernel;
mod launch;
mod library;
mod lock;
mod memory;
mod module;
mod occupancy;
mod order;
mod parameter;
mod peer;
mod ptx;
mod queue;
mod recorder;
mod regions;
mod release;
mod reserved;
mod signature;
mod stream;
mod stream_work;
mod tensor_map;
mod timeline;
mod upload;
mod uses;
mod wait;

pub use args::Host;
pub use argument::{HostArg, HostValue, MapArg};
pub use boxes::Boxed;
pub use cache::AccessWindow;
pub use capture::{Capture, capture, capture_into};
pub use config::LaunchConfig;
pub use context::{Context, Current};
pub use device::{Device, Properties};
pub use driver::{Driver, driver_load_error, is_driver_available};
pub use driver_error::{Absent, DriverError};
pub use element::{Element, ElementType};
pub use error::{Error, LaunchProblem, LoadError, ModuleError, ModuleReason, PtxLine, Stale};
pub use event::{Event, EventHandle};
pub use function::Function;
pub use graph::attribute::NodeAttribute;
pub use graph::exec::GraphExec;
pub use graph::instantiate::Instantiate;
pub use graph::profile::{Profile, ProfileRow, Untimed};
pub use graph::races::Race;
pub use graph::set::NodeWork;
pub use graph::{
    Allocated, Child, Condition, Conditional, Edge, EdgeKind, Graph, HostCall, Node, NodeId, NodeKind,
    WordOperation, Words,
};
pub use image::{JitOptions, ListedKernel};
pub use kernel::{AnyFunction, Kernel, load_any};
pub use launch::Launch;
pub use library::Library;
pub use memory::host::{Managed, Registered};
pub use memory::mapping::{AddressRange, GrowableBuffer, PhysicalMemory};
pub use memory::pinned::Pinned;
pub use memory::pool::MemoryPool;
pub use memory::shared::MemoryHandle;
pub use memory::{Buffer, Region, View};
pub use module::Module;
pub use occupancy::SuggestedBlock;
pub use parameter::{Parameter, ParameterType};
pub use ptx_gen::{Access, Elem, Geometry, Kind, Param, ParamKind, bf16, f16};
pub use queue::{Copy, Fill, Hazard, Queue, Work};
pub use recorder::Recorder;
pub use regions::CaptureMode;
pub use stream::Stream;
pub use stream_work::WaitFor;
pub use tensor_map::{Swizzle, TensorMap, TensorMapBuilder};
pub use upload::Staging;
pub use uses::Use;
#[cfg(feature = "derive")]
pub use warpwright_driver_derive::Element;
pub use warpwright_driver_sys as sys;

#[cfg(test)]
#[path = "../tests/locks/mod.rs"]
mod locks;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
