//! Graphs by hand: nodes with explicit edges.
//!
//! A [`Graph`] is a plan. [`GraphExec`] is the plan made ready: it launches as a whole, and its nodes' work changes
//! in place. Both keep every kernel, buffer and event they name alive: nothing that a launch uses is released before
//! the launch has run.

/// Calls a function that adds a node: the arguments that all of them take, then its own.
macro_rules! add {
    ($call:ident, $name:ident($($arg:expr),*)) => {
        cu_if_there!($call.context.driver(), $name($call.node, $call.graph, $call.after, $call.count $(, $arg)*))
    };
}

mod add;
pub(crate) mod attribute;
pub(crate) mod by_memory;
mod coherence;
mod conditional;
mod copied;
mod dot;
pub(crate) mod edge;
pub(crate) mod exec;
pub(crate) mod instantiate;
mod link;
mod memory;
mod node;
pub(crate) mod order;
pub(crate) mod params;
mod parts;
pub(crate) mod profile;
pub(crate) mod races;
pub(crate) mod set;
mod update;
mod words;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use driver_sys::{CUgraph, CUgraphNode};

use crate::lock::lock;
use crate::release::Release;
use crate::{Context, Error};
use coherence::Writers;
use order::Order;

pub use conditional::{Condition, Conditional};
pub use edge::{Edge, EdgeKind};
pub use memory::Allocated;
pub use node::{Node, NodeId, NodeKind};
pub use parts::{Child, HostCall};
pub use words::{WordOperation, Words};

/// Something that a graph needs, kept for as long as the graph and what is made of it.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// Nodes and edges.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
/// let mut graph = Graph::new(&context)?;
/// let one = graph.fill(&[], &x, 1.0)?;
/// let two = graph.fill(&[], &y, 2.0)?; // beside the first
/// graph.copy(&[one, two], &x, &y)?; // after both
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&y)?, [1.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    pub(crate) raw: Arc<RawGraph>,
    id: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Once it is asked for.
    order: OnceLock<Order>,
    /// Once it is asked for.
    writers: Option<Writers>,
    /// What captured work needs that no node of ours stands for.
    owners: Vec<Owner>,
    /// The graph that it is a copy of.
    original: Option<u64>,
    /// Why it can never run.
    broken: Option<&'static str>,
}

/// The driver's graph. The lock serializes the driver's calls with it, because graphs of the driver are not for two
/// threads at the same time.
pub(crate) struct RawGraph {
    pub(crate) context: Context,
    raw: CUgraph,
    /// Shared with the bodies of its conditional nodes. Contains the nodes that were removed, which no call may name.
    calls: Arc<Mutex<Removed>>,
    /// Whether it is left to the driver.
    abandoned: AtomicBool,
    /// The conditional node that this graph is a body of, if it is one.
    owner: Option<BodyOwner>,
}

/// The conditional node that owns a body. The driver destroys the body with the node.
struct BodyOwner {
    graph: Arc<RawGraph>,
    node: NodeId,
}

/// The ids of the nodes that were removed from a graph.
type Removed = Vec<NodeId>;

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
        Self::over(RawGraph {
            context: context.clone(),
            raw,
            calls: Arc::default(),
            abandoned: false.into(),
            owner: None,
        })
    }

    /// Wraps a body of a conditional node, which belongs to the node.
    fn body(graph: &Arc<RawGraph>, node: NodeId, raw: CUgraph) -> Self {
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

    fn over(raw: RawGraph) -> Self {
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

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.raw.context
    }

    /// Its nodes, in the order of adding. One that was removed stays in its place as [`NodeKind::Removed`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its edges, in the order of adding.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The number of a node of this graph.
    #[inline]
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        node.index_in(self.id, &self.nodes)
    }

    /// Remembers a node that the driver has, and that no edge leads to yet.
    pub(crate) fn push_node(&mut self, raw: CUgraphNode, kind: NodeKind) -> NodeId {
        self.push_after(raw, kind, &[])
    }

    /// Remembers a node that the driver has, after these nodes.
    fn push_after(&mut self, raw: CUgraphNode, kind: NodeKind, after: &[usize]) -> NodeId {
        let id = NodeId {
            graph: self.id,
            index: self.nodes.len(),
        };
        if let Some(writers) = &mut self.writers {
            kind.touches()
                .for_each(|touch| writers.add(id.index, touch));
        }
        self.nodes.push(Node { raw, id, kind });
        if let Some(order) = self.order.get_mut() {
            order.push(after);
        }
        id
    }

    /// Remembers edges that the driver has.
    pub(crate) fn push_edges(&mut self, edges: impl IntoIterator<Item = (usize, usize, EdgeKind)>) {
        for (from, to, kind) in edges {
            self.push_edge(from, to, kind);
            if let Some(order) = self.order.get_mut() {
                order.add_edge(from, to);
            }
        }
    }

    /// The order that the edges make.
    pub(crate) fn order(&self) -> &Order {
        self.order
            .get_or_init(|| order_of(&self.nodes, &self.edges))
    }

    /// Remembers an edge, but for the order that it makes.
    fn push_edge(&mut self, from: usize, to: usize, kind: EdgeKind) {
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

    /// Keeps owners for as long as the graph and what is made of it lives.
    pub(crate) fn own(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.owners.extend(owners);
    }

    /// The driver's handles of nodes.
    pub(crate) fn raw_nodes(&self, nodes: &[NodeId]) -> Result<Vec<CUgraphNode>, Error> {
        nodes
            .iter()
            .map(|node| Ok(self.nodes[self.index_of(*node)?].raw))
            .collect()
    }

    /// Drops the graph without the driver's, which is never touched again: nor are its nodes by what was made of it.
    pub(crate) fn abandon(self) {
        tell!(
            warn,
            "a graph is left to the driver after a capture into it failed"
        );
        lock(&self.raw.calls).extend(self.nodes.iter().map(Node::id));
        self.raw.abandoned.store(true, Ordering::Relaxed);
    }

    /// Refuses what a graph cannot become a part of anything by.
    pub(crate) fn expect_whole(&self, what: &'static str) -> Result<(), Error> {
        let problem = match self.broken {
            None if !self.raw.is_body() => return Ok(()),
            None => "it is the body of a conditional node, which runs as part of its graph only",
            Some(problem) => problem,
        };
        Err(Error::Graph { what, problem })
    }

    /// Refuses a graph with nodes of a sort that there is only once.
    fn expect_plain(&self, what: &'static str) -> Result<(), Error> {
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

fn order_of(nodes: &[Node], edges: &[Edge]) -> Order {
    Order::of(nodes.len(), edges.iter().map(Edge::indices))
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

impl RawGraph {
    /// Returns the handle and the right to call the driver with it.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] for the body of a conditional node that was removed, because the driver has destroyed
    /// the body with the node.
    #[inline]
    pub(crate) fn begin(&self) -> Result<(CUgraph, MutexGuard<'_, Removed>), Error> {
        let removed = lock(&self.calls);
        self.expect_alive(&removed)?;
        Ok((self.raw, removed))
    }

    /// Returns the handle and the right to call the driver with it, for a graph that is not the body of a conditional
    /// node.
    pub(crate) fn begin_whole(&self) -> (CUgraph, MutexGuard<'_, Removed>) {
        debug_assert!(
            !self.is_body(),
            "the caller has checked that the graph is whole"
        );
        (self.raw, lock(&self.calls))
    }

    /// Returns the right to call the driver with the graph. It needs no lock if the caller has the only share.
    #[inline]
    fn begin_by(graph: &mut Arc<Self>) -> Result<(&Self, Option<MutexGuard<'_, Removed>>), Error> {
        if !graph.is_body() && Arc::strong_count(graph) == 1 {
            // The calls of earlier owners happen before those of this one.
            fence(Ordering::Acquire);
            return Ok((graph, None));
        }
        let removed = lock(&graph.calls);
        graph.expect_alive(&removed)?;
        Ok((graph, Some(removed)))
    }

    /// Returns true if the graph is the body of a conditional node.
    #[inline]
    fn is_body(&self) -> bool {
        self.owner.is_some()
    }

    /// Refuses a body whose node was removed, or the node of a body around it.
    #[inline]
    fn expect_alive(&self, removed: &Removed) -> Result<(), Error> {
        let mut graph = self;
        while let Some(owner) = &graph.owner {
            if removed.contains(&owner.node) {
                let problem = "its node was removed, and the driver has destroyed the body with it";
                return Err(Error::Graph {
                    what: "using the body of a conditional node",
                    problem,
                });
            }
            graph = &owner.graph;
        }
        Ok(())
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        if !self.is_body() && !*self.abandoned.get_mut() {
            self.context.release(Release::Graph(self.raw));
        }
    }
}
