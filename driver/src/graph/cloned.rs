//! Clones of graphs.

use driver_sys::{CUgraph, CUgraphNode};

use crate::error::Error;
use crate::graph::{Edge, Graph, Node, NodeId, NodeKind};

impl Graph {
    /// Returns a clone of the graph, which changes independently.
    ///
    /// Its nodes have the same indices as those of the original. [`copy_of`](Self::copy_of) returns
    /// their ids.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// Returns [`Error::Graph`] if the graph contains conditional nodes or allocates or frees
    /// memory, or an error if the driver cannot clone it.
    pub fn try_clone(&self) -> Result<Self, Error> {
        self.expect_plain("cloning it")?;
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let mut raw = CUgraph::NULL;

        // SAFETY: `raw` is a local variable that the driver may write. `self` keeps the graph
        // alive, which is locked.
        unsafe { cu_optional!(self.context().driver(), cuGraphClone(&mut raw, graph)) }?;
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
        copy.order = self.order.clone();
        copy.owners = self.owners.clone();
        copy.original = Some(self.id);
        Ok(copy)
    }

    /// Returns the node of this graph that was cloned from a node of the original.
    ///
    /// # Errors
    /// Returns [`Error::ForeignNode`] if the node does not belong to the original or was added
    /// after the clone, or [`Error::RemovedNode`] if it was removed.
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

    /// Returns the copy of a node in a clone.
    fn find_in(&self, clone: CUgraph, node: &Node) -> Result<CUgraphNode, Error> {
        let mut raw = CUgraphNode::NULL;
        if !matches!(node.kind, NodeKind::Removed) {
            let driver = self.context().driver();
            // SAFETY: `raw` is a local variable that the driver may write. The clone was made from
            // the graph of the node just before.
            unsafe { cu_optional!(driver, cuGraphNodeFindInClone(&mut raw, node.raw, clone)) }?;
        }
        Ok(raw)
    }
}
