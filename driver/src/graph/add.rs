//! Adds kernels, copies and fills to a graph.

use driver_sys::{CUgraph, CUgraphEdgeData, CUgraphNode};
use ptx_gen::KernelDef;

use super::coherence::{Writers, WrittenGraph, expect_coherent};
use super::conditional::refuse_in_body;
use super::params::{any_kernel, memset_params, with_kernel_params};
use super::{EdgeKind, Graph, Node, NodeId, NodeKind, RawGraph};
use crate::element::Element;
use crate::queue::{Work, memcpy_params};
use crate::small_vec::SmallVec;
use crate::{Context, DriverError, Error, Host, Kernel, Launch, View};

/// The arguments that every driver call for adding a node takes.
pub(super) struct AddCall<'a> {
    pub(super) context: &'a Context,
    pub(super) graph: CUgraph,
    pub(super) node: *mut CUgraphNode,
    pub(super) after: *const CUgraphNode,
    pub(super) count: usize,
}

impl Graph {
    /// Adds an operation after the given nodes.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the work belongs to another context.
    /// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if `after` contains a node that the graph
    ///   does not have.
    /// - [`Error::Launch`] for a [programmatic](crate::LaunchConfig::programmatic) launch, which is
    ///   for streams.
    /// - [`Error::Driver`] if the driver cannot add the node.
    pub fn add(&mut self, after: &[NodeId], work: impl Into<Work>) -> Result<NodeId, Error> {
        self.add_full(after, work.into())
    }

    /// Adds an operation after the given nodes with edges of a kind.
    ///
    /// The edges are full if the device or the driver does not support programmatic edges.
    /// [`programmatic_edges`](Self::programmatic_edges) returns how many are programmatic. For a
    /// node with edges of both kinds, add it with the full ones, and add the others with
    /// [`add_edge_of`](Self::add_edge_of).
    ///
    /// # Errors
    /// - The errors of [`add`](Self::add).
    /// - [`Error::Overlap`] for a programmatic edge from or to other work than kernels, or to a
    ///   kernel that does not wait.
    /// - [`Error::Stale`] if the kernel reads memory with `ld.global.nc` that an overlapping kernel
    ///   writes.
    pub fn add_by(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        work: impl Into<Work>,
    ) -> Result<NodeId, Error> {
        match (edges.on(self.context()), work.into()) {
            (EdgeKind::Full, work) => self.add_full(after, work),
            (kind, work) => self.add_overlapping(kind, after, work),
        }
    }

    fn add_overlapping(
        &mut self,
        edge: EdgeKind,
        after: &[NodeId],
        work: Work,
    ) -> Result<NodeId, Error> {
        expect_addable(&work, self.context())?;
        let from = after
            .iter()
            .map(|node| self.index_of(*node))
            .collect::<Result<Vec<_>, _>>()?;
        self.expect_overlap(&from, self.nodes.len(), &work)?;
        let into: Vec<_> = from.iter().map(|f| (*f, edge)).collect();
        let writers = self
            .writers
            .get_or_insert_with(|| Writers::new(&self.nodes));
        let graph = WrittenGraph {
            nodes: &self.nodes,
            edges: &self.edges,
            writers,
        };
        expect_coherent(graph, &into, self.nodes.len(), &work)?;
        // Without a predecessor there is no edge, and then the work may be of any kind.
        if !matches!(work, Work::Launch(_)) {
            return self.add_full(after, work);
        }
        self.insert_work(edge, after, work, |call, work| match work {
            Work::Launch(launch) => add_kernel(call, edge.data(), launch),
            work => add_work(call, work),
        })
    }

    fn add_full(&mut self, after: &[NodeId], work: Work) -> Result<NodeId, Error> {
        expect_addable(&work, self.context())?;
        self.insert_work(EdgeKind::Full, after, work, add_work)
    }

    #[inline]
    fn insert_work(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        work: Work,
        add: impl FnOnce(&AddCall<'_>, &Work) -> Result<(), DriverError>,
    ) -> Result<NodeId, Error> {
        let attributed = matches!(&work, Work::Launch(launch) if launch.config().has_attributes());
        let node = self.insert(
            edges,
            after,
            NodeKind::Work(work),
            |call, kind| match kind {
                NodeKind::Work(work) => add(call, work),
                _ => Ok(()),
            },
        )?;
        if attributed {
            self.take_attributes(node)?;
        }
        Ok(node)
    }

    /// Adds a kernel after the given nodes.
    ///
    /// # Errors
    /// Returns the errors of [`Kernel::with`] and [`add`](Self::add).
    pub fn launch<K: KernelDef>(
        &mut self,
        after: &[NodeId],
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<NodeId, Error> {
        self.add(after, kernel.with(args)?)
    }

    /// Adds a copy after the given nodes. Use [`Work::copy_box`] for copies of two and three
    /// dimensions.
    ///
    /// # Errors
    /// Returns the errors of [`Work::copy`] and [`add`](Self::add).
    pub fn copy<T: Element>(
        &mut self,
        after: &[NodeId],
        from: &View<T>,
        to: &View<T>,
    ) -> Result<NodeId, Error> {
        self.add(after, Work::copy(from, to)?)
    }

    /// Adds a fill after the given nodes. Use [`Work::fill_box`] for fills of two and three
    /// dimensions.
    ///
    /// # Errors
    /// Returns the errors of [`Work::fill`] and [`add`](Self::add).
    pub fn fill<T: Element>(
        &mut self,
        after: &[NodeId],
        to: &View<T>,
        value: T,
    ) -> Result<NodeId, Error> {
        self.add(after, Work::fill(to, value)?)
    }

    /// Adds a node without work, which joins edges.
    ///
    /// # Errors
    /// Returns an error if a node in `after` belongs to another graph, or if the driver cannot add
    /// the node.
    pub fn empty(&mut self, after: &[NodeId]) -> Result<NodeId, Error> {
        self.insert(EdgeKind::Full, after, NodeKind::Empty, |call, _| {
            // SAFETY: `insert` passes handles of nodes of the graph, which is alive and locked.
            unsafe { add!(call, cuGraphAddEmptyNode()) }
        })
    }

    /// Adds a node with the given driver call, and records its work and edges.
    #[inline]
    pub(super) fn insert(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        kind: NodeKind,
        add: impl FnOnce(&AddCall<'_>, &NodeKind) -> Result<(), DriverError>,
    ) -> Result<NodeId, Error> {
        let mut indices = SmallVec::new();
        let mut handles = SmallVec::new();
        let indices = self.find_before(after, &kind, &mut indices, &mut handles)?;
        let mut node = CUgraphNode::NULL;
        {
            let (graph, _calls) = RawGraph::begin_by(&mut self.raw)?;
            let _current = graph.context.enter()?;
            let call = AddCall {
                context: &graph.context,
                graph: graph.raw,
                node: &mut node,
                after: handles.as_ptr(),
                count: handles.len(),
            };
            add(&call, &kind)?;
        }
        // Recorded only after the driver has added the node, so that an error leaves the graph
        // unchanged.
        let id = self.push_after(node, kind, indices);
        for from in indices {
            self.push_edge(*from, id.index, edges);
        }
        Ok(id)
    }

    /// Returns the nodes that a new one follows: their indices in ascending order without
    /// duplicates, and their handles.
    #[inline]
    fn find_before<'i>(
        &self,
        after: &[NodeId],
        kind: &NodeKind,
        indices: &'i mut SmallVec<usize, 8>,
        handles: &mut SmallVec<CUgraphNode, 8>,
    ) -> Result<&'i [usize], Error> {
        for node in after {
            indices.push(self.index_of(*node)?);
        }
        if self.raw.is_body() {
            let id = NodeId {
                graph: self.id,
                index: self.nodes.len(),
            };
            refuse_in_body(&Node {
                raw: CUgraphNode::NULL,
                id,
                kind: kind.clone(),
            })?;
        }
        // The driver refuses a dependency that is named twice.
        let indices = sorted(indices);
        for index in indices {
            handles.push(self.nodes[*index].raw);
        }
        Ok(indices)
    }
}

/// Checks that work can be added to a graph of `context`. A launch that overlaps the previous one
/// of a stream cannot, because graphs have programmatic edges instead.
#[inline]
pub(super) fn expect_addable(work: &Work, context: &Context) -> Result<(), Error> {
    work.expect_in(context)?;
    match work {
        Work::Launch(launch) if launch.config().programmatic => Err(Error::Launch {
            kernel: launch.function().name().to_string(),
            problem: crate::LaunchProblem::Attribute(
                "in a graph a kernel overlaps the one before it by a programmatic edge, not by its launch",
            ),
        }),
        _ => Ok(()),
    }
}

/// Sorts the numbers and removes duplicates.
#[inline]
fn sorted(numbers: &mut [usize]) -> &[usize] {
    if numbers.len() < 2 {
        return numbers;
    }
    numbers.sort_unstable();
    let mut kept = 1;
    for i in 1..numbers.len() {
        if numbers[i] != numbers[kept - 1] {
            numbers[kept] = numbers[i];
            kept += 1;
        }
    }
    &numbers[..kept]
}

fn add_work(call: &AddCall<'_>, work: &Work) -> Result<(), DriverError> {
    match work {
        Work::Launch(launch) => with_kernel_params(launch, |params| {
            // SAFETY: the launch keeps its function and its memory alive. The driver copies the
            // arguments.
            unsafe { add!(call, cuGraphAddKernelNode_v2(params)) }
        }),
        // The driver refuses a copy or a fill of 0 bytes.
        work if work.is_empty() => {
            // SAFETY: `insert` passes handles of nodes of the graph, which is alive and locked.
            unsafe { add!(call, cuGraphAddEmptyNode()) }
        }
        Work::Copy(copy) => {
            let params = memcpy_params(copy);
            let context = call.context.raw();
            // SAFETY: `expect_addable` has checked that the memory is of the context. The node
            // keeps it alive.
            unsafe { add!(call, cuGraphAddMemcpyNode(&params, context)) }
        }
        Work::Fill(fill) => {
            let params = memset_params(fill);
            let context = call.context.raw();
            // SAFETY: `expect_addable` has checked that the memory is of the context. The node
            // keeps it alive.
            unsafe { add!(call, cuGraphAddMemsetNode(&params, context)) }
        }
    }
}

/// Adds a kernel with edges of one kind. The driver has the function, because [`EdgeKind::on`]
/// returns full edges otherwise.
fn add_kernel(
    call: &AddCall<'_>,
    data: CUgraphEdgeData,
    launch: &Launch,
) -> Result<(), DriverError> {
    let edges = vec![data; call.count];
    let driver = call.context.driver();
    let after = call.after;
    let edges = edges.as_ptr();
    with_kernel_params(launch, |kernel| {
        // SAFETY: `with_kernel_params` passes valid parameters of a kernel.
        let mut params = unsafe { any_kernel(kernel) };
        let params = std::ptr::from_mut(&mut params).cast();
        // SAFETY: the launch keeps its function and its memory alive, and the driver copies the
        // arguments. `edges` has one entry for each predecessor.
        unsafe {
            cu_optional!(
                driver,
                cuGraphAddNode_v2(call.node, call.graph, after, edges, call.count, params)
            )
        }
    })
}
