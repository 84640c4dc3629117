//! Graphs with explicit nodes and edges.
//!
//! A [`Graph`] is a plan. [`GraphExec`](crate::GraphExec) is the plan made ready to launch: it runs
//! as a whole, and the work of its nodes changes in place. Both keep every kernel, buffer and event
//! they use alive. An object that a launch uses is released only after the launch has completed.

/// Calls a driver function that adds a node, with the arguments common to all of them and its own
/// ones.
macro_rules! add {
    ($call:ident, $name:ident($($arg:expr),*)) => {
        cu_optional!($call.context.driver(), $name($call.node, $call.graph, $call.after, $call.count $(, $arg)*))
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

/// An object that a graph uses. It is kept by the graph and everything that is made from the graph.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// A graph of nodes and edges.
///
/// Add nodes with [`add`](Self::add), [`launch`](Self::launch), [`copy`](Self::copy) and similar
/// methods, each after the nodes it depends on. Then call [`instantiate`](Self::instantiate) and
/// launch the result.
///
/// ```
/// # use warpwright_driver::*;
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
    id: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// The order of the nodes, computed on first use.
    order: OnceLock<Order>,
    /// The nodes that write each memory, computed on first use.
    writers: Option<Writers>,
    /// Objects of captured work that has no node of this crate.
    owners: Vec<Owner>,
    /// The id of the graph that this one was cloned from.
    original: Option<u64>,
    /// The reason why the graph can never run, if there is one.
    broken: Option<&'static str>,
}

/// The driver's graph.
///
/// Its lock serializes driver calls with the graph, because the driver's graphs must not be used by
/// two threads at the same time.
pub(crate) struct RawGraph {
    pub(crate) context: Context,
    raw: CUgraph,
    /// The lock, which is shared with the bodies of conditional nodes. It contains the nodes that
    /// were removed and must not be passed to the driver.
    calls: Arc<Mutex<Removed>>,
    /// Whether the graph is left to the driver and not destroyed.
    abandoned: AtomicBool,
    /// The conditional node whose body this graph is, if it is one.
    owner: Option<BodyOwner>,
}

/// The conditional node that owns a body. The driver destroys the body with the node.
struct BodyOwner {
    graph: Arc<RawGraph>,
    node: NodeId,
}

/// The ids of the nodes that were removed from a graph.
type Removed = Vec<NodeId>;

/// The reason why a graph without one of its conditional nodes never runs.
///
/// The driver keeps the condition and has no call to destroy it. At instantiation it reports "The
/// graph contains unused conditional handles" (580.159 on an H100).
const UNUSED_CONDITION: &str = "a conditional node was removed, or its body could not \
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
    fn push_after(&mut self, raw: CUgraphNode, kind: NodeKind, after: &[usize]) -> NodeId {
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
    pub(crate) fn order(&self) -> &Order {
        self.order
            .get_or_init(|| order_of(&self.nodes, &self.edges))
    }

    /// Records an edge without updating the order.
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
    Order::from_edges(nodes.len(), edges.iter().map(Edge::indices))
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
    /// Locks the graph for driver calls and returns its handle.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] for the body of a conditional node that was removed, because the
    /// driver has destroyed the body with the node.
    #[inline]
    pub(crate) fn begin(&self) -> Result<(CUgraph, MutexGuard<'_, Removed>), Error> {
        let removed = lock(&self.calls);
        self.expect_alive(&removed)?;
        Ok((self.raw, removed))
    }

    /// Locks a graph that is not the body of a conditional node, and returns its handle.
    pub(crate) fn begin_whole(&self) -> (CUgraph, MutexGuard<'_, Removed>) {
        debug_assert!(
            !self.is_body(),
            "the caller has checked that the graph is whole"
        );
        (self.raw, lock(&self.calls))
    }

    /// Returns the graph for driver calls. No lock is needed if the caller has the only share.
    #[inline]
    fn begin_by(graph: &mut Arc<Self>) -> Result<(&Self, Option<MutexGuard<'_, Removed>>), Error> {
        if !graph.is_body() && Arc::strong_count(graph) == 1 {
            // Another thread may have made calls before it dropped its share. The fence orders them
            // before the calls of this thread, as in `Arc::get_mut`.
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

    /// Checks that neither the node of a body nor the node of a body around it was removed.
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
