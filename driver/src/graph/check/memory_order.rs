//! Checks the order of uses of the memory that a graph allocates when it runs.
//!
//! A node allocates the memory. Its address is known as soon as the node is added. Nodes after it
//! use the memory, and another node frees it. If no node frees it, the next launch can (see
//! [`Instantiate::auto_free`](crate::graph::Instantiate::auto_free)).
//!
//! The contents are undefined before the allocation and after the release, so every use is checked.
//! Work in a stream or in another graph is refused, and so is a node that is not between the two.
//! The check runs when the graph is instantiated or changed.

use crate::error::Error;
use crate::graph::check::node_order::NodeOrder;
use crate::graph::{Graph, Node, NodeKind};
use crate::memory::Region;
use crate::ordering::memory_accesses::MemoryAccess;

/// Checks that memory of graphs is used only between its allocation and its release.
pub(crate) fn expect_memory_in_order(graph: &Graph) -> Result<(), Error> {
    if !graph.context().order().has_graph_memory() {
        return Ok(());
    }

    let ordered = OrderedNodes {
        id: graph.id,
        nodes: &graph.nodes,
        order: graph.order(),
    };
    for node in &graph.nodes {
        for touch in node.kind.touches() {
            expect_in_order(&ordered, node, touch)?;
        }
        if let NodeKind::Free(memory) = &node.kind {
            let touch = MemoryAccess {
                name: "memory",
                region: memory.region(),
                access: ptx_gen::Access::Write,
            };
            expect_in_order(&ordered, node, touch)?;
        }
    }

    Ok(())
}

/// Returns the index of the node that frees the memory.
pub(crate) fn freed_by(nodes: &[Node], memory: &Region) -> Option<usize> {
    nodes.iter().position(
        |n| matches!(&n.kind, NodeKind::Free(freed) if freed.region().same_memory(memory)),
    )
}

/// The nodes of a graph and their order.
pub(crate) struct OrderedNodes<'g> {
    /// The id of the graph.
    pub(crate) id: u64,
    pub(crate) nodes: &'g [Node],
    pub(crate) order: &'g NodeOrder,
}

/// Checks that a node uses memory of a graph only while it exists.
pub(crate) fn expect_in_order(
    graph: &OrderedNodes<'_>,
    node: &Node,
    touch: MemoryAccess<'_>,
) -> Result<(), Error> {
    let region = touch.region;
    let index = node.id.index;
    let Some((of, alloc)) = region.graph() else {
        return Ok(());
    };

    let refuse = |problem| {
        Err(Error::GraphMemory {
            buffer: region.name(),
            user: format!("node {}", node.describe()),
            problem,
        })
    };

    // The id first, because the index of the allocation belongs to that graph.
    if of != graph.id {
        return refuse("another graph allocates it");
    }
    if !graph.order.precedes(alloc, index) {
        return refuse("the node does not come after the one that allocates it");
    }

    match freed_by(graph.nodes, region) {
        Some(free) if free != index && !graph.order.precedes(index, free) => {
            refuse("the node does not come before the one that frees it")
        }
        _ => Ok(()),
    }
}
