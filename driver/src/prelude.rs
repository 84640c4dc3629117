//! The names that most programs need: `use warpwright_driver::prelude::*;`.
//!
//! The prelude contains the driver's objects, memory, streams, kernels and graphs, and the macro
//! [`kernel!`](crate::kernel). Names for special tasks, for example
//! [`MemoryPool`](crate::memory::MemoryPool) or [`Library`](crate::module::Library), are only in
//! their modules.
//!
//! No name of this crate shadows a name of the standard prelude. You can import the prelude of
//! `ptx-gen` into the same file.
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
//! # /*
//! let driver = Driver::load()?;
//! # */
//! let context = Context::new(&driver.device(0)?)?;
//! let stream = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! stream.fill(&x, 1.0)?;
//! assert_eq!(stream.read(&x)?, [1.0; 4]);
//! # Ok(())
//! # }
//! ```

pub use crate::device::{Context, Device, Driver};
pub use crate::error::Error;
pub use crate::graph::{
    Capture, CaptureMode, EdgeKind, Graph, GraphExec, NodeId, Recorder, capture, capture_into,
};
pub use crate::kernel;
pub use crate::launch::{Host, HostArg, Kernel, Launch, LaunchConfig, MapArg};
pub use crate::memory::{
    Boxed, Buffer, Element, Managed, Pinned, Registered, Staging, TensorMapBuilder, View, bf16, f16,
};
pub use crate::module::{Function, Module, Parameter};
pub use crate::ordering::{Access, Event};
pub use crate::stream::{Queue, Stream, WaitFor, Work};
