//! Graphs that are ready to launch, and whose nodes change in place.

use std::sync::{Arc, OnceLock};

use driver_sys::{CUgraphExec, CUgraphNode};
use ptx_gen::Access;

use crate::device::context::expect_same;
use crate::device::{Context, Driver};
use crate::error::{DriverError, Error};
use crate::graph::check::by_memory::ByMemory;
use crate::graph::check::node_order::NodeOrder;
use crate::graph::plan::order_of;
use crate::graph::raw_graph::{Owner, RawGraph};
use crate::graph::{Child, Edge, Node, NodeId, NodeKind};
use crate::lifetime::deferred_free::DeferredFree;
use crate::memory::Region;
use crate::stream::Stream;
use crate::stream::cuda_stream::last_captured_node;

/// The nodes that use each memory.
pub(crate) type MemoryUsers = ByMemory<Vec<usize>>;

/// A graph that is ready to launch.
///
/// Launches of the same graph run one after the other. Launching requires `&mut self`, because two
/// threads must not use one graph of the driver at the same time.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let node = graph.fill(&[], &x, 1.0)?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// exec.set(node, Work::fill(&x, 5.0)?)?; // in place, for later launches
/// exec.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [5.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct GraphExec {
    // Dropped first, so that the objects of the nodes are released after the executable graph.
    pub(crate) inner: Inner,
    pub(crate) id: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// The order of the nodes, computed on first use.
    pub(crate) order: OnceLock<NodeOrder>,
    /// The accesses of the whole graph, computed on first use.
    pub(crate) touched: OnceLock<Vec<(Region, Access)>>,
    /// The nodes that use each memory, computed on first use. The map is only searched and never
    /// iterated, because its order is random.
    pub(crate) users: OnceLock<MemoryUsers>,
    /// Objects that the graph uses in addition to those of its nodes.
    pub(crate) owners: Vec<Owner>,
    /// Whether the nodes are known to correspond to those of the plan (see
    /// [`update`](Self::update)).
    pub(crate) paired: bool,
    /// Whether graphs passed to [`update`](Self::update) are checked for races.
    pub(crate) races: RaceCheck,
}

/// The race check at instantiation and update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RaceCheck {
    Refuse,
    Waived,
}

pub(crate) struct Inner {
    /// The plan, whose nodes are passed to the driver to change arguments.
    pub(crate) graph: Arc<RawGraph>,
    pub(crate) raw: CUgraphExec,
}

impl GraphExec {
    /// Returns the context of the graph.
    pub fn context(&self) -> &Context {
        &self.inner.graph.context
    }

    /// Returns the nodes with their present arguments, in the order of the graph.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Uploads the graph to the device. Otherwise the first launch does this.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the stream belongs to another context.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the driver cannot upload the graph.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let raw = self.inner.raw;
        stream.begin("uploading a graph")?.enqueue(|driver| {
            // SAFETY: the references keep the executable graph and the stream alive, which are of
            // one context. The graph is destroyed only after the stream has completed this work.
            unsafe { cu_optional!(driver, cuGraphUpload(raw, stream.raw())) }
        })
    }

    /// Queues the whole graph. Objects that it uses stay alive until it has completed, even if you
    /// drop them earlier.
    ///
    /// In a stream that this thread captures, the graph becomes a node of the captured graph with
    /// its present arguments.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the stream belongs to another context.
    /// - [`Error::UnorderedStreams`] if the graph conflicts with work of another stream.
    /// - [`Error::Capturing`] if another thread captures the stream.
    /// - [`Error::Driver`] if the driver cannot launch the graph.
    ///
    /// Two threads cannot launch one graph at the same time:
    ///
    /// ```compile_fail,E0596
    /// use warpwright_driver::Error;
    /// use warpwright_driver::graph::GraphExec;
    /// use warpwright_driver::stream::Stream;
    ///
    /// fn launch(exec: &GraphExec, stream: &Stream) -> Result<(), Error> {
    ///     exec.launch(stream)
    /// }
    /// ```
    #[inline]
    pub fn launch(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let submission = match stream.begin("a graph") {
            Ok(submission) => submission,
            Err(error) => return self.launch_captured(stream, error),
        };

        // With a single stream the list of accesses is not even computed, because it costs a walk
        // over all nodes.
        if self.context().order().several() {
            submission.admit(
                self.touched()
                    .iter()
                    .map(|(region, access)| (region, *access)),
            )?;
        }

        let raw = self.inner.raw;

        // SAFETY: the references keep the executable graph and the stream alive, which are of one
        // context. The graph and its objects are released only after the stream has completed this
        // work.
        submission
            .enqueue(|driver| unsafe { cu_optional!(driver, cuGraphLaunch(raw, stream.raw())) })
    }

    /// Launches into a stream that this thread captures. The captured graph keeps the present
    /// objects.
    #[cold]
    fn launch_captured(&self, stream: &Stream, refused: Error) -> Result<(), Error> {
        let state = stream.progress().lock();
        let Some(capture) = state.capture.clone().filter(|capture| capture.is_here()) else {
            return Err(refused);
        };

        let _current = self.context().enter()?;

        // SAFETY: the references keep the executable graph and the stream alive, which are of one
        // context. The driver copies the graph into the capture.
        unsafe {
            cu_optional!(
                self.context().driver(),
                cuGraphLaunch(self.inner.raw, stream.raw())
            )
        }?;
        drop(state);
        let node = last_captured_node(stream);
        let child = Child::new(&self.nodes, self.order(), &self.owners);
        capture.keep(node.as_ref().ok().copied().flatten(), child);
        node.map(drop)
    }

    /// Returns the accesses of the whole graph with each region once, except for memory of the
    /// graph.
    fn touched(&self) -> &[(Region, Access)] {
        self.touched.get_or_init(|| {
            let mut found: Vec<(Region, Access)> = Vec::new();
            let mut places = ByMemory::<Vec<usize>>::default();
            let touches = self.nodes.iter().flat_map(|node| node.kind.touches());
            for touch in touches.filter(|touch| touch.region.graph().is_none()) {
                let region = touch.region;
                let access = touch.access;
                let places = places.entry(region.memory()).or_default();

                // Reads and writes of the same region are merged. Overlapping regions stay
                // separate, which is correct but lists some bytes twice.
                match places.iter().find(|place| found[**place].0.same(region)) {
                    Some(place) if found[*place].1 != access => found[*place].1 = Access::ReadWrite,
                    Some(_) => {}
                    None => {
                        places.push(found.len());
                        found.push((region.clone(), access));
                    }
                }
            }

            found
        })
    }

    /// Enables or disables a kernel, a copy or a fill for later launches.
    ///
    /// A disabled node does nothing, and the nodes after it run.
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] if the node belongs to another graph.
    /// - [`Error::NodeKind`] if the node is not a kernel, a copy or a fill.
    /// - [`Error::NodeKind`] for disabling a kernel with programmatic edges, because a disabled
    ///   kernel does not wait for its predecessors.
    /// - [`Error::Driver`] if the driver cannot change the node.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), Error> {
        self.expect_switch(node)?;
        if !enabled && self.programmatic().any(|e| e.to == node || e.from == node) {
            let name = self.nodes[node.index].name();
            let wanted = "only a node of full edges can be switched off, because a disabled kernel does not wait";
            return Err(Error::NodeKind {
                node: node.index,
                name,
                is: "a kernel of programmatic edges",
                wanted,
            });
        }
        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `self` keeps the executable graph alive. `with_node` has checked that the
            // node is of its plan.
            unsafe { cu_optional!(driver, cuGraphNodeSetEnabled(exec, raw, enabled.into())) }
        })
    }

    /// Returns true if a kernel, a copy or a fill is enabled.
    ///
    /// # Errors
    /// Returns the errors of [`set_enabled`](Self::set_enabled).
    pub fn is_enabled(&self, node: NodeId) -> Result<bool, Error> {
        self.expect_switch(node)?;
        let mut enabled = 0;
        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `enabled` is a local variable that the driver may write. `self` keeps the
            // executable graph alive, and `with_node` has checked the node.
            unsafe { cu_optional!(driver, cuGraphNodeGetEnabled(exec, raw, &mut enabled)) }
        })?;
        Ok(enabled != 0)
    }

    /// Returns the order of the nodes.
    pub(crate) fn order(&self) -> &NodeOrder {
        self.order
            .get_or_init(|| order_of(&self.nodes, &self.edges))
    }

    pub(crate) fn programmatic(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|e| e.kind.overlaps())
    }

    /// Makes a driver call with a node of the plan, which must not have been removed.
    #[inline]
    pub(crate) fn with_node(
        &self,
        node: NodeId,
        call: impl FnOnce(&Driver, CUgraphExec, CUgraphNode) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        let raw = self.changeable(node)?;
        let _current = self.context().enter()?;
        // The plan stays locked during the call. Otherwise another thread could remove the node
        // from it between the check and the call.
        let (_, removed) = self.inner.graph.begin()?;
        if removed.contains(&node) {
            return Err(Error::RemovedNode { node: node.index });
        }
        call(self.context().driver(), self.inner.raw, raw).map_err(Error::from)
    }

    /// Returns the handle of a node that can be changed separately.
    #[inline]
    fn changeable(&self, node: NodeId) -> Result<CUgraphNode, Error> {
        let raw = self.nodes[self.index_of(node)?].raw;
        if !self.paired {
            let problem = "the graph was updated by one whose nodes were added in another order; update it as a whole";
            return Err(Error::Graph {
                what: "changing a node",
                problem,
            });
        }
        Ok(raw)
    }

    fn expect_switch(&self, node: NodeId) -> Result<(), Error> {
        let node = &self.nodes[self.index_of(node)?];
        match &node.kind {
            NodeKind::Work(work) if !work.is_empty() => Ok(()),
            _ => Err(node.wrong_kind("only a kernel, a copy or a fill can be switched")),
        }
    }

    #[inline]
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        node.index_in(self.id, &self.nodes)
            .map_err(|error| self.unknown(node, error))
    }

    /// Returns the error for an unknown node. It may be a node in the body of a conditional node.
    #[cold]
    fn unknown(&self, node: NodeId, error: Error) -> Error {
        if !has_body(&self.nodes, node.graph) {
            return error;
        }
        let problem = "it is in the body of a conditional node, which changes only with the whole graph: \
            build the graph again and update from it";
        Error::Graph {
            what: "changing a node",
            problem,
        }
    }

    pub(crate) fn expect_stream(&self, stream: &Stream) -> Result<(), Error> {
        expect_same("a graph", self.context(), "the stream", stream.context())
    }
}

/// Returns true if a graph is the body of one of these nodes, or is contained in such a body.
fn has_body(nodes: &[Node], graph: u64) -> bool {
    nodes.iter().any(|node| match &node.kind {
        NodeKind::Conditional(of) => of
            .bodies()
            .iter()
            .any(|body| body.id == graph || has_body(&body.nodes, graph)),
        _ => false,
    })
}

impl std::fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphExec({} nodes)", self.nodes.len())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.graph.context.release(DeferredFree::Exec(self.raw));
    }
}
