//! Edges and nodes that come and go by hand.

use driver_sys::{CUgraphEdgeData, CUgraphNode};

use super::coherence::{Writers, expect_all_coherent};
use super::{Edge, EdgeKind, Graph, NodeId, NodeKind};
use crate::Error;

impl Graph {
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
        let refuse = |problem| {
            Err(Error::Edge {
                from: a,
                to: b,
                problem,
            })
        };
        let order = self.order();
        // An edge that is there makes an order.
        if order.precedes(a, b) && self.edges.iter().any(|e| e.indices() == (a, b)) {
            return refuse("it is there already");
        }
        if a == b || order.precedes(b, a) {
            return refuse("it would create a cycle");
        }
        let (earlier, later) = (self.nodes[a].raw, self.nodes[b].raw);
        match kind {
            EdgeKind::Full => self.add_dependency(earlier, later)?,
            _ => {
                match &self.nodes[b].kind {
                    NodeKind::Work(work) => self.expect_overlap(&[a], b, work)?,
                    _ => return refuse("only kernels overlap; use a full edge"),
                }
                let edges: Vec<Edge> = self
                    .edges
                    .iter()
                    .copied()
                    .chain([Edge { from, to, kind }])
                    .collect();
                expect_all_coherent(&self.nodes, &edges)?;
                self.add_overlap(earlier, later, kind.data())?;
            }
        }
        self.push_edges([(a, b, kind)]);
        Ok(())
    }

    /// Takes an edge away.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// let mut graph = Graph::new(&context)?;
    /// let first = graph.empty(&[])?;
    /// let second = graph.empty(&[first])?;
    /// graph.remove_edge(first, second)?;
    /// assert!(graph.edges().is_empty());
    /// graph.remove_node(first)?;
    /// assert_eq!(graph.nodes()[0].name(), "removed");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A node of another graph, an edge that is not there, or what the driver refuses.
    pub fn remove_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let (a, b) = (self.index_of(from)?, self.index_of(to)?);
        let Some(at) = self.edges.iter().position(|e| e.indices() == (a, b)) else {
            return Err(Error::Edge {
                from: a,
                to: b,
                problem: "there is none",
            });
        };
        self.remove_dependency(self.edges[at].kind, self.nodes[a].raw, self.nodes[b].raw)?;
        self.edges.remove(at);
        self.order.take();
        Ok(())
    }

    /// Takes a node away, with its edges. The numbers of the others stay as they are, and so does what was
    /// instantiated before; there the node cannot be changed any more.
    ///
    /// # Errors
    /// A node of another graph, or what the driver refuses: among others a node that allocates or frees memory.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if let NodeKind::Alloc(_) | NodeKind::Free(_) = self.nodes[index].kind {
            let what = "removing a node";
            return Err(Error::Graph {
                what,
                problem: "a node that allocates or frees memory stays",
            });
        }
        {
            let _current = self.raw.context.enter()?;
            let (_, mut removed) = self.raw.begin()?;
            // SAFETY: the node is of the graph, and from here on no call names it.
            unsafe {
                cu_if_there!(
                    self.raw.context.driver(),
                    cuGraphDestroyNode(self.nodes[index].raw)
                )
            }?;
            removed.push(node);
        }
        self.nodes[index].kind = NodeKind::Removed;
        self.nodes[index].raw = CUgraphNode::NULL;
        self.edges
            .retain(|edge| edge.from != node && edge.to != node);
        self.writers = self.writers.take().map(|_| Writers::of(&self.nodes));
        self.order.take();
        Ok(())
    }

    /// Removes a node that did not become what it was to be. Where the driver keeps it, the graph never runs.
    pub(super) fn take_back(&mut self, node: NodeId, problem: &'static str) {
        if let Err(error) = self.remove_node(node) {
            tell!(warn, %error, problem);
            self.broken = Some(problem);
        }
    }

    fn add_dependency(&self, from: CUgraphNode, to: CUgraphNode) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        // SAFETY: both nodes are of the graph.
        unsafe {
            cu_if_there!(
                self.context().driver(),
                cuGraphAddDependencies(graph, &from, &to, 1)
            )
        }?;
        Ok(())
    }

    fn add_overlap(
        &self,
        from: CUgraphNode,
        to: CUgraphNode,
        data: CUgraphEdgeData,
    ) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let driver = self.context().driver();
        // SAFETY: both nodes are of the graph, and each array has one element.
        unsafe {
            cu_if_there!(
                driver,
                cuGraphAddDependencies_v2(graph, &from, &to, &data, 1)
            )
        }?;
        Ok(())
    }

    fn remove_dependency(
        &self,
        kind: EdgeKind,
        from: CUgraphNode,
        to: CUgraphNode,
    ) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let (driver, data) = (self.context().driver(), kind.data());
        // SAFETY: both nodes are of the graph, and each array has one element.
        unsafe {
            match kind {
                EdgeKind::Full => {
                    cu_if_there!(driver, cuGraphRemoveDependencies(graph, &from, &to, 1))
                }
                _ => cu_if_there!(
                    driver,
                    cuGraphRemoveDependencies_v2(graph, &from, &to, &data, 1)
                ),
            }
        }?;
        Ok(())
    }
}
