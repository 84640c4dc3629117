//! The objects of the driver that have handles, and allocations, as plain data.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::thread::ThreadId;

use warpwright_driver_sys::*;

use crate::graph::draft::Draft;
use crate::graph::step::ExecStep;
use crate::graph::topology::Topology;
use crate::handle::{ContextId, FunctionId, GraphId, NodeId, StreamId};
use crate::queue::{Queue, Sticky, Ticket};
use crate::work::mark::EventCell;

/// A context: what a fault destroys, and what owns streams, modules and memory.
pub(crate) struct Context {
    pub(crate) flags: CUctx_flags,
    pub(crate) sticky: Arc<Sticky>,
    pub(crate) legacy: Option<StreamId>,
    pub(crate) per_thread: HashMap<ThreadId, StreamId>,
}

/// The primary context, alive while it is retained.
pub(crate) struct Primary {
    pub(crate) id: Option<ContextId>,
    pub(crate) retained: u64,
    pub(crate) flags: CUctx_flags,
}

impl Default for Primary {
    fn default() -> Self {
        Self { id: None, retained: 0, flags: CUctx_flags::empty() }
    }
}

/// A loaded module.
pub(crate) struct Module {
    pub(crate) context: ContextId,
    pub(crate) parsed: ptx_emu::Module,
    pub(crate) functions: Vec<FunctionId>,
}

/// How a stream stands to the legacy stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The legacy stream itself.
    Legacy,
    /// Ordered with the legacy stream.
    Blocking,
    /// Not ordered with it.
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: ContextId,
    pub(crate) kind: StreamKind,
    pub(crate) queue: Arc<Queue>,
    /// Its state in a capture, while it takes part in one.
    pub(crate) capture: Option<CaptureMember>,
    pub(crate) priority: c_int,
}

/// An event.
pub(crate) struct Event {
    pub(crate) context: ContextId,
    pub(crate) flags: CUevent_flags,
    pub(crate) cell: Arc<EventCell>,
    /// Set when it was last recorded in a capture: which one, and the nodes it stands for.
    pub(crate) captured: Option<(u64, Vec<NodeId>)>,
}

/// A capture in progress.
pub(crate) struct Capture {
    pub(crate) graph: GraphId,
    pub(crate) origin: StreamId,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) invalid: bool,
}

/// The state of a stream that takes part in a capture.
pub(crate) struct CaptureMember {
    pub(crate) capture: u64,
    /// The nodes that the next node comes after.
    pub(crate) after: Vec<NodeId>,
    /// Their handles, as a caller was shown them.
    pub(crate) shown: Vec<CUgraphNode>,
}

/// A graph ready to launch.
pub(crate) struct Exec {
    /// The graph as it was instantiated.
    pub(crate) draft: Draft,
    pub(crate) flags: CUgraphInstantiate_flags,
    pub(crate) topology: Arc<Topology>,
    pub(crate) steps: Arc<Vec<ExecStep>>,
    /// The step of each node, for changes.
    pub(crate) of_node: HashMap<NodeId, usize>,
    pub(crate) launches: u64,
    pub(crate) last: Option<Ticket>,
}

/// What the driver knows about an allocation in addition to its bytes.
pub(crate) struct Allocation {
    pub(crate) context: ContextId,
    pub(crate) kind: AllocationKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    Device,
    Host(CUmemhostalloc_flags),
}
