//! The order of work: events, memory accesses, and the check that conflicting work is ordered.
//!
//! Two operations conflict if they access a common byte and at least one of them writes. Operations
//! of one stream run in order. If operations of two streams conflict, you must order them, either
//! with an [`Event`] or by waiting on the host. Otherwise the later call returns
//! [`Error::UnorderedStreams`](crate::error::Error::UnorderedStreams):
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! let first = Stream::new(&context)?;
//! let second = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! first.fill(&x, 1.0)?;
//! assert!(matches!(second.fill(&x, 2.0), Err(Error::UnorderedStreams { .. })));
//!
//! let filled = Event::new(&context)?;
//! filled.record(&first)?;
//! second.wait(&filled)?;
//! second.fill(&x, 2.0)?;
//! # Ok(())
//! # }
//! ```
//!
//! - The check uses only the order that the program states and never the progress of the device.
//!   The same program is therefore refused in every run.
//! - The accesses of a launch are those of its declared parameters. A [`Use`] is one access, and a
//!   [`Hazard`] is the reason why two of them must be ordered.
//! - Graphs are checked in the same way, with edges in place of events. See
//!   [`Graph::races`](crate::graph::Graph::races).

pub(crate) mod memory_accesses;

pub use crate::device::event::{Event, EventHandle};
pub use memory_accesses::{Hazard, Use};
pub use ptx_gen::Access;
