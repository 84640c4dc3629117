//! Host functions, child graphs and events as nodes.

use std::sync::Arc;

use driver_sys::CUDA_HOST_NODE_PARAMS_v1;

use super::order::Order;
use super::{Graph, Node, NodeId, NodeKind, Owner};
use crate::callback::{ProgramObject, Registration, call};
use crate::context::expect_same;
use crate::release::Release;
use crate::uses::Use;
use crate::{Context, EdgeKind, Error, Event, Stream};

/// A host function as the work of a node. Clones refer to the same function.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let first = graph.host(&[], || println!("first"))?;
/// let second = graph.host(&[first], || println!("second"))?;
/// let NodeKind::Host(call) = graph.nodes()[first.index()].kind() else { panic!("expected this kind of work") };
/// let mut exec = graph.instantiate()?;
/// exec.set(second, NodeWork::Host(call.clone()))?; // the same function twice
/// exec.launch(&stream)?; // writes "first" and "first"
/// stream.synchronize()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HostCall(Arc<HostInner>);

/// The share of graphs in a function. The last one passes it to the context, which drops it when no
/// launch can call it.
struct HostInner {
    context: Context,
    /// The function, which is present until this value is dropped.
    function: Option<Registration>,
}

/// A child graph: a copy of another graph as it was when it was added. Clones refer to the same
/// child.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut part = Graph::new(&context)?;
/// part.fill(&[], &x, 2.0)?;
/// let mut graph = Graph::new(&context)?;
/// graph.child(&[], &part)?;
/// let NodeKind::Child(child) = graph.nodes()[0].kind() else { panic!("expected this kind of work") };
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
    /// Objects that the nodes use. They are only kept alive.
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

    /// Returns the parameters of a node that calls the function.
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

    /// Queues one call of the function in a stream.
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
    pub(super) fn from_graph(graph: &Graph) -> Self {
        Self::new(&graph.nodes, graph.order(), &graph.owners)
    }

    /// Returns a child of these nodes with the objects they use.
    pub(super) fn new(nodes: &[Node], order: &Order, owners: &[Owner]) -> Self {
        let uses = nodes.iter().flat_map(Node::uses).collect();
        let nodes = nodes.to_vec();
        let order = order.clone();
        Self(Arc::new(ChildInner {
            nodes,
            order,
            uses,
            _owners: owners.to_vec(),
        }))
    }

    /// Returns the nodes in the order of adding.
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
    /// The function must not call the driver. A panic in it is caught, and logged if the feature
    /// `tracing` is enabled.
    ///
    /// The function is dropped after the graph and everything made from it, when no work can call
    /// it any more and no call is in progress. If it owns an object of the graph's context and you
    /// drop the graph while it runs, the context stays in use. It is released when a thread next
    /// waits for it, creates it with [`Context::new`], or releases an object. Therefore wait for
    /// the work before you drop the last other share of the context.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// Returns an error if a node in `after` belongs to another graph, or if the driver cannot add
    /// the node.
    pub fn host(
        &mut self,
        after: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<NodeId, Error> {
        let call = HostCall::new(self.context(), function);
        let params = call.params();
        self.insert(EdgeKind::Full, after, NodeKind::Host(call), |call, _| {
            // SAFETY: `call` looks the data up as a key and does not use it as an address.
            unsafe { add!(call, cuGraphAddHostNode(&params)) }
        })
    }

    /// Adds a copy of another graph as one node.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 4)?;
    /// let y = Buffer::<f32>::zeroed(&context, 4)?;
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
    /// - [`Error::WrongContext`] if the graph belongs to another context.
    /// - [`Error::Graph`] if it contains conditional or memory nodes.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::Driver`] if the driver cannot add the node.
    pub fn child(&mut self, after: &[NodeId], child: &Graph) -> Result<NodeId, Error> {
        expect_same("a graph", child.context(), "its parent", self.context())?;
        child.expect_plain("adding it to another graph")?;
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Child(Child::from_graph(child)),
            |call, _| {
                let (child, _calls) = child.raw.begin_whole();
                // SAFETY: the references keep both graphs alive, and both are locked. The driver
                // copies the child.
                unsafe { add!(call, cuGraphAddChildGraphNode(child)) }
            },
        )
    }

    /// Adds a node that records an event.
    ///
    /// # Errors
    /// Returns an error if the event belongs to another context or a node in `after` to another
    /// graph, or if the driver cannot add the node.
    pub fn record(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        // Before the node is added: from then on a launch may record the event, so its point must
        // not count as known. If adding fails, the mark stays, which is only more cautious.
        event.give_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Record(event.clone()),
            |call, _| {
                // SAFETY: the reference keeps the event alive, and the node keeps it afterwards.
                unsafe { add!(call, cuGraphAddEventRecordNode(event.raw())) }
            },
        )
    }

    /// Adds a node that waits for an event, which a stream records outside the graph.
    ///
    /// # Errors
    /// Returns an error if the event belongs to another context or a node in `after` to another
    /// graph, or if the driver cannot add the node.
    pub fn wait(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        event.lend_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Wait(event.clone()),
            |call, _| {
                // SAFETY: the reference keeps the event alive, and the node keeps it afterwards.
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
