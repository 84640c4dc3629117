//! Copies of graphs.

use driver_sys::{CUgraph, CUgraphNode};

use super::{Edge, Graph, Node, NodeId, NodeKind};
use crate::Error;

impl Graph {
    /// A copy of the graph, which changes without it. Its nodes have the numbers that the original's have;
    /// [`copy_of`](Self::copy_of) gives the ids.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 4)?;
    /// let mut graph = Graph::new(&context)?;
    /// let filled = graph.fill(&[], &x, 1.0)?;
    /// let mut copy = graph.try_clone()?;
    /// let there = copy.copy_of(filled)?;
    /// copy.fill(&[there], &x, 2.0)?;
    /// assert_eq!((graph.nodes().len(), copy.nodes().len()), (1, 2));
    /// copy.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&x)?, [2.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A graph with conditional nodes, or that allocates or frees memory ([`Error::Graph`]); or what the driver refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        self.expect_plain("cloning it")?;
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: `raw` is ours to write; the graph is alive.
        unsafe { cu_if_there!(self.context().driver(), cuGraphClone(&mut raw, graph)) }?;
        let mut copy = Self::adopt(self.context(), raw);
        for node in &self.nodes {
            let id = NodeId {
                graph: copy.id,
                ..node.id
            };
            let raw = self.find_in(raw, node)?;
            copy.nodes.push(Node {
                raw,
                id,
                kind: node.kind.clone(),
            });
        }
        let own = |node| NodeId {
            graph: copy.id,
            ..node
        };
        copy.edges = self
            .edges
            .iter()
            .map(|e| Edge {
                from: own(e.from),
                to: own(e.to),
                ..*e
            })
            .collect();
        (copy.order, copy.owners) = (self.order.clone(), self.owners.clone());
        copy.original = Some(self.id);
        Ok(copy)
    }

    /// The node of this graph that was copied from a node of its original.
    ///
    /// # Errors
    /// A node of another graph, or one that the original did not have yet, or that was removed.
    pub fn copy_of(&self, original: NodeId) -> Result<NodeId, Error> {
        if self.original != Some(original.graph) {
            return Err(Error::ForeignNode {
                node: original.index,
            });
        }
        let copy = NodeId {
            graph: self.id,
            ..original
        };
        self.index_of(copy).map(|_| copy)
    }

    /// The node's copy in a clone.
    fn find_in(&self, clone: CUgraph, node: &Node) -> Result<CUgraphNode, Error> {
        let mut raw = CUgraphNode::NULL;
        if !matches!(node.kind, NodeKind::Removed) {
            let driver = self.context().driver();
            // SAFETY: `raw` is ours to write; the node is of the graph that the clone was made of.
            unsafe { cu_if_there!(driver, cuGraphNodeFindInClone(&mut raw, node.raw, clone)) }?;
        }
        Ok(raw)
    }
}
