//! The objects of the driver and allocations, as plain data.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::thread::ThreadId;

use warpwright_driver_sys::*;

use crate::ffi::host::Callback;
use crate::ffi::jit::JitLogs;
use crate::graph::draft::{Draft, GraphPart};
use crate::graph::nodes::{Attributes, EdgeData};
use crate::graph::step::ExecStep;
use crate::handle::{
    ContextId, FunctionId, GraphId, KernelId, LibraryId, ModuleId, NodeId, PoolId, StreamId,
    UserObjectId,
};
use crate::queue::{Sticky, Ticket, WorkQueue};
use crate::work::GraphAllocation;
use crate::work::function::FunctionSettings;
use crate::work::mark::EventCell;
use crate::work::reach::MemoryReach;

/// A context: the owner of streams, modules and memory, which a fault makes unusable.
pub(crate) struct ContextState {
    pub(crate) flags: CUctx_flags,
    pub(crate) reach: Arc<MemoryReach>,
    /// The other contexts whose memory it may access.
    pub(crate) peers: Vec<ContextId>,
    pub(crate) cache: CUfunc_cache,
    /// The limits that the program has set.
    pub(crate) limits: BTreeMap<CUlimit, usize>,
    pub(crate) sticky: Arc<Sticky>,
    pub(crate) legacy: Option<StreamId>,
    pub(crate) per_thread: HashMap<ThreadId, StreamId>,
}

/// The primary context of a device, which lives while it is retained.
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
    /// The settings of kernels of its library, by name.
    pub(crate) settings: BTreeMap<String, Arc<FunctionSettings>>,
}

/// A library: PTX that is loaded into a context at its first use there.
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
    pub(crate) settings: Arc<FunctionSettings>,
}

/// A link in progress: the PTX texts so far and the result.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) texts: Vec<(String, String)>,
    pub(crate) image: Option<CString>,
    /// The log buffers.
    pub(crate) logs: JitLogs,
    /// The address of the array that receives the sizes of the logs.
    pub(crate) values: usize,
}

/// The relation of a stream to the legacy stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The legacy stream itself.
    Legacy,
    /// Ordered with the legacy stream.
    Blocking,
    /// Not ordered with the legacy stream.
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: ContextId,
    pub(crate) kind: StreamKind,
    pub(crate) queue: Arc<WorkQueue>,
    /// Its capture state, while it takes part in a capture.
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
pub(crate) struct EventState {
    pub(crate) context: ContextId,
    pub(crate) flags: CUevent_flags,
    pub(crate) cell: Arc<EventCell>,
    /// If it was last recorded in a capture, that capture and the nodes that the event represents.
    pub(crate) captured: Option<(u64, Vec<(NodeId, EdgeData)>)>,
}

/// A capture in progress.
pub(crate) struct CaptureState {
    pub(crate) graph: GraphId,
    /// The number of nodes that the graph had before, if the program provided the graph.
    pub(crate) before: Option<usize>,
    pub(crate) origin: StreamId,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) invalid: bool,
}

/// The capture state of a stream.
pub(crate) struct CaptureMember {
    pub(crate) capture: u64,
    /// The nodes on which the next node depends.
    pub(crate) after: Vec<(NodeId, EdgeData)>,
    /// The handles of these nodes and the data of their edges, as a caller has received them.
    pub(crate) shown: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// An executable graph.
pub(crate) struct Exec {
    /// The graph from which it was instantiated.
    pub(crate) graph: GraphId,
    /// The contents of that graph at the time.
    pub(crate) draft: Draft,
    pub(crate) flags: CUgraphInstantiate_flags,
    pub(crate) parts: Arc<Vec<GraphPart>>,
    /// The memory that a launch leaves allocated.
    pub(crate) leaves: Vec<GraphAllocation>,
    /// The memory that a launch frees without having allocated it.
    pub(crate) takes: Vec<u64>,
    /// The objects of the program that it keeps alive.
    pub(crate) objects: Vec<UserObjectId>,
    pub(crate) steps: Arc<Vec<ExecStep>>,
    /// The step of each node, for later changes.
    pub(crate) of_node: HashMap<NodeId, usize>,
    pub(crate) launches: u64,
    pub(crate) last: Option<Ticket>,
}

/// The data about an allocation in addition to its bytes.
pub(crate) struct AllocationRecord {
    pub(crate) context: ContextId,
    pub(crate) kind: AllocationKind,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    Device,
    Host(CUmemhostalloc_flags),
    /// Memory that the host and the devices share.
    Managed,
    /// Memory of a pool.
    Pool(PoolId),
    /// Memory that a graph allocates.
    Graph,
    /// The texels of an array.
    Array,
}

/// The pools of one kind of memory: a device, the host, or managed memory.
pub(crate) struct DevicePools {
    pub(crate) default: PoolId,
    pub(crate) current: PoolId,
}

/// The advice of the program about managed memory, which has no effect here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<CUmemLocation>,
    pub(crate) accessed_by: Vec<CUmemLocation>,
    pub(crate) prefetched: Option<CUmemLocation>,
}
