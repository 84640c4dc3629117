//! Graphs by hand: nodes with explicit edges.
//!
//! A [`Graph`] is a plan. [`GraphExec`] is the plan made ready: it launches as a whole, and its kernels' arguments
//! change in place. Both keep every kernel, buffer and event they name alive, and a stream keeps what it runs.

mod add;
mod coherence;
mod dot;
pub(crate) mod edge;
mod exec;
pub(crate) mod order;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use driver_sys::{CUgraph, CUgraphNode, CUgraphNodeType};

use crate::lock::lock;
use crate::queue::{Hazard, Use, Work, hazard};
use crate::release::Release;
use crate::{Context, Error, Region};
use coherence::Writers;
use order::Order;

pub use edge::{Edge, EdgeKind};
pub use exec::GraphExec;

/// Something that a graph needs, kept for as long as the graph and what is made of it.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// Nodes and edges.
pub struct Graph {
    pub(crate) raw: Arc<RawGraph>,
    id: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    pub(crate) order: Order,
    /// Once it is asked for.
    writers: Option<Writers>,
    /// What captured work needs that no node of ours stands for.
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
    /// What it needs beside its work: a function of the host, an event, a child's nodes.
    keeps: Option<Owner>,
}

/// What a node does.
#[derive(Clone, Debug)]
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
        self.kind.uses()
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

impl NodeKind {
    fn uses(&self) -> Vec<Use> {
        match self {
            Self::Work(work) => work.uses(),
            Self::Child(uses) => uses.clone(),
            _ => Vec::new(),
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
        unsafe { cu_if_there!(context.driver(), cuGraphCreate(&mut raw, 0)) }?;
        Ok(Self::adopt(context, raw))
    }

    /// Takes over a graph of the driver.
    pub(crate) fn adopt(context: &Context, raw: CUgraph) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let raw = Arc::new(RawGraph { context: context.clone(), raw, calls: Mutex::default() });
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (nodes, edges, owners) = (Vec::new(), Vec::new(), Vec::new());
        Self { raw, id, nodes, edges, order: Order::default(), writers: None, owners }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.raw.context
    }

    /// Its nodes, in the order of adding.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its edges, in the order of adding.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// What makes an edge needed: the buffers that both nodes touch, and how.
    ///
    /// # Errors
    /// A node of another graph.
    pub fn reasons(&self, from: NodeId, to: NodeId) -> Result<Vec<(Hazard, String)>, Error> {
        let (from, to) = (self.index_of(from)?, self.index_of(to)?);
        let mut reasons = Vec::new();
        for a in self.nodes[from].uses() {
            for b in self.nodes[to].uses() {
                let reason = hazard(a.access, b.access).map(|hazard| (hazard, a.region.name()));
                reasons.extend(reason.filter(|_| a.region.overlaps(&b.region)));
            }
        }
        reasons.sort();
        reasons.dedup();
        Ok(reasons)
    }

    /// Pairs of nodes that no path of edges orders and that touch the same bytes, one of them writing: the edges that
    /// were forgotten. A recorded graph has none.
    pub fn races(&self) -> Vec<Race> {
        let order = &self.order;
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

    /// The number of a node of this graph.
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        let known = node.graph == self.id && node.index < self.nodes.len();
        if known { Ok(node.index) } else { Err(Error::ForeignNode { node: node.index }) }
    }

    /// Remembers a node that the driver has, and that no edge leads to yet.
    pub(crate) fn push_node(&mut self, raw: CUgraphNode, kind: NodeKind) -> NodeId {
        self.push_after(raw, kind, None, &[])
    }

    /// The same for a node that is a graph, with what its nodes use and need.
    pub(crate) fn push_child(&mut self, raw: CUgraphNode, uses: Vec<Use>, keeps: Owner) {
        self.push_after(raw, NodeKind::Child(uses), Some(keeps), &[]);
    }

    /// Remembers a node that the driver has, after these nodes.
    fn push_after(
        &mut self,
        raw: CUgraphNode,
        kind: NodeKind,
        keeps: Option<Owner>,
        after: &[usize],
    ) -> NodeId {
        let id = NodeId { graph: self.id, index: self.nodes.len() };
        if let Some(writers) = &mut self.writers {
            writers.add(id.index, &kind.uses());
        }
        self.nodes.push(Node { raw, id, kind, keeps });
        self.order.push(after);
        id
    }

    /// Remembers edges that the driver has.
    pub(crate) fn push_edges(&mut self, edges: impl IntoIterator<Item = (usize, usize, EdgeKind)>) {
        for (from, to, kind) in edges {
            self.order.add_edge(from, to);
            self.push_edge(from, to, kind);
        }
    }

    /// Remembers an edge whose order is known.
    fn push_edge(&mut self, from: usize, to: usize, kind: EdgeKind) {
        let id = |index| NodeId { graph: self.id, index };
        self.edges.push(Edge { from: id(from), to: id(to), kind });
    }

    /// Keeps owners for as long as the graph and what is made of it lives.
    pub(crate) fn own(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.owners.extend(owners);
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({} nodes, {} edges)", self.nodes.len(), self.edges.len())
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.describe())
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
