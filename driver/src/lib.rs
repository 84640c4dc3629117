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
//! # From the driver to a result
//!
//! A driver is found, opened and started; without one the error says what was tried. A [`Context`] takes a device into use.
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let driver = Driver::of(warpwright_cuda_emu::library())?;
//! # /*
//! let driver = Driver::load()?;
//! # */
//! let device = driver.device(0)?;
//! println!("{device}, driver for CUDA {:?}", driver.version());
//! let context = Context::new(&device)?;
//! # Ok(())
//! # }
//! ```
//!
//! Memory is a [`Buffer`], and parts of it are [`View`]s, which keep it alive. What waits for nobody is given to a [`Stream`].
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! let x = Buffer::from_slice(&context, &[1.0f32, 2.0, 3.0])?.labelled("x"); // errors show the label
//! let y = Buffer::<f32>::zeroed(&context, 3)?;
//! let stream = Stream::new(&context)?;
//! stream.copy(&x.view_range(1..3), &y.view_range(0..2))?; // queued
//! stream.fill(&y.view_range(2..3), 9.0)?; // queued behind it
//! assert_eq!(stream.read(&y)?, [2.0, 3.0, 9.0]); // waits for both
//! # Ok(())
//! # }
//! ```
//!
//! A kernel may be anybody's PTX. [`kernel!`] declares it, and what was loaded is compared with the declaration: loading is
//! `unsafe`, because only its author knows what a kernel does, and launching is not.
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
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
//! kernel! {
//!     /// `y = a y`
//!     pub struct Scale = "scale"(n: u32, a: f32, y: &mut [f32]);
//! }
//!
//! let module = Module::load(&context, PTX)?;
//! // SAFETY: the kernel stays below `n`, and changes nothing but `y`.
//! let scale = unsafe { Scale::load(&module) }?;
//! let y = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?;
//! scale.launch(&stream, LaunchConfig::line(1, 128), 3, 10.0, &y)?;
//! assert_eq!(stream.read(&y)?, [10.0, 20.0, 30.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Work in one stream runs in order. Work of two streams that meets on the same bytes needs an [`Event`] between, and is
//! refused without one ([`Error::UnorderedStreams`]). Events also tell the time.
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! let other = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 1000)?;
//! let (start, filled) = (Event::new(&context)?, Event::new(&context)?);
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
//! A [`Graph`] is work with its order, given to the device in one call as often as one likes. By hand, each node names those
//! that it comes after:
//!
//! ```
//! # use warpwright_driver::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
//! let mut graph = Graph::new(&context)?;
//! let filled = graph.fill(&[], &x, 1.0)?;
//! graph.copy(&[filled], &x, &y)?;
//! assert!(graph.races().is_empty());
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! exec.set(filled, Work::fill(&x, 5.0)?)?; // in place
//! exec.launch(&stream)?;
//! assert_eq!(stream.read(&y)?, [5.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! Recorded, the edges follow from what each piece of work reads and writes. Captured, the driver sees the work and draws them.
//! All three places take work by one trait, so that it is written once:
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
//! let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
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
//! `warpwright-cuda-emu` is the driver API with a device that is a program: all examples here run on it. Tests link it
//! (`Driver::of(warpwright_cuda_emu::library())`); a program that is built already finds it as `libcuda.so.1`. What a GPU lets
//! pass is an error there, which names the kernel, the line and the thread.
//!
//! # Kernels written in Rust
//!
//! A [`Kernel`] is one of `ptx-gen`: built, compiled and loaded, with its arguments typed.
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
mod limits;
mod lock;
mod memory;
mod module;
mod module_error;
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
pub use element::{Element, ElementType};
pub use error::{Error, LaunchProblem, LoadError, Stale};
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
pub use module_error::{ModuleError, ModuleReason, PtxLine};
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
