//! Memory that a graph allocates when it runs.
//!
//! A node allocates it, at an address that is known as soon as the node is added; the nodes after it use it; another
//! node frees it, or else the next launch does, where the graph is instantiated so
//! ([`Instantiate::auto_free`](super::Instantiate::auto_free)). What is there before the node and after the freeing is
//! nobody's, so every use is checked: work in a stream or in another graph is refused, and so is a graph with a node
//! that is not between the two. The check is made when the graph is instantiated or changed.

use std::sync::Arc;

use driver_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPoolProps,
};

use super::order::Order;
use super::{Graph, Node, NodeId, NodeKind};
use crate::element::Element;
use crate::memory::{byte_len, or_out_of_memory};
use crate::uses::Touch;
use crate::{EdgeKind, Error, Region, View};

/// The memory of a node that allocates or frees it. Clones name the same memory.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// The memory.
    pub fn region(&self) -> &Region {
        &self.0
    }
}

impl Graph {
    /// Adds a node that allocates memory of `len` elements, and gives the memory for the nodes after it.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let y = Buffer::<f32>::zeroed(&context, 1000)?;
    /// let mut graph = Graph::new(&context)?;
    /// let (allocated, scratch) = graph.alloc::<f32>(&[], 1000)?;
    /// let filled = graph.fill(&[allocated], &scratch, 3.0)?;
    /// let copied = graph.copy(&[filled], &scratch, &y)?;
    /// graph.free(&[copied], &scratch)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&y)?[999], 3.0);
    /// assert!(stream.fill(&scratch, 0.0).is_err()); // it is the graph's
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No elements; a node of another graph; the body of a conditional node, which cannot allocate; or what the driver
    /// refuses. [`instantiate`](Self::instantiate) refuses uses that are not between allocation and freeing.
    pub fn alloc<T: Element>(
        &mut self,
        after: &[NodeId],
        len: usize,
    ) -> Result<(NodeId, View<T>), Error> {
        let bytes = byte_len::<T>(len);
        if bytes == 0 {
            return Err(Error::Graph {
                what: "allocating in a graph",
                problem: "no bytes were asked for",
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
        // From here on streams look at what they are given, and refuse this memory.
        self.context().order().set_graph_memory();
        let node = self.insert(EdgeKind::Full, after, NodeKind::Empty, |call, _| {
            // SAFETY: `params` is lent; the driver writes the address.
            unsafe { add!(call, cuGraphAddMemAllocNode(&mut params)) }
        });
        let node = node.map_err(|error| match error {
            Error::Driver(error) => or_out_of_memory(error, self.context(), bytes),
            other => other,
        })?;
        let view = View::of_graph(self.context(), params.dptr, len, (self.id, node.index()));
        self.nodes[node.index].kind = NodeKind::Alloc(Allocated(Arc::new(view.region().clone())));
        Ok((node, view))
    }

    /// Adds a node that frees memory which a node of this graph allocates.
    ///
    /// # Errors
    /// Memory that is not of this graph, or that another node frees; a part of it; a node of another graph; or what
    /// the driver refuses.
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
        let (address, kind) = (memory.region().address(), NodeKind::Free(memory.clone()));
        self.insert(EdgeKind::Full, after, kind, |call, _| {
            // SAFETY: a node of the graph allocates memory at the address.
            unsafe { add!(call, cuGraphAddMemFreeNode(address)) }
        })
    }

    fn freed_by(&self, memory: &Region) -> Option<usize> {
        freed_by(&self.nodes, memory)
    }

    /// Refuses a graph that uses memory of graphs elsewhere than between its allocation and its freeing.
    pub(super) fn expect_memory_in_order(&self) -> Result<(), Error> {
        if !self.context().order().has_graph_memory() {
            return Ok(());
        }
        for node in &self.nodes {
            node.kind.touches().try_for_each(|touch| {
                expect_in_order(
                    (self.id, &self.nodes, self.order()),
                    (node.id.index, node.name()),
                    touch,
                )
            })?;
            if let NodeKind::Free(memory) = &node.kind {
                let touch = ("memory", memory.region(), ptx_gen::Access::Write);
                expect_in_order(
                    (self.id, &self.nodes, self.order()),
                    (node.id.index, node.name()),
                    touch,
                )?;
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

/// Refuses a use by this node of memory of a graph that is not there then.
pub(super) fn expect_in_order(
    (graph, nodes, order): (u64, &[Node], &Order),
    (index, name): (usize, String),
    (_, region, _): Touch<'_>,
) -> Result<(), Error> {
    let Some((of, alloc)) = region.graph() else {
        return Ok(());
    };
    let refuse = |problem| {
        Err(Error::GraphMemory {
            buffer: region.name(),
            user: format!("node {index} ({name})"),
            problem,
        })
    };
    if of != graph {
        return refuse("another graph allocates it");
    }
    if !order.precedes(alloc, index) {
        return refuse("the node does not come after the one that allocates it");
    }
    match freed_by(nodes, region) {
        Some(free) if free != index && !order.precedes(index, free) => {
            refuse("the node does not come before the one that frees it")
        }
        _ => Ok(()),
    }
}
