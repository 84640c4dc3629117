//! Safe CUDA driver handles, typed kernel launches and graphs.
//!
//! The crate opens the CUDA driver at run time. You do not link it, you do not need the CUDA
//! toolkit, and you do not choose a CUDA version when you build. A function that the installed
//! driver lacks returns an error that names the required CUDA version.
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
//! #   let driver = Driver::from_library(warpwright_cuda_emu::library())?;
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
//! The macro [`kernel!`] declares a kernel of any PTX. `load` compares the declaration with the PTX
//! and with the kernel that the driver has loaded. Loading is `unsafe`, because only the author of
//! a kernel knows which memory it accesses. Launching is safe.
//!
//! Import the [`prelude`] for the names that most programs need. No name of this crate shadows a
//! name of Rust's own prelude.
//!
//! # Outline
//!
//! The root has only [`Driver`], [`Context`], [`Error`], the macro [`kernel!`] and the raw
//! functions in [`sys`]. Everything else is in a module. Each module uses only the modules above it
//! in this table:
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | the error type and its parts |
//! | [`device`] | the driver, devices and contexts |
//! | [`memory`] | buffers and views, host memory, pools, mapped memory, element types, tensor maps |
//! | [`module`] | modules, libraries, functions and their parameters |
//! | [`ordering`] | events, memory accesses and hazards |
//! | [`launch`] | launch configurations, arguments, prepared launches, kernels of `ptx-gen` |
//! | [`stream`] | streams, and the work that is queued in them |
//! | [`graph`] | graphs, their nodes and edges, recorders, captures and profiles |
//! | [`prelude`] | the names that most programs need |
//!
//! Each module page says what its types do together and which rules they keep.
//!
//! # Memory
//!
//! A [`Buffer`] is device memory of one element type. It dereferences to a [`View`], which refers
//! to a range of elements and keeps the memory alive. Kernels, copies and fills take views.
//!
//! ```
//! # use warpwright_driver::prelude::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
//! A buffer can be dropped at any time. Its memory is freed after the work that uses it.
//!
//! # Streams
//!
//! Work in one [`Stream`] runs in order, and asynchronously to the host. Two streams run
//! concurrently. If they access the same bytes and one of them writes, you must order them with an
//! [`Event`]. Otherwise the later call returns [`Error::UnorderedStreams`]. Events also measure
//! time.
//!
//! ```
//! # use warpwright_driver::prelude::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
//! # Modules and kernels
//!
//! A [`Module`] is PTX or machine code in a context. The driver compiles PTX when the module is
//! loaded. If that fails, the error contains the compiler's log and quotes the line.
//!
//! - For your own PTX, declare kernels with [`kernel!`], as in the first program.
//! - If parameters are known only at run time, use [`Module::function`] and [`Launch::new`].
//! - To launch the same kernel many times, prepare a [`Launch`] and queue it with
//!   [`Stream::run_launch`].
//! - To use one image in several contexts, load a [`Library`].
//!
//! A [`Kernel`] is a kernel that was written in Rust with `ptx-gen`. See
//! [below](#kernels-written-in-rust).
//!
//! # Graphs
//!
//! A [`Graph`] is work with its order, which the device receives in a single call. If you build it
//! by hand, you name the nodes that each node follows. If you forget an edge, so that two nodes
//! could access the same bytes at the same time, [`Graph::instantiate`] returns an error that names
//! both nodes.
//!
//! ```
//! # use warpwright_driver::prelude::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
//! A [`Recorder`] derives the edges from the memory accesses. In a [`Capture`] the driver adds
//! them. Streams, recorders and captures implement [`Queue`], so that you write the work once:
//!
//! ```
//! # use warpwright_driver::prelude::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
//! Edges are full or [programmatic](graph::EdgeKind::Programmatic). [`Conditional`] nodes branch
//! and loop on the device. An instantiated graph changes its arguments in place, see
//! [`GraphExec::set`].
//!
//! # Errors
//!
//! Every fallible function returns [`Error`]. Its text names the objects involved and says what to
//! do, so give buffers and streams a label:
//!
//! ```
//! # use warpwright_driver::prelude::*;
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! # let stream = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
//! let y = Buffer::<f32>::zeroed(&context, 5)?.labelled("y");
//! let error = stream.copy(&x, &y).unwrap_err();
//! assert_eq!(error.to_string(), "copy: 4 elements for y, which has 5");
//! # Ok(())
//! # }
//! ```
//!
//! The device reports faults asynchronously: a call can return the fault of earlier work. After a
//! fault the context is lost, and [`Error::is_device_fault`] returns true. Destructors cannot
//! return errors. Enable the feature `tracing` to log them.
//!
//! # Soundness
//!
//! Safe code cannot cause undefined behavior on the host or a data race on the device, provided
//! that the `unsafe` functions it builds on were used correctly:
//!
//! - Memory, kernels, events and graphs live until the work that uses them is complete. The order
//!   in which you drop them does not matter, and neither do panics and device faults.
//! - Work of two streams, and two nodes of a graph, must be ordered if they conflict. Otherwise the
//!   call returns an error.
//! - A host function that unwinds does not abort the process, and a handle of one driver is never
//!   passed to another.
//! - A capture always ends. Calls that would invalidate it are refused, and destructors wait until
//!   it ends.
//!
//! Four groups of functions are `unsafe`, each with a list of obligations:
//!
//! - Loading kernels, such as [`Module::function`] and [`Kernel::load`]. The kernel must stay
//!   within its arguments.
//! - Wrapping foreign objects, such as [`Buffer::from_raw`], and sharing memory with other
//!   processes.
//! - Waiving a check, such as [`Stream::assume_after`] and [`Graph::instantiate_with_races`].
//! - Host slices of memory that the device can write, such as [`Pinned::as_slice`].
//!
//! # Without a GPU
//!
//! `warpwright-cuda-emu` implements the driver API on the CPU, and all examples here run on it.
//! Link it in tests and pass `warpwright_cuda_emu::library()` to [`Driver::from_library`]. To run
//! an existing program on it, name its shared library in the environment variable
//! `WARPWRIGHT_LIBCUDA`, or install it as `libcuda.so.1`. The emulator reports bugs that a GPU
//! tolerates, such as races, with the kernel, the line and the thread.
//!
//! # Kernels written in Rust
//!
//! A [`Kernel`] is a kernel of `ptx-gen` that was built, compiled and loaded. Its arguments are
//! typed.
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
//! # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
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
//! - `derive` adds `#[derive(Element)]`, which makes a plain struct an [`Element`].
//! - `tracing` logs errors that cannot be returned, for example those of destructors. The crate
//!   never prints.
//!
//! [`Buffer`]: memory::Buffer
//! [`Buffer::from_raw`]: memory::Buffer::from_raw
//! [`Capture`]: graph::Capture
//! [`Conditional`]: graph::Conditional
//! [`Element`]: memory::Element
//! [`Event`]: ordering::Event
//! [`Graph`]: graph::Graph
//! [`Graph::instantiate`]: graph::Graph::instantiate
//! [`Graph::instantiate_with_races`]: graph::Graph::instantiate_with_races
//! [`GraphExec::set`]: graph::GraphExec::set
//! [`Kernel`]: launch::Kernel
//! [`Kernel::load`]: launch::Kernel::load
//! [`Launch`]: launch::Launch
//! [`Launch::new`]: launch::Launch::new
//! [`Library`]: module::Library
//! [`Module`]: module::Module
//! [`Module::function`]: module::Module::function
//! [`Pinned::as_slice`]: memory::Pinned::as_slice
//! [`Queue`]: stream::Queue
//! [`Recorder`]: graph::Recorder
//! [`Stream`]: stream::Stream
//! [`Stream::assume_after`]: stream::Stream::assume_after
//! [`Stream::run_launch`]: stream::Stream::run_launch
//! [`View`]: memory::View

#![allow(
    unsafe_code,
    reason = "the crate is the safe layer over the driver's C API"
)]
#![deny(missing_debug_implementations)]
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

extern crate warpwright_driver_sys as driver_sys;

// Unit tests include files of `tests/`, which use the crate by its external name.
#[cfg(test)]
extern crate self as warpwright_driver;

/// Calls a function of the driver's table and converts its code into a result that names the call.
///
/// It expands to the bare call, so that the caller writes the `unsafe` block and its SAFETY
/// comment.
macro_rules! cu {
    ($driver:expr, $call:ident($($arg:expr),* $(,)?)) => {
        $driver.check(stringify!($call), ($driver.api().$call)($($arg),*))
    };
}

/// Calls a function that not every driver has, like [`cu!`]. If the driver lacks it, the result is
/// an error that names the required CUDA version.
macro_rules! cu_optional {
    ($driver:expr, $call:ident($($arg:expr),* $(,)?)) => {
        match $driver.api().$call {
            Some(call) => $driver.check(stringify!($call), call($($arg),*)),
            None => Err($driver.lacks(stringify!($call))),
        }
    };
}

/// Logs an event that no error reports, such as a failure in a destructor, if the feature `tracing`
/// is enabled.
macro_rules! log_event {
    ($level:ident, $($what:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!($($what)*);
    }};
}

pub mod device;
pub mod error;
pub mod graph;
pub mod launch;
mod lifetime;
pub mod memory;
pub mod module;
pub mod ordering;
pub mod prelude;
mod small_vec;
pub mod stream;

pub use device::{Context, Driver};
pub use error::Error;
pub use warpwright_driver_sys as sys;

#[cfg(test)]
#[path = "../tests/locks/mod.rs"]
mod locks;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
