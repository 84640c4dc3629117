//! Graphs: work with its order, which the device receives in a single call.
//!
//! There are three ways to make a [`Graph`]:
//!
//! - Build it by hand. You name the nodes that each node follows.
//! - Use a [`Recorder`], which derives the edges from the memory accesses.
//! - Use [`capture`], in which the driver adds the edges. It also captures work of other code.
//!
//! A graph is a plan. [`Graph::instantiate`] makes it ready to launch, and returns a [`GraphExec`].
//! The instantiated graph runs as a whole, and the [work of its nodes](NodeWork) changes in place.
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! let stream = Stream::new(&context)?;
//! let x = Buffer::<f32>::zeroed(&context, 4)?;
//! let y = Buffer::<f32>::zeroed(&context, 4)?;
//! let mut graph = Graph::new(&context)?;
//! let filled = graph.fill(&[], &x, 1.0)?;
//! graph.copy(&[filled], &x, &y)?; // after `filled`
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(stream.read(&y)?, [1.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Node`] is a launch, a copy, a fill, a host function ([`HostCall`]), a [child graph](Child),
//! operations on [words of memory](Words), an [allocation](Allocated), or a [`Conditional`] node,
//! whose graphs run depending on a [`Condition`]. An [`Edge`] is full or programmatic, see
//! [`EdgeKind`].
//!
//! - If two nodes access a common byte, one of them writes, and no path of edges orders them,
//!   [`Graph::instantiate`] returns an error that names both. [`Graph::races`] lists all such
//!   pairs.
//! - A graph and everything that is made from it keep the kernels, buffers and events they use
//!   alive. An object is released only after the last launch that uses it has completed.
//! - A programmatic edge leads only to a kernel that executes `griddepcontrol.wait`.
//! - A capture always ends, even after an error or a panic.

/// Calls a driver function that adds a node, with the arguments common to all of them and its own
/// ones.
macro_rules! add {
    ($call:ident, $name:ident($($arg:expr),*)) => {
        cu_optional!($call.context.driver(), $name($call.node, $call.graph, $call.after, $call.count $(, $arg)*))
    };
}

mod add_nodes;
mod attribute;
mod change_graph;
mod check;
mod cloned;
mod conditional;
mod driver_params;
mod edge;
mod exec;
mod host_call;
mod inspect;
mod node_id;
mod plan;
mod raw_graph;
mod record;
mod words;

pub use crate::lifetime::active_captures::CaptureMode;
pub use attribute::NodeAttribute;
pub use check::races::Race;
pub use conditional::Condition;
pub use edge::{Edge, EdgeKind};
pub use exec::graph_exec::GraphExec;
pub use exec::instantiate::Instantiate;
pub use exec::profile::{Profile, ProfileRow, Untimed};
pub use exec::set_work::NodeWork;
pub use host_call::HostCall;
pub use node_id::NodeId;
pub use plan::{Allocated, Child, Conditional, Graph, Node, NodeKind};
pub use record::capture::{Capture, capture, capture_into};
pub use record::recorder::Recorder;
pub use words::{WordOperation, Words};
