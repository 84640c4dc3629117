//! Graphs by hand: nodes with explicit edges.
//!
//! A [`Graph`] is a plan. [`GraphExec`] is the plan made ready: it launches as a whole, and its kernels' arguments
//! change in place. Both keep every kernel, buffer and event they name alive, and a stream keeps what it runs.

mod dot;
mod exec;
pub(crate) mod order;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use driver_sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
    CUgraph, CUgraphNode, CUgraphNodeType, CUmemorytype,
};
use ptx_gen::{Elem, KernelDef};

use crate::context::{Owner, Release, lock};
use crate::event::expect_same;
use crate::queue::{Copy, Fill, Hazard, Use, Work, hazard};
use crate::{Context, Error, Event, Host, Kernel, Launch, Region, View};
use order::Order;

pub use exec::GraphExec;

/// Nodes and edges.
pub struct Graph {
    pub(crate) raw: Arc<RawGraph>,
    id: u64,
    nodes: Vec<Node>,
    edges: Vec<(usize, usize)>,
    owners: Vec<Owner>,
}

/// The driver's graph. Its calls are not safe to run at the same time, hence the lock.
pub(crate) struct RawGraph {
    pub(crate) context: Context,
    raw: CUgraph,
    calls: Mutex<()>,
}

/// A node of one graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    graph: u64,
    index: usize,
}

/// A node and what it does.
#[derive(Clone)]
pub struct Node {
    pub(crate) raw: CUgraphNode,
    pub(crate) id: NodeId,
    kind: NodeKind,
}

/// What a node does.
#[derive(Clone)]
#[non_exhaustive]
pub enum NodeKind {
    /// A launch, a copy or a fill.
    Work(Work),
    /// Nothing: a place for edges to meet.
    Empty,
    /// A function on the host.
    Host,
    /// A graph within the graph, and what its nodes use.
    Child(Vec<Use>),
    /// An event is recorded.
    Record,
    /// An event is waited for.
    Wait,
    /// A node that a capture made of work that is not ours.
    Other(CUgraphNodeType),
}

/// Two nodes that no edge orders and that touch the same bytes, one of them writing.
#[derive(Clone, Debug)]
pub struct Race {
    /// One node.
    pub first: NodeId,
    /// The other.
    pub second: NodeId,
    /// The bytes that the first touches.
    pub region: Region,
}

/// A function that the driver calls on a thread of its own.
struct HostCall(Box<dyn Fn() + Send + Sync>);

impl NodeId {
    /// Its number within its graph, from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.index
    }
}

impl Node {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What it does.
    pub fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// The kernel's name, or what else it does in a word.
    pub fn name(&self) -> String {
        match &self.kind {
            NodeKind::Work(work) => work.name().to_string(),
            NodeKind::Empty => "empty".into(),
            NodeKind::Host => "host".into(),
            NodeKind::Child(_) => "child".into(),
            NodeKind::Record => "record".into(),
            NodeKind::Wait => "wait".into(),
            NodeKind::Other(kind) => kind.name().map_or_else(|| format!("{kind:?}"), str::to_lowercase),
        }
    }

    /// What it reads and writes, as far as this crate knows.
    pub fn uses(&self) -> Vec<Use> {
        match &self.kind {
            NodeKind::Work(work) => work.uses(),
            NodeKind::Child(uses) => uses.clone(),
            _ => Vec::new(),
        }
    }

    /// Its number and name, for errors.
    fn describe(&self) -> String {
        format!("{} ({})", self.id.index, self.name())
    }

    fn sort(&self) -> &'static str {
        match &self.kind {
            NodeKind::Work(Work::Launch(_)) => "a kernel",
            NodeKind::Work(Work::Copy(_)) => "a copy",
            NodeKind::Work(Work::Fill(_)) => "a fill",
            _ => "neither kernel, copy nor fill",
        }
    }
}

impl Graph {
    /// A graph without nodes.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let _current = context.enter()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: `raw` is ours to write.
        unsafe { cu!(context.driver(), cuGraphCreate(&mut raw, 0)) }?;
        Ok(Self::adopt(context, raw))
    }

    /// Takes over a graph of the driver.
    pub(crate) fn adopt(context: &Context, raw: CUgraph) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let raw = Arc::new(RawGraph { context: context.clone(), raw, calls: Mutex::default() });
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self { raw, id, nodes: Vec::new(), edges: Vec::new(), owners: Vec::new() }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.raw.context
    }

    /// Its nodes, in the order of adding.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its edges, each from the earlier node to the later.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = (NodeId, NodeId)> {
        self.edges.iter().map(|&(from, to)| (self.nodes[from].id, self.nodes[to].id))
    }

    /// What makes an edge needed: the buffers that both nodes touch, and how.
    pub fn reasons(&self, from: NodeId, to: NodeId) -> Vec<(Hazard, String)> {
        let mut reasons = Vec::new();
        for a in self.nodes[from.index].uses() {
            for b in self.nodes[to.index].uses() {
                let reason = hazard(a.access, b.access).map(|hazard| (hazard, a.region.name()));
                reasons.extend(reason.filter(|_| a.region.overlaps(&b.region)));
            }
        }
        reasons.sort();
        reasons.dedup();
        reasons
    }

    /// Pairs of nodes that no path of edges orders and that touch the same bytes, one of them writing: the edges that
    /// were forgotten. A recorded graph has none.
    pub fn races(&self) -> Vec<Race> {
        let order = self.order();
        let uses: Vec<Vec<Use>> = self.nodes.iter().map(Node::uses).collect();
        let mut races = Vec::new();
        for (b, later) in uses.iter().enumerate() {
            for (a, earlier) in uses[..b].iter().enumerate() {
                if order.precedes(a, b) || order.precedes(b, a) {
                    continue;
                }
                let (first, second) = (self.nodes[a].id, self.nodes[b].id);
                races.extend(conflict(earlier, later).map(|region| Race {
                    first,
                    second,
                    region: region.clone(),
                }));
            }
        }
        races
    }

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
                unsafe {
                    cu!(
                        call.driver(),
                        cuGraphAddKernelNode_v2(call.node, call.graph, call.after, call.count, params)
                    )
                }
            }),
            Work::Copy(copy) => {
                let (params, context) = (memcpy_params(copy), call.context.raw());
                // SAFETY: the parameters name live memory of the context, which the graph's owners keep.
                unsafe {
                    cu!(
                        call.driver(),
                        cuGraphAddMemcpyNode(call.node, call.graph, call.after, call.count, &params, context)
                    )
                }
            }
            Work::Fill(fill) => {
                let (params, context) = (memset_params(fill), call.context.raw());
                // SAFETY: as above.
                unsafe {
                    cu!(
                        call.driver(),
                        cuGraphAddMemsetNode(call.node, call.graph, call.after, call.count, &params, context)
                    )
                }
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
            unsafe { cu!(call.driver(), cuGraphAddEmptyNode(call.node, call.graph, call.after, call.count)) }
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
            unsafe {
                cu!(call.driver(), cuGraphAddHostNode(call.node, call.graph, call.after, call.count, &params))
            }
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
            unsafe {
                cu!(
                    call.driver(),
                    cuGraphAddChildGraphNode(call.node, call.graph, call.after, call.count, child)
                )
            }
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
            unsafe {
                cu!(
                    call.driver(),
                    cuGraphAddEventRecordNode(call.node, call.graph, call.after, call.count, event.raw())
                )
            }
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
            unsafe {
                cu!(
                    call.driver(),
                    cuGraphAddEventWaitNode(call.node, call.graph, call.after, call.count, event.raw())
                )
            }
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

    pub(crate) fn order(&self) -> Order {
        Order::of(self.nodes.len(), &self.edges).expect("edges that would close a circle were refused")
    }

    /// The number of a node of this graph.
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        if node.graph == self.id { Ok(node.index) } else { Err(Error::ForeignNode { node: node.index }) }
    }

    /// Adds a node by the given call, and remembers what it is and needs.
    fn insert(
        &mut self,
        after: &[NodeId],
        kind: NodeKind,
        owners: Vec<Owner>,
        add: impl FnOnce(&AddCall<'_>) -> Result<(), crate::DriverError>,
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

    /// Remembers a node that the driver has.
    pub(crate) fn push_node(&mut self, raw: CUgraphNode, kind: NodeKind) -> NodeId {
        let id = NodeId { graph: self.id, index: self.nodes.len() };
        self.nodes.push(Node { raw, id, kind });
        id
    }

    /// Remembers edges that the driver has.
    pub(crate) fn push_edges(&mut self, edges: impl IntoIterator<Item = (usize, usize)>) {
        self.edges.extend(edges);
    }

    /// Keeps owners for as long as the graph and what is made of it lives.
    pub(crate) fn own(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.owners.extend(owners);
    }
}

/// What every call that adds a node takes.
struct AddCall<'a> {
    context: &'a Context,
    graph: CUgraph,
    node: *mut CUgraphNode,
    after: *const CUgraphNode,
    count: usize,
}

impl AddCall<'_> {
    fn driver(&self) -> &crate::Driver {
        self.context.driver()
    }
}

impl RawGraph {
    /// The handle, and the right to call the driver with it.
    pub(crate) fn begin(&self) -> (CUgraph, MutexGuard<'_, ()>) {
        (self.raw, lock(&self.calls))
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        self.context.release(Release::Graph(self.raw));
    }
}

/// The first bytes that both touch and one writes.
pub(crate) fn conflict<'a>(first: &'a [Use], second: &[Use]) -> Option<&'a Region> {
    let meets =
        |a: &Use| second.iter().any(|b| hazard(a.access, b.access).is_some() && a.region.overlaps(&b.region));
    first.iter().find(|a| meets(a)).map(|a| &a.region)
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
