//! Streams, and the work that is queued in them.
//!
//! A [`Stream`] runs its work in order and asynchronously to the host. [`Work`] is a launch, a
//! [copy](MemoryCopy) or a [fill](MemoryFill). A stream also
//!
//! - calls host functions ([`Stream::call`]),
//! - waits for words of memory and writes them ([`Stream::wait_value`], [`Stream::write_value`]),
//! - records [events](crate::ordering::Event) and waits for them ([`Stream::wait`]),
//! - allocates memory in its order ([`Stream::alloc`]).
//!
//! Queued work runs later. [`Stream::read`] and [`Stream::synchronize`] wait for it.
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! /// Runs on a stream, or becomes part of a graph.
//! fn step(queue: &mut impl Queue, x: &View<f32>, y: &View<f32>) -> Result<(), Error> {
//!     queue.fill(x, 1.0)?;
//!     queue.copy(x, y)
//! }
//!
//! let stream = Stream::new(&context)?.labelled("main"); // errors show the label
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! let y = Buffer::<f32>::zeroed(&context, 4)?;
//! step(&mut &stream, &x, &y)?;
//! stream.call(|| println!("the copy is complete"))?;
//! assert_eq!(stream.read(&y)?, [1.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Queue`] is a destination for work: a stream, which runs it, or a
//! [`Recorder`](crate::graph::Recorder) or [`Capture`](crate::graph::Capture), which make a graph
//! of it. Write a function over `&mut impl Queue` if the same work should run both ways.
//!
//! - Every stream that this crate creates is non-blocking, and nothing uses the legacy default
//!   stream.
//! - Work is checked before it is queued. If a check returns an error, nothing was queued.
//! - Conflicting work of two streams must be ordered, see [`ordering`](crate::ordering).
//! - If you drop a stream, its work continues and completes.

mod allocation;
mod boxes;
mod cache_hints;
pub(crate) mod cuda_stream;
mod launches;
mod operations;
mod peer_copy;
pub(crate) mod queue;
mod staged_write;

pub use cuda_stream::Stream;
pub use operations::WaitFor;
pub use queue::{MemoryCopy, MemoryFill, Queue, Work};
