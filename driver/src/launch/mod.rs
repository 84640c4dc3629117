//! Kernel launches: configurations, arguments, and the kernels of `ptx-gen`.
//!
//! A [`Launch`] is a [`Function`](crate::module::Function) with its [`LaunchConfig`] and its
//! arguments, all checked together. Queue it in a stream, add it to a graph, or keep it and queue
//! it many times.
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! let module = Module::load(&context, SCALE)?; // y[i] *= a, for i < n
//! let parameters = [
//!     Parameter::value::<u32>("n"),
//!     Parameter::value::<f32>("a"),
//!     Parameter::buffer::<f32>("y", Access::ReadWrite),
//! ];
//! // SAFETY: the kernel stays below `n`, and each launch passes at least that many elements.
//! let scale = unsafe { module.function("scale", &parameters) }?;
//! let y = Buffer::from_slice(&context, &[1.0f32, 2.0, 3.0])?;
//! // A view becomes an argument, and `*y` is the view of the whole buffer.
//! let args = vec![HostArg::scalar(3u32), HostArg::scalar(10.0f32), HostArg::from(&*y)];
//! let launch = Launch::new(&scale, LaunchConfig::line(1, 128), args)?;
//! let stream = Stream::new(&context)?;
//! stream.run_launch(&launch)?;
//! stream.run_launch(&launch)?;
//! assert_eq!(stream.read(&y)?, [100.0, 200.0, 300.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Kernel`] is a kernel that was written in Rust with `ptx-gen`. Its arguments are a struct
//! whose fields are views, tensor maps ([`MapArg`]) and numbers on the side of the [`Host`]. The
//! kernel computes its own grid and block from them.
//!
//! - The number, the types and the context of the arguments are checked once, when the launch is
//!   prepared. So are the limits of the device for blocks, shared memory and clusters.
//! - A prepared launch keeps its function and the memory of its arguments alive.
//! - Queuing a launch does not wait for the device.

pub(crate) mod borrowed_args;
mod host_arg;
pub(crate) mod prepared;
mod typed_kernel;

pub use crate::module::launch_config::LaunchConfig;
pub use borrowed_args::Host;
pub use host_arg::{HostArg, HostValue, MapArg};
pub use prepared::Launch;
pub use ptx_gen::{Elem, Geometry};
pub use typed_kernel::{AnyFunction, Kernel, load_any};
