//! Streams, and the work that is queued in them.
//!
//! A [`Stream`] runs its work in order and asynchronously to the host. [`Work`] is a launch, a
//! [copy](MemoryCopy) or a [fill](MemoryFill). A stream also runs host functions, waits for
//! words of memory ([`WaitFor`]), and records [events](crate::ordering::Event).
//!
//! A [`Queue`] is a destination for work: a stream, which runs it, or a
//! [`Recorder`](crate::graph::Recorder) or [`Capture`](crate::graph::Capture), which make a graph
//! of it. Write a function over `&mut impl Queue` if the same work should run both ways.
//!
//! - Every stream is non-blocking, and nothing uses the legacy default stream.
//! - Work is checked before it is queued. If a call returns an error, it has queued nothing.
//! - Conflicting work of two streams must be ordered, see [`ordering`](crate::ordering).
//! - If you drop a stream, its work continues and completes.

pub(crate) mod cuda_stream;
mod operations;
pub(crate) mod queue;

pub use cuda_stream::Stream;
pub use operations::WaitFor;
pub use queue::{MemoryCopy, MemoryFill, Queue, Work};
