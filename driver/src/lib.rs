//! Safe CUDA driver handles, typed launches and graphs.
//!
//! The driver is found and opened at run time. You do not link it, and you do not choose a CUDA version when you build.
//!
//! # A first program
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! const PTX: &str = "
//! .version 7.0
//! .target sm_70
//! .address_size 64
//!
//! // y[i] *= a, for i < n
//! .visible .entry scale(.param .u32 n, .param .f32 a, .param .u64 y)
//! {
//!     .reg .pred %p; .reg .b32 %n, %i, %block, %size; .reg .f32 %a, %v; .reg .b64 %y;
//!     ld.param.u32 %n, [n];
//!     ld.param.f32 %a, [a];
//!     ld.param.u64 %y, [y];
//!     mov.u32 %block, %ctaid.x;
//!     mov.u32 %size, %ntid.x;
//!     mov.u32 %i, %tid.x;
//!     mad.lo.u32 %i, %block, %size, %i;
//!     setp.ge.u32 %p, %i, %n;
//!     @%p ret;
//!     mad.wide.u32 %y, %i, 4, %y;
//!     ld.global.f32 %v, [%y];
//!     mul.f32 %v, %v, %a;
//!     st.global.f32 [%y], %v;
//!     ret;
//! }
//! ";
//!
//! kernel! {
//!     /// `y = a y`
//!     pub struct Scale = "scale"(n: u32, a: f32, y: &mut [f32]);
//! }
//!
//! fn main() -> Result<(), Error> {
//! #   let driver = Driver::of(warpwright_cuda_emu::library())?;
//! #   /*
//!     let driver = Driver::load()?;
//! #   */
//!     let device = driver.device(0)?;
//!     println!("{device}, driver for CUDA {:?}", driver.version());
//!     let context = Context::new(&device)?;
//!     let module = Module::load(&context, PTX)?;
//!     // SAFETY: the kernel stays below `n`, and changes only `y`.
//!     let scale = unsafe { Scale::load(&module) }?;
//!
//!     let y = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?;
//!     let stream = Stream::new(&context)?;
//!     scale.launch(&stream, LaunchConfig::line(1, 128), 3, 10.0, &y)?;
//!     assert_eq!(stream.read(&y)?, [10.0, 20.0, 30.0]);
//!     Ok(())
//! }
//! ```
//!
//! [`kernel!`] declares a kernel of any PTX. `load` compares the declaration with the text and with what the driver
//! reports. Loading is `unsafe`, because only the author of a kernel knows which memory it touches. Launching is safe.
//!
//! The [`prelude`] has the names that most programs need. No name of this crate is a name of Rust's own prelude.
//!
//! # Contents
//!
//! - [`Driver`], [`Device`], [`Context`], [`Stream`] and [`Event`] are the driver's objects. Each keeps alive what it
//!   needs.
//! - [`Buffer`], [`Pinned`], [`Managed`] and [`Registered`] are memory. A [`View`] is a part of it that keeps it alive, and
//!   a [`Boxed`] view has rows and slices. [`MemoryPool`] allocates in the order of a stream, [`GrowableBuffer`] grows in
//!   place, and [`Staging`] uploads much host memory.
//! - [`kernel!`], [`Module`], [`Library`] and [`Function`] are kernels from PTX, cubins and fatbins, with typed arguments.
//!   [`LaunchConfig`] is the shape of a launch. A [`TensorMap`] is a tensor as an argument.
//! - [`Kernel`] is a kernel of `ptx-gen` that was built, compiled and loaded. Its `args!` type its arguments.
//! - [`Queue`] is a destination for GPU work. A [`Stream`] runs the work. A [`Recorder`] makes a graph of it whose edges
//!   follow from what each launch reads and writes. In a [`Capture`] the driver makes the graph.
//! - [`Graph`] and [`GraphExec`] are nodes and edges by hand. A graph is launched any number of times, and its arguments
//!   change in place. Edges are full or [programmatic](EdgeKind::Programmatic). [`Conditional`] nodes branch and loop on
//!   the device.
//!
//! # Memory and streams
//!
//! Memory is a [`Buffer`], and work is queued on a [`Stream`].
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! let x = Buffer::from_slice(&context, &[1.0f32, 2.0, 3.0])?.labelled("x"); // errors show the label
//! let y = Buffer::<f32>::zeroed(&context, 3)?;
//! let stream = Stream::new(&context)?;
//! stream.copy(&x.view_range(1..3), &y.view_range(0..2))?; // queued
//! stream.fill(&y.view_range(2..3), 9.0)?; // queued after the copy
//! assert_eq!(stream.read(&y)?, [2.0, 3.0, 9.0]); // waits for both
//! # Ok(())
//! # }
//! ```
//!
//! Work in one stream runs in order. Work of two streams on the same bytes needs an [`Event`] between them and is refused
//! without one ([`Error::UnorderedStreams`]). Events also measure time.
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! let other = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 1000)?;
//! let start = Event::new(&context)?;
//! let filled = Event::new(&context)?;
//! start.record(&stream)?;
//! stream.fill(&x, 1.0)?;
//! filled.record(&stream)?;
//! other.wait(&filled)?;
//! other.fill(&x.view_range(0..10), 2.0)?;
//! other.synchronize()?;
//! println!("filled in {:?}", filled.since(&start)?);
//! # Ok(())
//! # }
//! ```
//!
//! # Graphs
//!
//! A [`Graph`] is work with its order, which the device receives in one call. When you build it by hand, you name for
//! each node the nodes that it comes after. If you forget an edge, so that two nodes could touch the same bytes at the
//! same time, [`Graph::instantiate`] refuses the graph and names both.
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! let y = Buffer::<f32>::zeroed(&context, 4)?;
//! let mut graph = Graph::new(&context)?;
//! let filled = graph.fill(&[], &x, 1.0)?;
//! graph.copy(&[filled], &x, &y)?;
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! exec.set(filled, Work::fill(&x, 5.0)?)?; // in place
//! exec.launch(&stream)?;
//! assert_eq!(stream.read(&y)?, [5.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! In a recorded graph the edges follow from what the work reads and writes. In a captured graph the driver adds them. All
//! three destinations implement [`Queue`], so that you write the work once:
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! fn step(queue: &mut impl Queue, x: &View<f32>, y: &View<f32>) -> Result<(), Error> {
//!     queue.fill(x, 1.0)?;
//!     queue.copy(x, y)
//! }
//!
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! let y = Buffer::<f32>::zeroed(&context, 4)?;
//! step(&mut &stream, &x, &y)?; // runs
//! let mut recorder = Recorder::new(&context)?;
//! step(&mut recorder, &x, &y)?;
//! let recorded = recorder.finish();
//! let captured = capture(&stream, CaptureMode::ThreadLocal, |queue| step(queue, &x, &y))?;
//! for graph in [recorded, captured] {
//!     graph.instantiate()?.launch(&stream)?;
//! }
//! assert_eq!(stream.read(&y)?, [1.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! # Without a GPU
//!
//! `warpwright-cuda-emu` is the driver API with a device that is a program, and all examples here run on it. Tests link
//! it and call [`Driver::of`]`(warpwright_cuda_emu::library())`. An existing program finds its shared library as
//! `libcuda.so.1`, or by the environment variable `WARPWRIGHT_LIBCUDA`, which names the driver to load. Mistakes that a
//! GPU tolerates are errors there, with the kernel, the line and the thread.
//!
//! # Kernels written in Rust
//!
//! A [`Kernel`] is a kernel of `ptx-gen`, built, compiled and loaded, with typed arguments.
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
//! use warpwright_driver::prelude::*;
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
//! let x = Buffer::from_slice(&context, &[1.0, 2.0])?;
//! let y = Buffer::zeroed(&context, 2)?;
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
//! # Features
//!
//! - `derive` adds `#[derive(Element)]`, which makes a struct of numbers an [`Element`].
//! - `tracing` logs failures that cannot be returned, for example those in destructors. The crate never prints.

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
mod callback;
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
mod limits;
mod lock;
mod memory;
mod module;
mod module_error;
mod occupancy;
mod order;
mod parameter;
mod peer;
pub mod prelude;
mod ptx;
mod queue;
mod recorder;
mod regions;
mod release;
mod reserved;
mod sentences;
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
pub use element::{ByValue, Element, ElementType};
pub use error::{Error, LaunchProblem, LoadError, Races, Stale};
pub use event::{Event, EventHandle};
pub use function::Function;
pub use graph::attribute::NodeAttribute;
pub use graph::exec::GraphExec;
pub use graph::instantiate::Instantiate;
pub use graph::profile::{Profile, ProfileRow, Untimed};
pub use graph::races::Race;
pub use graph::set::NodeWork;
pub use graph::{
    Allocated, Child, Condition, Conditional, Edge, EdgeKind, Graph, HostCall, Node, NodeId,
    NodeKind, WordOperation, Words,
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
pub use module_error::{ModuleError, ModuleReason, PtxLine};
pub use occupancy::SuggestedBlock;
pub use parameter::{Parameter, ParameterType};
pub use ptx_gen::{Access, Elem, Geometry, Kind, Param, ParamKind, Swizzle, bf16, f16};
pub use queue::{Hazard, MemoryCopy, MemoryFill, Queue, Work};
pub use recorder::Recorder;
pub use regions::CaptureMode;
pub use stream::Stream;
pub use stream_work::WaitFor;
pub use tensor_map::{TensorMap, TensorMapBuilder};
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
