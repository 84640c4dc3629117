//! A graph made ready: launched as a whole, changed in place.

use std::sync::{Arc, OnceLock};

use driver_sys::{CUgraphExec, CUgraphNode};
use ptx_gen::Access;

use super::by_memory::ByMemory;
use super::order::Order;
use super::parts::Child;
use super::{Edge, Node, NodeId, NodeKind, Owner, RawGraph, order_of};
use crate::context::expect_same;
use crate::release::Release;
use crate::stream::last_node;
use crate::{Context, Driver, DriverError, Error, Region, Stream};

/// The nodes that use each memory.
pub(super) type Users = ByMemory<Vec<usize>>;

/// A graph ready to launch. It runs once at a time: each launch waits for the one before. Launching takes it mutably,
/// because the driver's graphs are not for two threads at once.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let node = graph.fill(&[], &x, 1.0)?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// exec.set(node, Work::fill(&x, 5.0)?)?; // in place, for the launches to come
/// exec.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [5.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct GraphExec {
    // Dropped first: what the nodes need is released after it.
    pub(super) inner: Inner,
    pub(super) id: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// Once it is asked for.
    pub(super) order: OnceLock<Order>,
    /// What the whole graph touches, once it is asked for.
    pub(super) touched: OnceLock<Vec<(Region, Access)>>,
    /// The nodes that use each memory, once it is asked for. Only looked up, never walked.
    pub(super) users: OnceLock<Users>,
    /// What it needs beside what its nodes name.
    pub(super) owners: Vec<Owner>,
    /// Whether its nodes are known to stand for the plan's: see [`update`](Self::update).
    pub(super) paired: bool,
    /// Whether graphs by which it is updated are checked for races.
    pub(super) races: RaceCheck,
}

/// Whether a graph is checked for races when it is instantiated and updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RaceCheck {
    Refuse,
    Waived,
}

pub(super) struct Inner {
    /// The plan: a change of arguments names its nodes.
    pub(super) graph: Arc<RawGraph>,
    pub(super) raw: CUgraphExec,
}

impl GraphExec {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.graph.context
    }

    /// Its nodes with their present arguments, in the order of the graph.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Does now what the first launch would do: hands the graph to the device.
    ///
    /// # Errors
    /// A stream of another context, [`Error::Capturing`], or what the driver refuses.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let raw = self.inner.raw;
        stream.begin("uploading a graph")?.enqueue(|driver| {
            // SAFETY: exec and stream are alive and of one context, and whoever destroys the exec waits for the stream.
            unsafe { cu_if_there!(driver, cuGraphUpload(raw, stream.raw())) }
        })
    }

    /// Queues the whole graph. What it needs stays alive until it has run, whatever is dropped before.
    ///
    /// In a stream that this thread captures, the graph becomes a node of the captured graph, as it is now.
    ///
    /// # Errors
    /// A stream of another context; [`Error::UnorderedStreams`]; [`Error::Capturing`] if another thread captures the
    /// stream; or what the driver refuses.
    ///
    /// Two threads cannot launch one graph at a time:
    ///
    /// ```compile_fail,E0596
    /// use warpwright_driver::{Error, GraphExec, Stream};
    ///
    /// fn launch(exec: &GraphExec, stream: &Stream) -> Result<(), Error> {
    ///     exec.launch(stream)
    /// }
    /// ```
    #[inline]
    pub fn launch(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let turn = match stream.begin("a graph") {
            Ok(turn) => turn,
            Err(error) => return self.launch_captured(stream, error),
        };
        if self.context().order().several() {
            turn.admit(
                self.touched()
                    .iter()
                    .map(|(region, access)| (region, *access)),
            )?;
        }
        let raw = self.inner.raw;
        // SAFETY: exec and stream are alive and of one context, and whoever releases what the graph needs waits for
        // the stream.
        turn.enqueue(|driver| unsafe { cu_if_there!(driver, cuGraphLaunch(raw, stream.raw())) })
    }

    /// Launches into a stream that this thread captures. The captured graph keeps what this one names now.
    #[cold]
    fn launch_captured(&self, stream: &Stream, refused: Error) -> Result<(), Error> {
        let state = stream.timeline().lock();
        let Some(capture) = state.capture.clone().filter(|capture| capture.is_here()) else {
            return Err(refused);
        };
        let _current = self.context().enter()?;
        // SAFETY: exec and stream are alive and of one context; the driver copies the graph.
        unsafe {
            cu_if_there!(
                self.context().driver(),
                cuGraphLaunch(self.inner.raw, stream.raw())
            )
        }?;
        drop(state);
        let (node, child) = (
            last_node(stream),
            Child::new(&self.nodes, self.order(), &self.owners),
        );
        capture.keep(node.as_ref().ok().copied().flatten(), child);
        node.map(drop)
    }

    /// What the whole graph touches, but for memory of its own: each region once.
    fn touched(&self) -> &[(Region, Access)] {
        self.touched.get_or_init(|| {
            let mut found: Vec<(Region, Access)> = Vec::new();
            let mut places = ByMemory::<Vec<usize>>::default();
            let touches = self.nodes.iter().flat_map(|node| node.kind.touches());
            for (_, region, access) in touches.filter(|(_, region, _)| region.graph().is_none()) {
                let places = places.entry(region.memory()).or_default();
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

    /// Switches a kernel, copy or fill off or on, for launches from now on. A node that is off does nothing, and
    /// what is after it runs.
    ///
    /// # Errors
    /// A node of another graph or of another sort; switching off a kernel of programmatic edges, because what is off
    /// does not wait; or what the driver refuses.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), Error> {
        self.expect_switch(node)?;
        if !enabled && self.programmatic().any(|e| e.to == node || e.from == node) {
            let (node, name) = (node.index, self.nodes[node.index].name());
            let wanted =
                "only a node of full edges can be switched off, because what is off does not wait";
            return Err(Error::NodeKind {
                node,
                name,
                is: "a kernel of programmatic edges",
                wanted,
            });
        }
        self.with_node(node, |driver, exec, raw| {
            // SAFETY: the exec is alive, and the node is of the graph it was made from.
            unsafe { cu_if_there!(driver, cuGraphNodeSetEnabled(exec, raw, enabled.into())) }
        })
    }

    /// Whether a kernel, copy or fill is on.
    ///
    /// # Errors
    /// As [`set_enabled`](Self::set_enabled).
    pub fn is_enabled(&self, node: NodeId) -> Result<bool, Error> {
        self.expect_switch(node)?;
        let mut enabled = 0;
        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `enabled` is ours to write; exec and node are alive.
            unsafe { cu_if_there!(driver, cuGraphNodeGetEnabled(exec, raw, &mut enabled)) }
        })?;
        Ok(enabled != 0)
    }

    /// The order that the edges make.
    pub(super) fn order(&self) -> &Order {
        self.order
            .get_or_init(|| order_of(&self.nodes, &self.edges))
    }

    pub(super) fn programmatic(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|e| e.kind.overlaps())
    }

    /// Makes a call that names a node of the plan, which must still be there.
    #[inline]
    pub(super) fn with_node(
        &self,
        node: NodeId,
        call: impl FnOnce(&Driver, CUgraphExec, CUgraphNode) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        let raw = self.changeable(node)?;
        let _current = self.context().enter()?;
        let (_, removed) = self.inner.graph.begin()?;
        if removed.contains(&node) {
            return Err(Error::RemovedNode { node: node.index });
        }
        call(self.context().driver(), self.inner.raw, raw).map_err(Error::from)
    }

    /// The handle of a node that may be changed alone.
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
            NodeKind::Work(work) if !work.is_nothing() => Ok(()),
            _ => Err(node.wrong_kind("only a kernel, a copy or a fill can be switched")),
        }
    }

    #[inline]
    pub(super) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        node.index_in(self.id, &self.nodes)
            .map_err(|error| self.unknown(node, error))
    }

    /// The error of a node that is none of these: one of a conditional node's graphs may look like one.
    #[cold]
    fn unknown(&self, node: NodeId, error: Error) -> Error {
        if !has_body(&self.nodes, node.graph) {
            return error;
        }
        let problem = "it is in the body of a conditional node, and changes with the whole graph only: \
            build the graph again, and update by it";
        Error::Graph {
            what: "changing a node",
            problem,
        }
    }

    pub(super) fn expect_stream(&self, stream: &Stream) -> Result<(), Error> {
        expect_same("a graph", self.context(), "the stream", stream.context())
    }
}

/// Whether a graph is the body of one of these nodes, or within one.
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
        self.graph.context.release(Release::Exec(self.raw));
    }
}
