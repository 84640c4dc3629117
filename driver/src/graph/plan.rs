//! Graphs and their nodes.
//!
//! These types are in one file because they contain each other: a node can be a child graph, whose
//! nodes are a copy, or a conditional node, whose bodies are graphs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use driver_sys::{CUgraph, CUgraphConditionalNodeType, CUgraphNode, CUgraphNodeType};

use crate::device::Context;
use crate::error::Error;
use crate::graph::check::node_order::NodeOrder;
use crate::graph::check::writers::Writers;
use crate::graph::edge::{Edge, EdgeKind};
use crate::graph::host_call::HostCall;
use crate::graph::node_id::NodeId;
use crate::graph::raw_graph::{BodyOwner, Owner, RawGraph};
use crate::graph::words::Words;
use crate::lifetime::unpoisoned_lock::lock;
use crate::memory::Region;
use crate::ordering::memory_accesses::AccessIter;
use crate::ordering::{Event, Use};
use crate::stream::Work;

/// A graph of nodes and edges.
///
/// Add nodes with [`add`](Self::add), [`launch`](Self::launch), [`copy`](Self::copy) and similar
/// methods, each after the nodes it depends on. Then call [`instantiate`](Self::instantiate) and
/// launch the result.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let one = graph.fill(&[], &x, 1.0)?;
/// let two = graph.fill(&[], &y, 2.0)?; // runs concurrently with the first node
/// graph.copy(&[one, two], &x, &y)?; // after both
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&y)?, [1.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    pub(crate) raw: Arc<RawGraph>,
    pub(super) id: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// The order of the nodes, computed on first use.
    pub(super) order: OnceLock<NodeOrder>,
    /// The nodes that write each memory, computed on first use.
    pub(super) writers: Option<Writers>,
    /// Objects of captured work that has no node of this crate.
    pub(super) owners: Vec<Owner>,
    /// The id of the graph that this one was cloned from.
    pub(super) original: Option<u64>,
    /// The reason why the graph can never run, if there is one.
    pub(super) broken: Option<&'static str>,
}

/// The reason why a graph without one of its conditional nodes never runs.
///
/// The driver keeps the condition and has no call to destroy it. At instantiation it reports "The
/// graph contains unused conditional handles" (580.159 on an H100).
pub(super) const UNUSED_CONDITION: &str = "a conditional node was removed, or its body could not \
    be built, and the driver refuses a graph with a condition that no node reads: build the graph anew";

impl Graph {
    /// Creates an empty graph.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create a graph.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let _current = context.enter()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: `raw` is a local variable that the driver may write.
        unsafe { cu_optional!(context.driver(), cuGraphCreate(&mut raw, 0)) }?;
        Ok(Self::adopt(context, raw))
    }

    /// Takes ownership of a graph of the driver.
    pub(crate) fn adopt(context: &Context, raw: CUgraph) -> Self {
        Self::over(RawGraph {
            context: context.clone(),
            raw,
            calls: Arc::default(),
            abandoned: false.into(),
            owner: None,
        })
    }

    /// Wraps the body of a conditional node, which owns the body.
    pub(super) fn body(graph: &Arc<RawGraph>, node: NodeId, raw: CUgraph) -> Self {
        Self::over(RawGraph {
            context: graph.context.clone(),
            raw,
            calls: graph.calls.clone(),
            abandoned: false.into(),
            owner: Some(BodyOwner {
                graph: graph.clone(),
                node,
            }),
        })
    }

    pub(super) fn over(raw: RawGraph) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self {
            raw: Arc::new(raw),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            nodes: Vec::new(),
            edges: Vec::new(),
            order: OnceLock::new(),
            writers: None,
            owners: Vec::new(),
            original: None,
            broken: None,
        }
    }

    /// Returns the context of the graph.
    pub fn context(&self) -> &Context {
        &self.raw.context
    }

    /// Returns the nodes in the order of adding. A removed node stays in its place as
    /// [`NodeKind::Removed`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the edges in the order of adding.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the index of a node of this graph.
    #[inline]
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        node.index_in(self.id, &self.nodes)
    }

    /// Records a node that the driver has added without incoming edges.
    pub(crate) fn push_node(&mut self, raw: CUgraphNode, kind: NodeKind) -> NodeId {
        self.push_after(raw, kind, &[])
    }

    /// Records a node that the driver has added after these nodes.
    pub(super) fn push_after(
        &mut self,
        raw: CUgraphNode,
        kind: NodeKind,
        after: &[usize],
    ) -> NodeId {
        let id = NodeId {
            graph: self.id,
            index: self.nodes.len(),
        };

        // Both tables are updated instead of dropped, because a graph of n nodes would otherwise
        // compute them n times while it is built.
        if let Some(writers) = &mut self.writers {
            for touch in kind.touches() {
                writers.add(id.index, touch);
            }
        }

        self.nodes.push(Node { raw, id, kind });
        if let Some(order) = self.order.get_mut() {
            order.push(after);
        }

        id
    }

    /// Records edges that the driver has added.
    pub(crate) fn push_edges(&mut self, edges: impl IntoIterator<Item = (usize, usize, EdgeKind)>) {
        for (from, to, kind) in edges {
            self.push_edge(from, to, kind);
            if let Some(order) = self.order.get_mut() {
                order.add_edge(from, to);
            }
        }
    }

    /// Returns the order of the nodes.
    pub(crate) fn order(&self) -> &NodeOrder {
        self.order
            .get_or_init(|| order_of(&self.nodes, &self.edges))
    }

    /// Records an edge without updating the order.
    pub(super) fn push_edge(&mut self, from: usize, to: usize, kind: EdgeKind) {
        let id = |index| NodeId {
            graph: self.id,
            index,
        };
        self.edges.push(Edge {
            from: id(from),
            to: id(to),
            kind,
        });
    }

    /// Keeps objects as long as the graph and everything that is made from it.
    pub(crate) fn own(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.owners.extend(owners);
    }

    /// Returns the driver's handles of nodes.
    pub(crate) fn raw_nodes(&self, nodes: &[NodeId]) -> Result<Vec<CUgraphNode>, Error> {
        nodes
            .iter()
            .map(|node| Ok(self.nodes[self.index_of(*node)?].raw))
            .collect()
    }

    /// Drops the graph and leaves the driver's graph alone.
    ///
    /// Graphs that were made from it can no longer use its nodes either.
    pub(crate) fn abandon(self) {
        log_event!(
            warn,
            "a graph is left to the driver after a capture into it failed"
        );
        lock(&self.raw.calls).extend(self.nodes.iter().map(Node::id));
        self.raw.abandoned.store(true, Ordering::Relaxed);
    }

    /// Checks that the graph can be used as a whole: it is not a body and was built completely.
    pub(crate) fn expect_whole(&self, what: &'static str) -> Result<(), Error> {
        let problem = match self.broken {
            None if !self.raw.is_body() => return Ok(()),
            None => "it is the body of a conditional node, which runs as part of its graph only",
            Some(problem) => problem,
        };
        Err(Error::Graph { what, problem })
    }

    /// Checks that the graph can be copied. Conditional nodes and memory nodes exist only once.
    pub(super) fn expect_plain(&self, what: &'static str) -> Result<(), Error> {
        self.expect_whole(what)?;
        let problem = self.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Conditional(_) => Some("a graph with conditional nodes is there once"),
            NodeKind::Alloc(_) | NodeKind::Free(_) => {
                Some("a graph that allocates or frees memory is there once")
            }
            _ => None,
        });
        problem.map_or(Ok(()), |problem| Err(Error::Graph { what, problem }))
    }
}

pub(super) fn order_of(nodes: &[Node], edges: &[Edge]) -> NodeOrder {
    NodeOrder::from_edges(nodes.len(), edges.iter().map(Edge::indices))
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Graph({} nodes, {} edges)",
            self.nodes.len(),
            self.edges.len()
        )
    }
}

/// A node of a graph with its work.
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let node = &graph.nodes()[0];
/// assert_eq!((node.id(), node.name()), (filled, "fill".to_string()));
/// assert!(matches!(node.kind(), NodeKind::Work(Work::Fill(_))));
/// assert_eq!(node.uses()[0].region.name(), "x");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Node {
    pub(crate) raw: CUgraphNode,
    pub(crate) id: NodeId,
    pub(super) kind: NodeKind,
}

/// The work of a node. It keeps the objects that it uses alive.
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let copied = graph.copy(&[filled], &x, &y)?;
/// graph.host(&[copied], || println!("copied"))?;
/// let on_host = graph.nodes().iter().filter(|node| matches!(node.kind(), NodeKind::Host(_)));
/// assert_eq!(on_host.count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeKind {
    /// A launch, a copy or a fill.
    Work(Work),
    /// No work. Such a node joins edges.
    Empty,
    /// A host function.
    Host(HostCall),
    /// A child graph.
    Child(Child),
    /// The recording of an event.
    Record(Event),
    /// A wait for an event.
    Wait(Event),
    /// The allocation of memory.
    Alloc(Allocated),
    /// The release of memory that another node allocates.
    Free(Allocated),
    /// Waits for words of memory and writes of words.
    Words(Words),
    /// A conditional node, whose graphs run depending on a condition.
    Conditional(Conditional),
    /// A node that a capture made from work of other code.
    Other(CUgraphNodeType),
    /// A node that was removed.
    Removed,
}

impl NodeId {
    /// Returns the index if the node belongs to this graph and was not removed.
    #[inline]
    pub(super) fn index_in(self, graph: u64, nodes: &[Node]) -> Result<usize, Error> {
        let known = if self.graph == graph {
            nodes.get(self.index)
        } else {
            None
        };
        match known {
            Some(node) if !matches!(node.kind, NodeKind::Removed) => Ok(self.index),
            Some(_) => Err(self.removed()),
            None => Err(self.foreign()),
        }
    }
}

impl Node {
    /// Returns the id of the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the work of the node.
    pub fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// Returns the name of the kernel, or a word for other work, for example `copy`.
    pub fn name(&self) -> String {
        match &self.kind {
            NodeKind::Work(work) => work.name().to_string(),
            NodeKind::Empty => "empty".into(),
            NodeKind::Host(_) => "host".into(),
            NodeKind::Child(_) => "child".into(),
            NodeKind::Record(_) => "record".into(),
            NodeKind::Wait(_) => "wait".into(),
            NodeKind::Alloc(_) => "alloc".into(),
            NodeKind::Free(_) => "free".into(),
            NodeKind::Words(_) => "words".into(),
            NodeKind::Conditional(conditional) => conditional.name().into(),
            NodeKind::Other(kind) => kind
                .name()
                .map_or_else(|| format!("{kind:?}"), str::to_lowercase),
            NodeKind::Removed => "removed".into(),
        }
    }

    /// Returns the memory accesses of the node, as far as this crate knows them.
    pub fn uses(&self) -> Vec<Use> {
        self.kind.uses()
    }

    /// Returns the index and the name for errors.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.id.index, self.name())
    }

    /// Returns the error for an operation that requires another kind of node.
    #[cold]
    pub(super) fn wrong_kind(&self, wanted: &'static str) -> Error {
        Error::NodeKind {
            node: self.id.index,
            name: self.name(),
            is: self.sort(),
            wanted,
        }
    }

    /// Returns the kind of the node as a phrase for errors.
    pub(super) fn sort(&self) -> &'static str {
        match &self.kind {
            NodeKind::Work(Work::Launch(_)) => "a kernel",
            NodeKind::Work(Work::Copy(_)) => "a copy",
            NodeKind::Work(Work::Fill(_)) => "a fill",
            NodeKind::Empty => "an empty node",
            NodeKind::Host(_) => "a host function",
            NodeKind::Child(_) => "a child graph",
            NodeKind::Record(_) => "the recording of an event",
            NodeKind::Wait(_) => "a wait for an event",
            NodeKind::Alloc(_) => "an allocation",
            NodeKind::Free(_) => "the freeing of memory",
            NodeKind::Words(_) => "operations on words of memory",
            NodeKind::Conditional(_) => "a conditional node",
            NodeKind::Other(_) => "work of other code",
            NodeKind::Removed => "removed",
        }
    }
}

impl NodeKind {
    pub(super) fn uses(&self) -> Vec<Use> {
        match self {
            Self::Work(work) => work.uses(),
            _ => self.inner_uses().to_vec(),
        }
    }

    /// Returns the memory accesses by reference.
    #[inline]
    pub(crate) fn touches(&self) -> AccessIter<'_> {
        match self {
            Self::Work(work) => work.touches(),
            _ => AccessIter {
                uses: self.inner_uses().iter(),
                ..AccessIter::default()
            },
        }
    }

    /// Returns the accesses of a node other than a launch, a copy or a fill.
    fn inner_uses(&self) -> &[Use] {
        match self {
            Self::Child(child) => child.all_uses(),
            Self::Conditional(conditional) => conditional.uses(),
            Self::Words(words) => words.uses(),
            _ => &[],
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.describe())
    }
}

/// The memory of a node that allocates or frees it. Clones refer to the same memory.
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let mut graph = Graph::new(&context)?;
/// let (allocated, scratch) = graph.alloc::<f32>(&[], 1000)?;
/// graph.free(&[allocated], &scratch)?;
/// let bytes = graph.nodes().iter().map(|node| match node.kind() {
///     NodeKind::Alloc(memory) => memory.region().bytes(),
///     _ => 0,
/// });
/// assert_eq!(bytes.sum::<usize>(), 4000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Allocated(Arc<Region>);

impl Allocated {
    pub(super) fn new(region: &Region) -> Self {
        Self(Arc::new(region.clone()))
    }

    /// Returns the memory as a region.
    pub fn region(&self) -> &Region {
        &self.0
    }
}

/// A child graph: a copy of another graph as it was when it was added. Clones refer to the same
/// child.
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
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
    order: NodeOrder,
    uses: Vec<Use>,
    /// Objects that the nodes use. They are only kept alive.
    _owners: Vec<Owner>,
}

impl Child {
    pub(super) fn from_graph(graph: &Graph) -> Self {
        Self::new(&graph.nodes, graph.order(), &graph.owners)
    }

    /// Returns a child of these nodes with the objects they use.
    pub(super) fn new(nodes: &[Node], order: &NodeOrder, owners: &[Owner]) -> Self {
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

    pub(super) fn order(&self) -> &NodeOrder {
        &self.0.order
    }

    pub(super) fn all_uses(&self) -> &[Use] {
        &self.0.uses
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Child({} nodes)", self.0.nodes.len())
    }
}

/// A conditional node: a condition and the graphs that it controls, called bodies. Clones share the
/// bodies.
///
/// The driver destroys the bodies with the node. A clone that outlives [`Graph::remove_node`] still
/// lists their nodes, but driver calls on the bodies return [`Error::Graph`].
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let condition = graph.condition(Some(1))?;
/// graph.if_else(&[], condition, |then| then.fill(&[], &x, 5.0).map(drop), |other| other.copy(&[], &y, &x).map(drop))?;
/// let NodeKind::Conditional(conditional) = graph.nodes()[0].kind() else { panic!("expected this kind of work") };
/// let bodies: Vec<_> = conditional.bodies().iter().map(|body| body.nodes()[0].name()).collect();
/// assert_eq!((conditional.name(), bodies), ("if", vec!["fill".to_string(), "copy".to_string()]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Conditional(pub(super) Arc<ConditionalInner>);

pub(super) struct ConditionalInner {
    pub(super) kind: CUgraphConditionalNodeType,
    pub(super) bodies: Vec<Graph>,
    pub(super) uses: Vec<Use>,
}

impl Conditional {
    /// Returns `if`, `while` or `switch`.
    pub fn name(&self) -> &'static str {
        match self.0.kind {
            CUgraphConditionalNodeType::IF => "if",
            CUgraphConditionalNodeType::WHILE => "while",
            _ => "switch",
        }
    }

    /// Returns the bodies in the order of the cases.
    pub fn bodies(&self) -> &[Graph] {
        &self.0.bodies
    }

    pub(super) fn uses(&self) -> &[Use] {
        &self.0.uses
    }
}

impl std::fmt::Debug for Conditional {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Conditional({}, {:?})", self.name(), self.0.bodies)
    }
}
