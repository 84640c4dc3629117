//! What nodes other than kernels, copies and fills do: functions of the host, graphs within graphs, and events.

use std::sync::Arc;

use driver_sys::CUDA_HOST_NODE_PARAMS_v1;

use super::order::Order;
use super::{Graph, Node, NodeId, NodeKind, Owner};
use crate::callback::{ProgramObject, Registration, call};
use crate::context::expect_same;
use crate::release::Release;
use crate::uses::Use;
use crate::{Context, EdgeKind, Error, Event, Stream};

/// A function on the host. Clones share the function.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let first = graph.host(&[], || println!("first"))?;
/// let second = graph.host(&[first], || println!("second"))?;
/// let NodeKind::Host(call) = graph.nodes()[first.index()].kind() else { panic!("it is one") };
/// let mut exec = graph.instantiate()?;
/// exec.set(second, NodeWork::Host(call.clone()))?; // the same function twice
/// exec.launch(&stream)?; // writes "first" and "first"
/// stream.synchronize()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HostCall(Arc<HostInner>);

/// The share of graphs in a function. The last one passes it to the context, which drops it when no launch can call it.
struct HostInner {
    context: Context,
    /// Present until this is dropped.
    function: Option<Registration>,
}

/// A graph within a graph: a copy of another one, as it was when it was added. Clones are the same child.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut part = Graph::new(&context)?;
/// part.fill(&[], &x, 2.0)?;
/// let mut graph = Graph::new(&context)?;
/// graph.child(&[], &part)?;
/// let NodeKind::Child(child) = graph.nodes()[0].kind() else { panic!("it is one") };
/// assert_eq!(child.nodes()[0].name(), "fill");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Child(Arc<ChildInner>);

struct ChildInner {
    nodes: Vec<Node>,
    order: Order,
    uses: Vec<Use>,
    /// Kept, never looked at.
    _owners: Vec<Owner>,
}

impl HostCall {
    pub(super) fn new(context: &Context, function: impl Fn() + Send + Sync + 'static) -> Self {
        let function = Some(Registration::node(function));
        Self(Arc::new(HostInner {
            context: context.clone(),
            function,
        }))
    }

    /// Returns the parameters of a node that calls it.
    pub(super) fn params(&self) -> CUDA_HOST_NODE_PARAMS_v1 {
        let data = self
            .0
            .function
            .as_ref()
            .map_or(std::ptr::null_mut(), Registration::data);
        CUDA_HOST_NODE_PARAMS_v1 {
            r#fn: Some(call),
            userData: data,
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Queues one call in a stream.
    pub(super) fn queue(&self, stream: &Stream) -> Result<(), Error> {
        match self.0.function.as_ref().and_then(Registration::share) {
            Some(function) => stream.call(move || function()),
            None => Ok(()),
        }
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        if let Some(function) = self.function.take() {
            self.context
                .release(Release::Object(ProgramObject::new(function)));
        }
    }
}

impl Child {
    pub(super) fn of(graph: &Graph) -> Self {
        Self::new(&graph.nodes, graph.order(), &graph.owners)
    }

    /// A graph of these nodes, with what they need.
    pub(super) fn new(nodes: &[Node], order: &Order, owners: &[Owner]) -> Self {
        let uses = nodes.iter().flat_map(Node::uses).collect();
        let (nodes, order) = (nodes.to_vec(), order.clone());
        Self(Arc::new(ChildInner {
            nodes,
            order,
            uses,
            _owners: owners.to_vec(),
        }))
    }

    /// Its nodes, in the order of adding.
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    pub(super) fn order(&self) -> &Order {
        &self.0.order
    }

    pub(super) fn all_uses(&self) -> &[Use] {
        &self.0.uses
    }
}

impl Graph {
    /// Adds a node that runs `function` on the host, on a thread of the driver, in every launch.
    ///
    /// The function must not call the driver. A panic in it is caught, and reported with the feature `tracing`.
    ///
    /// The function is dropped after the graph and everything made of it, once no work can call it any more and no call
    /// of it is under way. If it owns an object of the graph's context and the graph is dropped in flight, the context
    /// stays in use until it is next waited for, taken ([`Context::new`]), or released something. So wait for the work
    /// before you drop the last other share of the context.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let calls = Arc::new(AtomicU32::new(0));
    /// let counter = calls.clone();
    /// let mut graph = Graph::new(&context)?;
    /// graph.host(&[], move || {
    ///     counter.fetch_add(1, Ordering::Relaxed);
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// exec.launch(&stream)?;
    /// stream.synchronize()?;
    /// assert_eq!(calls.load(Ordering::Relaxed), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a node in `after` is of another graph, or if the driver cannot add the node.
    pub fn host(
        &mut self,
        after: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<NodeId, Error> {
        let call = HostCall::new(self.context(), function);
        let params = call.params();
        self.insert(EdgeKind::Full, after, NodeKind::Host(call), |call, _| {
            // SAFETY: the parameters name a key, which `call` looks up.
            unsafe { add!(call, cuGraphAddHostNode(&params)) }
        })
    }

    /// Adds a copy of another graph as one node.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
    /// let mut child = Graph::new(&context)?;
    /// child.fill(&[], &x, 2.0)?;
    /// let mut graph = Graph::new(&context)?;
    /// let filled = graph.child(&[], &child)?;
    /// graph.copy(&[filled], &x, &y)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&y)?, [2.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A graph of another context, one with conditional or memory nodes ([`Error::Graph`]), a node of another graph,
    /// or what the driver refuses.
    pub fn child(&mut self, after: &[NodeId], child: &Graph) -> Result<NodeId, Error> {
        expect_same("a graph", child.context(), "its parent", self.context())?;
        child.expect_plain("adding it to another graph")?;
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Child(Child::of(child)),
            |call, _| {
                let (child, _calls) = child.raw.begin_whole();
                // SAFETY: both graphs are alive and locked; the driver copies the child.
                unsafe { add!(call, cuGraphAddChildGraphNode(child)) }
            },
        )
    }

    /// Adds the recording of an event.
    ///
    /// # Errors
    /// An event of another context, a node of another graph, or what the driver refuses.
    pub fn record(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        event.give_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Record(event.clone()),
            |call, _| {
                // SAFETY: the event is alive, and the node keeps it.
                unsafe { add!(call, cuGraphAddEventRecordNode(event.raw())) }
            },
        )
    }

    /// Adds a wait for an event that a stream records outside of the graph.
    ///
    /// # Errors
    /// An event of another context, a node of another graph, or what the driver refuses.
    pub fn wait(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        event.lend_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Wait(event.clone()),
            |call, _| {
                // SAFETY: the event is alive, and the node keeps it.
                unsafe { add!(call, cuGraphAddEventWaitNode(event.raw())) }
            },
        )
    }
}

impl std::fmt::Debug for HostCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostCall({})", self.0.context)
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Child({} nodes)", self.0.nodes.len())
    }
}
