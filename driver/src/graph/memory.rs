//! Memory that a graph allocates when it runs.
//!
//! A node allocates the memory. Its address is known as soon as the node is added. Nodes after it
//! use the memory, and another node frees it. If no node frees it, the next launch can (see
//! [`Instantiate::auto_free`](super::Instantiate::auto_free)).
//!
//! The contents are undefined before the allocation and after the release, so every use is checked.
//! Work in a stream or in another graph is refused, and so is a node that is not between the two.
//! The check runs when the graph is instantiated or changed.

use std::sync::Arc;

use driver_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPoolProps,
};

use super::order::Order;
use super::{Graph, Node, NodeId, NodeKind};
use crate::element::Element;
use crate::memory::{byte_len, or_out_of_memory};
use crate::uses::MemoryAccess;
use crate::{EdgeKind, Error, Region, View};

/// The memory of a node that allocates or frees it. Clones refer to the same memory.
///
/// ```
/// # use warpwright_driver::*;
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
    /// Returns the memory as a region.
    pub fn region(&self) -> &Region {
        &self.0
    }
}

impl Graph {
    /// Adds a node that allocates `len` elements, and returns the node and a view for the nodes
    /// after it.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let y = Buffer::<f32>::zeroed(&context, 1000)?;
    /// let mut graph = Graph::new(&context)?;
    /// let (allocated, scratch) = graph.alloc::<f32>(&[], 1000)?;
    /// let filled = graph.fill(&[allocated], &scratch, 3.0)?;
    /// let copied = graph.copy(&[filled], &scratch, &y)?;
    /// graph.free(&[copied], &scratch)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&y)?[999], 3.0);
    /// assert!(stream.fill(&scratch, 0.0).is_err()); // the graph owns the memory
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Graph`] if `len` is 0, or if the graph is the body of a conditional node, which
    ///   cannot allocate.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::OutOfMemory`] if the device has too little memory.
    ///
    /// [`instantiate`](Self::instantiate) returns an error for uses that are not between allocation
    /// and release.
    pub fn alloc<T: Element>(
        &mut self,
        after: &[NodeId],
        len: usize,
    ) -> Result<(NodeId, View<T>), Error> {
        let bytes = byte_len::<T>(len);
        if bytes == 0 {
            return Err(Error::Graph {
                what: "allocating in a graph",
                problem: "the size is 0",
            });
        }
        if self.raw.is_body() {
            let problem = "the body of a conditional node has no allocations";
            return Err(Error::Graph {
                what: "allocating in a graph",
                problem,
            });
        }
        let location = CUmemLocation {
            r#type: CUmemLocationType::DEVICE,
            id: self.context().device().raw(),
        };
        let mut params = CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
            poolProps: CUmemPoolProps {
                allocType: CUmemAllocationType::PINNED,
                location,
                ..CUmemPoolProps::zeroed()
            },
            bytesize: bytes,
            ..CUDA_MEM_ALLOC_NODE_PARAMS_v1::zeroed()
        };
        // Before the node is added, because from then on the address exists and streams must check
        // their work for it.
        self.context().order().set_graph_memory();
        let node = self.insert(EdgeKind::Full, after, NodeKind::Empty, |call, _| {
            // SAFETY: `params` is a local variable, into which the driver writes the address.
            unsafe { add!(call, cuGraphAddMemAllocNode(&mut params)) }
        });
        let node = node.map_err(|error| match error {
            Error::Driver(error) => or_out_of_memory(error, self.context(), bytes),
            other => other,
        })?;
        let view = View::from_graph(self.context(), params.dptr, len, self.id, node.index());
        self.nodes[node.index].kind = NodeKind::Alloc(Allocated(Arc::new(view.region().clone())));
        Ok((node, view))
    }

    /// Adds a node that frees memory which another node of this graph allocates.
    ///
    /// # Errors
    /// - [`Error::Graph`] if no node of this graph allocates the memory, or if another node frees
    ///   it.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::Driver`] if the driver cannot add the node.
    pub fn free<T: Element>(
        &mut self,
        after: &[NodeId],
        memory: &View<T>,
    ) -> Result<NodeId, Error> {
        let region = memory.region();
        let refuse = |problem| {
            Err(Error::Graph {
                what: "freeing in a graph",
                problem,
            })
        };
        let Some((_, of)) = region.graph().filter(|(graph, _)| *graph == self.id) else {
            return refuse("no node of this graph allocates the memory");
        };
        let NodeKind::Alloc(memory) = &self.nodes[of].kind else {
            return refuse("no node of this graph allocates the memory");
        };
        if self.freed_by(region).is_some() {
            return refuse("another node frees the memory");
        }
        let address = memory.region().address();
        let kind = NodeKind::Free(memory.clone());
        self.insert(EdgeKind::Full, after, kind, |call, _| {
            // SAFETY: the check above shows that a node of this graph allocates memory at the
            // address.
            unsafe { add!(call, cuGraphAddMemFreeNode(address)) }
        })
    }

    fn freed_by(&self, memory: &Region) -> Option<usize> {
        freed_by(&self.nodes, memory)
    }

    /// Checks that memory of graphs is used only between its allocation and its release.
    pub(super) fn expect_memory_in_order(&self) -> Result<(), Error> {
        if !self.context().order().has_graph_memory() {
            return Ok(());
        }
        let graph = OrderedNodes {
            id: self.id,
            nodes: &self.nodes,
            order: self.order(),
        };
        for node in &self.nodes {
            for touch in node.kind.touches() {
                expect_in_order(&graph, node, touch)?;
            }
            if let NodeKind::Free(memory) = &node.kind {
                let touch = MemoryAccess {
                    name: "memory",
                    region: memory.region(),
                    access: ptx_gen::Access::Write,
                };
                expect_in_order(&graph, node, touch)?;
            }
        }
        Ok(())
    }
}

fn freed_by(nodes: &[Node], memory: &Region) -> Option<usize> {
    nodes
        .iter()
        .position(|n| matches!(&n.kind, NodeKind::Free(freed) if freed.0.same_memory(memory)))
}

/// The nodes of a graph and their order.
pub(super) struct OrderedNodes<'g> {
    /// The id of the graph.
    pub(super) id: u64,
    pub(super) nodes: &'g [Node],
    pub(super) order: &'g Order,
}

/// Checks that a node uses memory of a graph only while it exists.
pub(super) fn expect_in_order(
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
