//! The names that most programs need: `use warpwright_driver::prelude::*;`.
//!
//! The prelude contains the driver's objects, memory, streams, kernels and graphs, and the macro
//! [`kernel!`](crate::kernel). Names for special tasks, for example
//! [`MemoryPool`](crate::MemoryPool) or [`Library`](crate::Library), are only at the root of the
//! crate.
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

pub use crate::kernel;
pub use crate::{
    Access, Boxed, Buffer, Capture, CaptureMode, Context, Device, Driver, EdgeKind, Element, Error,
    Event, Function, Graph, GraphExec, Host, HostArg, Kernel, Launch, LaunchConfig, Managed,
    MapArg, Module, NodeId, Parameter, Pinned, Queue, Recorder, Registered, Staging, Stream,
    TensorMapBuilder, View, WaitFor, Work, bf16, capture, capture_into, f16,
};
