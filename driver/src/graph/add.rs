//! Adding nodes and edges by hand.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use driver_sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
    CUgraph, CUgraphNode, CUmemorytype,
};
use ptx_gen::{Elem, KernelDef};

use super::{Graph, Node, NodeId, NodeKind};
use crate::context::Owner;
use crate::event::expect_same;
use crate::queue::{Copy, Fill, Work};
use crate::{Context, DriverError, Error, Event, Host, Kernel, Launch, View};

/// What every call that adds a node takes.
struct AddCall<'a> {
    context: &'a Context,
    graph: CUgraph,
    node: *mut CUgraphNode,
    after: *const CUgraphNode,
    count: usize,
}

/// Calls a function that adds a node: the arguments that all of them take, then its own.
macro_rules! add {
    ($call:ident, $name:ident($($arg:expr),*)) => {
        cu!($call.context.driver(), $name($call.node, $call.graph, $call.after, $call.count $(, $arg)*))
    };
}

/// A function that the driver calls on a thread of its own.
struct HostCall(Box<dyn Fn() + Send + Sync>);

impl Graph {
    /// Adds work after the given nodes.
    ///
    /// # Errors
    /// Work of another context, a node of another graph, or what the driver refuses.
    pub fn add(&mut self, after: &[NodeId], work: impl Into<Work>) -> Result<NodeId, Error> {
        let work = work.into();
        work.expect_in(self.context())?;
        let owners = work.owners();
        let kind = NodeKind::Work(work.clone());
        self.insert(after, kind, owners, |call| match &work {
            Work::Launch(launch) => with_kernel_params(launch, |params| {
                // SAFETY: the parameters name a loaded function and live arguments, which the driver copies.
                unsafe { add!(call, cuGraphAddKernelNode_v2(params)) }
            }),
            Work::Copy(copy) => {
                let (params, context) = (memcpy_params(copy), call.context.raw());
                // SAFETY: the parameters name live memory of the context, which the graph's owners keep.
                unsafe { add!(call, cuGraphAddMemcpyNode(&params, context)) }
            }
            Work::Fill(fill) => {
                let (params, context) = (memset_params(fill), call.context.raw());
                // SAFETY: as above.
                unsafe { add!(call, cuGraphAddMemsetNode(&params, context)) }
            }
        })
    }

    /// Adds a kernel after the given nodes.
    ///
    /// # Errors
    /// As [`Kernel::with`] and [`add`](Self::add).
    pub fn launch<K: KernelDef>(
        &mut self,
        after: &[NodeId],
        kernel: &Kernel<K>,
        args: K::Args<Host>,
    ) -> Result<NodeId, Error> {
        self.add(after, kernel.with(args)?)
    }

    /// Adds a copy after the given nodes.
    ///
    /// # Errors
    /// As [`Work::copy`] and [`add`](Self::add).
    pub fn copy<T: Elem>(&mut self, after: &[NodeId], from: &View<T>, to: &View<T>) -> Result<NodeId, Error> {
        self.add(after, Work::copy(from, to)?)
    }

    /// Adds a fill after the given nodes.
    ///
    /// # Errors
    /// As [`Work::fill`] and [`add`](Self::add).
    pub fn fill<T: Elem>(&mut self, after: &[NodeId], to: &View<T>, value: T) -> Result<NodeId, Error> {
        self.add(after, Work::fill(to, value)?)
    }

    /// Adds a node that does nothing: a place for edges to meet.
    ///
    /// # Errors
    /// A node of another graph, or what the driver refuses.
    pub fn empty(&mut self, after: &[NodeId]) -> Result<NodeId, Error> {
        self.insert(after, NodeKind::Empty, Vec::new(), |call| {
            // SAFETY: the call names nodes of the graph.
            unsafe { add!(call, cuGraphAddEmptyNode()) }
        })
    }

    /// Adds a function on the host. It runs on a thread of the driver, where it may not call the driver; a panic in
    /// it is caught and reported as an event.
    ///
    /// # Errors
    /// A node of another graph, or what the driver refuses.
    pub fn host(
        &mut self,
        after: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<NodeId, Error> {
        let owner = Arc::new(HostCall(Box::new(function)));
        let params =
            CUDA_HOST_NODE_PARAMS_v1 { r#fn: Some(call_host), userData: Arc::as_ptr(&owner) as *mut c_void };
        self.insert(after, NodeKind::Host, vec![owner], |call| {
            // SAFETY: the graph's owners keep the function for as long as the graph or an exec of it lives.
            unsafe { add!(call, cuGraphAddHostNode(&params)) }
        })
    }

    /// Adds a copy of another graph as one node.
    ///
    /// # Errors
    /// A graph of another context, a node of another graph, or what the driver refuses.
    pub fn child(&mut self, after: &[NodeId], child: &Graph) -> Result<NodeId, Error> {
        expect_same("a graph", child.context(), "its parent", self.context())?;
        let uses = child.nodes.iter().flat_map(Node::uses).collect();
        self.insert(after, NodeKind::Child(uses), child.owners.clone(), |call| {
            let (child, _calls) = child.raw.begin();
            // SAFETY: both graphs are alive; the driver copies the child.
            unsafe { add!(call, cuGraphAddChildGraphNode(child)) }
        })
    }

    /// Adds the recording of an event.
    ///
    /// # Errors
    /// An event of another context, a node of another graph, or what the driver refuses.
    pub fn record(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        self.insert(after, NodeKind::Record, vec![event.owner()], |call| {
            // SAFETY: the event is alive, and the graph's owners keep it.
            unsafe { add!(call, cuGraphAddEventRecordNode(event.raw())) }
        })
    }

    /// Adds a wait for an event that a stream records outside of the graph.
    ///
    /// # Errors
    /// An event of another context, a node of another graph, or what the driver refuses.
    pub fn wait(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        self.insert(after, NodeKind::Wait, vec![event.owner()], |call| {
            // SAFETY: the event is alive, and the graph's owners keep it.
            unsafe { add!(call, cuGraphAddEventWaitNode(event.raw())) }
        })
    }

    /// Adds an edge: `to` runs after `from`.
    ///
    /// # Errors
    /// A node of another graph, an edge that is there, or one that would close a circle.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let (a, b) = (self.index_of(from)?, self.index_of(to)?);
        let refuse = |problem| Err(Error::Edge { from: a, to: b, problem });
        if self.edges.contains(&(a, b)) {
            return refuse("it is there already");
        }
        if a == b || self.order().precedes(b, a) {
            return refuse("it would close a circle");
        }
        self.add_dependency(self.nodes[a].raw, self.nodes[b].raw)?;
        self.edges.push((a, b));
        Ok(())
    }

    fn add_dependency(&self, from: CUgraphNode, to: CUgraphNode) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin();
        // SAFETY: both nodes are of the graph.
        unsafe { cu!(self.context().driver(), cuGraphAddDependencies(graph, &from, &to, 1)) }?;
        Ok(())
    }

    /// Adds a node by the given call, and remembers what it is and needs.
    fn insert(
        &mut self,
        after: &[NodeId],
        kind: NodeKind,
        owners: Vec<Owner>,
        add: impl FnOnce(&AddCall<'_>) -> Result<(), DriverError>,
    ) -> Result<NodeId, Error> {
        let mut indices = after.iter().map(|n| self.index_of(*n)).collect::<Result<Vec<_>, _>>()?;
        indices.sort_unstable();
        indices.dedup();
        let handles: Vec<CUgraphNode> = indices.iter().map(|i| self.nodes[*i].raw).collect();
        let mut node = CUgraphNode::NULL;
        {
            let (graph, _calls) = self.raw.begin();
            let _current = self.raw.context.enter()?;
            let (after, count) = (handles.as_ptr(), handles.len());
            add(&AddCall { context: &self.raw.context, graph, node: &mut node, after, count })?;
        }
        self.owners.extend(owners);
        let id = self.push_node(node, kind);
        self.edges.extend(indices.into_iter().map(|from| (from, id.index)));
        Ok(id)
    }
}

/// Runs a host node's function.
unsafe extern "C" fn call_host(data: *mut c_void) {
    // SAFETY: the node was added with a pointer to a `HostCall` that its graph owns.
    let call = unsafe { &*data.cast::<HostCall>() };
    if catch_unwind(AssertUnwindSafe(|| (call.0)())).is_err() {
        tracing::error!("a host node panicked");
    }
}

/// Hands a launch to a call as the parameters of a kernel node. The driver copies them.
pub(crate) fn with_kernel_params<R>(
    launch: &Launch,
    call: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v2) -> R,
) -> R {
    let geometry = launch.geometry();
    launch.with_params(|kernel_params| {
        call(&CUDA_KERNEL_NODE_PARAMS_v2 {
            func: launch.function().raw(),
            gridDimX: geometry.grid[0],
            gridDimY: geometry.grid[1],
            gridDimZ: geometry.grid[2],
            blockDimX: geometry.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: geometry.shared,
            kernelParams: kernel_params,
            ..CUDA_KERNEL_NODE_PARAMS_v2::zeroed()
        })
    })
}

fn memcpy_params(copy: &Copy) -> CUDA_MEMCPY3D_v2 {
    let (from, to) = (copy.from(), copy.to());
    let mut params = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from.address(),
        srcPitch: from.bytes(),
        srcHeight: 1,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to.address(),
        dstPitch: to.bytes(),
        dstHeight: 1,
        WidthInBytes: to.bytes(),
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    if let Some(host) = from.host() {
        (params.srcMemoryType, params.srcHost, params.srcDevice) = (CUmemorytype::HOST, host, 0);
    }
    if let Some(host) = to.host() {
        (params.dstMemoryType, params.dstHost, params.dstDevice) = (CUmemorytype::HOST, host, 0);
    }
    params
}

fn memset_params(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    let (value, width) = fill.value();
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: fill.to().address(),
        pitch: 0,
        value,
        elementSize: width,
        width: fill.count(),
        height: 1,
    }
}
