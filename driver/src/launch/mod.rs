//! Kernel launches: configurations, arguments, and the kernels of `ptx-gen`.
//!
//! A [`Launch`] is a [`Function`](crate::module::Function) with its [`LaunchConfig`] and its
//! arguments, all checked together. Queue it in a stream, add it to a graph, or keep it and queue
//! it many times. Untyped arguments are [`HostArg`]s.
//!
//! A [`Kernel`] is a kernel that was written in Rust with `ptx-gen`. Its arguments are a struct
//! whose fields are views, tensor maps ([`MapArg`]) and numbers on the side of the [`Host`]. The
//! kernel computes its own grid and block from them.
//!
//! - The number, the types and the context of the arguments are checked once, when the launch is
//!   prepared. So are the limits of the device for blocks, shared memory and clusters.
//! - A prepared launch keeps its function and the memory of its arguments alive.
//! - A launch never allocates device memory and never waits for the device.

pub(crate) mod borrowed_args;
mod config;
mod host_arg;
pub(crate) mod prepared;
mod typed_kernel;

pub use borrowed_args::Host;
pub use config::LaunchConfig;
pub use host_arg::{HostArg, HostValue, MapArg};
pub use prepared::Launch;
pub use ptx_gen::{Elem, Geometry};
pub use typed_kernel::{AnyFunction, Kernel, load_any};
