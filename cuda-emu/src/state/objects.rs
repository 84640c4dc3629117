//! The objects of the driver that have handles, and allocations, as plain data.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::thread::ThreadId;

use warpwright_driver_sys::*;

use crate::ffi::host::Callback;
use crate::ffi::jit::Logs;
use crate::graph::draft::{Draft, Part};
use crate::graph::nodes::{Attributes, EdgeData};
use crate::graph::step::ExecStep;
use crate::handle::{
    ContextId, FunctionId, GraphId, KernelId, LibraryId, ModuleId, NodeId, PoolId, StreamId,
    UserObjectId,
};
use crate::queue::{Queue, Sticky, Ticket};
use crate::work::GraphAllocation;
use crate::work::function::Settings;
use crate::work::mark::EventCell;
use crate::work::reach::Reach;

/// A context: what a fault destroys, and what owns streams, modules and memory.
pub(crate) struct Context {
    pub(crate) flags: CUctx_flags,
    pub(crate) reach: Arc<Reach>,
    /// The contexts whose memory it may touch, besides those of its own device.
    pub(crate) peers: Vec<ContextId>,
    pub(crate) cache: CUfunc_cache,
    /// Limits that the program has set.
    pub(crate) limits: BTreeMap<CUlimit, usize>,
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
        Self {
            id: None,
            retained: 0,
            flags: CUctx_flags::empty(),
        }
    }
}

/// A loaded module.
pub(crate) struct Module {
    pub(crate) context: ContextId,
    pub(crate) parsed: ptx_emu::Module,
    pub(crate) functions: Vec<FunctionId>,
    /// What was set of kernels of the library that it belongs to, by name.
    pub(crate) settings: BTreeMap<String, Arc<Settings>>,
}

/// A library: PTX that is loaded into a context when it is first used there.
pub(crate) struct Library {
    pub(crate) image: Arc<[u8]>,
    pub(crate) parsed: ptx_emu::Module,
    pub(crate) kernels: Vec<KernelId>,
    pub(crate) modules: BTreeMap<ContextId, ModuleId>,
}

/// A kernel of a library.
pub(crate) struct LibraryKernel {
    pub(crate) library: LibraryId,
    pub(crate) kernel: Arc<ptx_emu::Kernel>,
    pub(crate) name: CString,
    pub(crate) settings: Arc<Settings>,
}

/// A link in progress: the PTX added so far, and what came of it.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) texts: Vec<(String, String)>,
    pub(crate) image: Option<CString>,
    /// Where its logs go, and the array in which their sizes are written.
    pub(crate) logs: Logs,
    pub(crate) values: usize,
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
    /// The attributes that the program has set.
    pub(crate) attributes: Attributes,
}

/// An object of the program that graphs keep alive.
pub(crate) struct UserObject {
    pub(crate) count: u64,
    pub(crate) destroy: Callback,
}

/// An event.
pub(crate) struct Event {
    pub(crate) context: ContextId,
    pub(crate) flags: CUevent_flags,
    pub(crate) cell: Arc<EventCell>,
    /// Set when it was last recorded in a capture: which one, and the nodes it stands for.
    pub(crate) captured: Option<(u64, Vec<(NodeId, EdgeData)>)>,
}

/// A capture in progress.
pub(crate) struct Capture {
    pub(crate) graph: GraphId,
    /// The nodes that the graph had before, if it is the program's own.
    pub(crate) before: Option<usize>,
    pub(crate) origin: StreamId,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) invalid: bool,
}

/// The state of a stream that takes part in a capture.
pub(crate) struct CaptureMember {
    pub(crate) capture: u64,
    /// The nodes that the next node comes after.
    pub(crate) after: Vec<(NodeId, EdgeData)>,
    /// Their handles and the data of their edges, as a caller was shown them.
    pub(crate) shown: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// A graph ready to launch.
pub(crate) struct Exec {
    /// The graph it was made of, and that graph as it was then.
    pub(crate) graph: GraphId,
    pub(crate) draft: Draft,
    pub(crate) flags: CUgraphInstantiate_flags,
    pub(crate) parts: Arc<Vec<Part>>,
    /// The memory that a launch leaves allocated, and that which it frees without having allocated it.
    pub(crate) leaves: Vec<GraphAllocation>,
    pub(crate) takes: Vec<u64>,
    /// The objects of the program that it keeps alive.
    pub(crate) objects: Vec<UserObjectId>,
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
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    Device,
    Host(CUmemhostalloc_flags),
    /// Memory that host and devices share.
    Managed,
    /// Memory of a pool.
    Pool(PoolId),
    /// Memory that a graph allocates.
    Graph,
    /// The texels of an array.
    Array,
}

/// The pools of one place: a device, the host, or managed memory.
pub(crate) struct DevicePools {
    pub(crate) default: PoolId,
    pub(crate) current: PoolId,
}

/// What a program said about managed memory. It changes nothing here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<CUmemLocation>,
    pub(crate) accessed_by: Vec<CUmemLocation>,
    pub(crate) prefetched: Option<CUmemLocation>,
}
