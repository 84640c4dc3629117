//! Adding nodes and edges by hand.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use driver_sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
    CUgraph, CUgraphNode, CUgraphNodeParams_kernel, CUgraphNodeType, CUmemorytype,
};
use ptx_gen::KernelDef;
use smallvec::SmallVec;

use super::coherence::{Writers, expect_all_coherent, expect_coherent};
use super::{Edge, EdgeKind, Graph, Node, NodeId, NodeKind, Owner};
use crate::element::Element;
use crate::event::expect_same;
use crate::gate::host_function;
use crate::queue::{Copy, Fill, Work};
use crate::release::Release;
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
        cu_if_there!($call.context.driver(), $name($call.node, $call.graph, $call.after, $call.count $(, $arg)*))
    };
}

/// A function that the driver calls on a thread of its own.
type HostFunction = Box<dyn Fn() + Send + Sync>;

/// The share of a graph in such a function. The last one leaves it to the context, which drops it when no launch can
/// call it.
struct HostCall {
    context: Context,
    function: Option<Box<HostFunction>>,
}

impl HostCall {
    /// What the driver hands to [`call_host`].
    fn data(&self) -> *mut c_void {
        self.function.as_ref().map_or(std::ptr::null_mut(), |f| std::ptr::from_ref(&**f).cast_mut().cast())
    }
}

impl Drop for HostCall {
    fn drop(&mut self) {
        if let Some(function) = self.function.take() {
            self.context.release(Release::Object(function));
        }
    }
}

impl Graph {
    /// Adds work after the given nodes.
    ///
    /// # Errors
    /// Work of another context, a node of another graph, or what the driver refuses.
    pub fn add(&mut self, after: &[NodeId], work: impl Into<Work>) -> Result<NodeId, Error> {
        self.add_full(after, work.into())
    }

    /// Adds work after the given nodes by edges of that kind. Where the device or the driver has no programmatic
    /// edges, they are full; [`programmatic_edges`](Self::programmatic_edges) tells.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`Error::Overlap`] for programmatic edges from or to other work than kernels, or to a
    /// kernel that does not wait; [`Error::Stale`] for a kernel that reads by `ld.global.nc` what a kernel writes that
    /// may still run when it starts. A node with edges of both kinds is added by the full ones.
    pub fn add_by(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        work: impl Into<Work>,
    ) -> Result<NodeId, Error> {
        match (edges.on(self.context()), work.into()) {
            (EdgeKind::Full, work) => self.add_full(after, work),
            (EdgeKind::Programmatic, work) => self.add_overlapping(after, work),
        }
    }

    fn add_overlapping(&mut self, after: &[NodeId], work: Work) -> Result<NodeId, Error> {
        work.expect_in(self.context())?;
        let from = after.iter().map(|n| self.index_of(*n)).collect::<Result<Vec<_>, _>>()?;
        self.expect_overlap(&from, self.nodes.len(), &work)?;
        let into: Vec<_> = from.iter().map(|f| (*f, EdgeKind::Programmatic)).collect();
        let writers = self.writers.get_or_insert_with(|| Writers::of(&self.nodes));
        expect_coherent((&self.nodes, &self.edges, writers), &into, self.nodes.len(), &work)?;
        // Without a node before it there is no edge, and it may be of any sort.
        let Work::Launch(launch) = &work else { return self.add_full(after, work) };
        let kind = NodeKind::Work(work.clone());
        self.insert(EdgeKind::Programmatic, after, kind, None, |call| add_kernel(call, launch))
    }

    fn add_full(&mut self, after: &[NodeId], work: Work) -> Result<NodeId, Error> {
        work.expect_in(self.context())?;
        let kind = NodeKind::Work(work.clone());
        self.insert(EdgeKind::Full, after, kind, None, |call| match &work {
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
        args: K::Args<Host<'_>>,
    ) -> Result<NodeId, Error> {
        self.add(after, kernel.with(args)?)
    }

    /// Adds a copy after the given nodes.
    ///
    /// # Errors
    /// As [`Work::copy`] and [`add`](Self::add).
    pub fn copy<T: Element>(
        &mut self,
        after: &[NodeId],
        from: &View<T>,
        to: &View<T>,
    ) -> Result<NodeId, Error> {
        self.add(after, Work::copy(from, to)?)
    }

    /// Adds a fill after the given nodes.
    ///
    /// # Errors
    /// As [`Work::fill`] and [`add`](Self::add).
    pub fn fill<T: Element>(&mut self, after: &[NodeId], to: &View<T>, value: T) -> Result<NodeId, Error> {
        self.add(after, Work::fill(to, value)?)
    }

    /// Adds a node that does nothing: a place for edges to meet.
    ///
    /// # Errors
    /// A node of another graph, or what the driver refuses.
    pub fn empty(&mut self, after: &[NodeId]) -> Result<NodeId, Error> {
        self.insert(EdgeKind::Full, after, NodeKind::Empty, None, |call| {
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
        let function: Box<HostFunction> = Box::new(Box::new(function));
        let owner = Arc::new(HostCall { context: self.context().clone(), function: Some(function) });
        let params = CUDA_HOST_NODE_PARAMS_v1 { r#fn: Some(call_host), userData: owner.data() };
        self.insert(EdgeKind::Full, after, NodeKind::Host, Some(owner), |call| {
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
        let keeps: Owner = Arc::new((child.nodes.clone(), child.owners.clone()));
        self.insert(EdgeKind::Full, after, NodeKind::Child(uses), Some(keeps), |call| {
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
        event.give_to_graph();
        self.insert(EdgeKind::Full, after, NodeKind::Record, Some(event.0.clone()), |call| {
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
        event.lend_to_graph();
        self.insert(EdgeKind::Full, after, NodeKind::Wait, Some(event.0.clone()), |call| {
            // SAFETY: the event is alive, and the graph's owners keep it.
            unsafe { add!(call, cuGraphAddEventWaitNode(event.raw())) }
        })
    }

    /// Adds an edge: `to` runs after `from`.
    ///
    /// # Errors
    /// A node of another graph, an edge that is there, or one that would create a cycle.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        self.add_edge_of(EdgeKind::Full, from, to)
    }

    /// Adds an edge of that kind: `to` runs after `from`, or overlaps its end. Where the device or the driver has no
    /// programmatic edges it is full; [`programmatic_edges`](Self::programmatic_edges) tells.
    ///
    /// # Errors
    /// As [`add_edge`](Self::add_edge); [`Error::Overlap`] for a programmatic edge from or to other work than a
    /// kernel, or to a kernel that does not wait; [`Error::Stale`] as for [`add_by`](Self::add_by), of any node.
    pub fn add_edge_of(&mut self, kind: EdgeKind, from: NodeId, to: NodeId) -> Result<(), Error> {
        let kind = kind.on(self.context());
        let (a, b) = (self.index_of(from)?, self.index_of(to)?);
        let refuse = |problem| Err(Error::Edge { from: a, to: b, problem });
        if self.edges.iter().any(|e| e.indices() == (a, b)) {
            return refuse("it is there already");
        }
        if a == b || self.order.precedes(b, a) {
            return refuse("it would create a cycle");
        }
        let (earlier, later) = (self.nodes[a].raw, self.nodes[b].raw);
        let edge = Edge { from, to, kind };
        match kind {
            EdgeKind::Full => self.add_dependency(earlier, later)?,
            EdgeKind::Programmatic => {
                match &self.nodes[b].kind {
                    NodeKind::Work(work) => self.expect_overlap(&[a], b, work)?,
                    _ => return refuse("only kernels overlap; use a full edge"),
                }
                let edges: Vec<Edge> = self.edges.iter().copied().chain([edge]).collect();
                expect_all_coherent(&self.nodes, &edges)?;
                self.add_programmatic(earlier, later)?;
            }
        }
        self.order.add_edge(a, b);
        self.edges.push(edge);
        Ok(())
    }

    fn add_dependency(&self, from: CUgraphNode, to: CUgraphNode) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin();
        // SAFETY: both nodes are of the graph.
        unsafe { cu_if_there!(self.context().driver(), cuGraphAddDependencies(graph, &from, &to, 1)) }?;
        Ok(())
    }

    fn add_programmatic(&self, from: CUgraphNode, to: CUgraphNode) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin();
        let (driver, data) = (self.context().driver(), EdgeKind::Programmatic.data());
        let add = driver.api().cuGraphAddDependencies_v2.expect(PROVEN);
        // SAFETY: both nodes are of the graph, and each array has one element.
        let code = unsafe { add(graph, &from, &to, &data, 1) };
        driver.check("cuGraphAddDependencies_v2", code).map_err(Error::from)
    }

    /// Adds a node by the given call, and remembers what it is and needs.
    fn insert(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        kind: NodeKind,
        keeps: Option<Owner>,
        add: impl FnOnce(&AddCall<'_>) -> Result<(), DriverError>,
    ) -> Result<NodeId, Error> {
        let mut indices =
            after.iter().map(|n| self.index_of(*n)).collect::<Result<SmallVec<[usize; 8]>, _>>()?;
        indices.sort_unstable();
        indices.dedup();
        let handles: SmallVec<[CUgraphNode; 8]> = indices.iter().map(|i| self.nodes[*i].raw).collect();
        let mut node = CUgraphNode::NULL;
        {
            let (graph, _calls) = self.raw.begin();
            let _current = self.raw.context.enter()?;
            let (after, count) = (handles.as_ptr(), handles.len());
            add(&AddCall { context: &self.raw.context, graph, node: &mut node, after, count })?;
        }
        let id = self.push_after(node, kind, keeps, &indices);
        indices.into_iter().for_each(|from| self.push_edge(from, id.index, edges));
        Ok(id)
    }
}

/// Programmatic edges become full ones where the driver lacks the functions for them.
const PROVEN: &str = "the device has programmatic edges, which asks for this function";

/// Adds a kernel by programmatic edges only.
fn add_kernel(call: &AddCall<'_>, launch: &Launch) -> Result<(), DriverError> {
    let driver = call.context.driver();
    let add = driver.api().cuGraphAddNode_v2.expect(PROVEN);
    let edges = vec![EdgeKind::Programmatic.data(); call.count];
    with_kernel_params(launch, |kernel| {
        let mut params = CUgraphNodeParams_kernel {
            r#type: CUgraphNodeType::KERNEL,
            // SAFETY: the parameters are those that `with_kernel_params` made.
            kernel: unsafe { *kernel },
            ..CUgraphNodeParams_kernel::zeroed()
        };
        let params = std::ptr::from_mut(&mut params).cast();
        // SAFETY: as for a kernel by full edges; there is a record for each node before it.
        let code = unsafe { add(call.node, call.graph, call.after, edges.as_ptr(), call.count, params) };
        driver.check("cuGraphAddNode_v2", code)
    })
}

/// Runs a host node's function.
unsafe extern "C" fn call_host(data: *mut c_void) {
    // SAFETY: the node was added with a pointer to a function that lives until no launch can call it.
    let call = unsafe { &*data.cast::<HostFunction>() };
    host_function(|| {
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            tracing::error!("a host node panicked");
        }
    });
}

/// Hands a launch to a call as the parameters of a kernel node. The driver copies them.
pub(crate) fn with_kernel_params<R>(
    launch: &Launch,
    call: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v2) -> R,
) -> R {
    let config = launch.config();
    launch.with_params(|kernel_params| {
        call(&CUDA_KERNEL_NODE_PARAMS_v2 {
            func: launch.function().raw(),
            gridDimX: config.grid[0],
            gridDimY: config.grid[1],
            gridDimZ: config.grid[2],
            blockDimX: config.block[0],
            blockDimY: config.block[1],
            blockDimZ: config.block[2],
            sharedMemBytes: config.shared,
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
