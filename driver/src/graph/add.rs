//! Adding kernels, copies and fills by hand.

use driver_sys::{CUgraph, CUgraphEdgeData, CUgraphNode};
use ptx_gen::KernelDef;

use super::coherence::{Writers, expect_coherent};
use super::conditional::refuse_in_body;
use super::params::{any_kernel, memset_params, with_kernel_params};
use super::{EdgeKind, Graph, Node, NodeId, NodeKind, RawGraph};
use crate::element::Element;
use crate::few::Few;
use crate::queue::{Work, memcpy_params};
use crate::{Context, DriverError, Error, Host, Kernel, Launch, View};

/// What every call that adds a node takes.
pub(super) struct AddCall<'a> {
    pub(super) context: &'a Context,
    pub(super) graph: CUgraph,
    pub(super) node: *mut CUgraphNode,
    pub(super) after: *const CUgraphNode,
    pub(super) count: usize,
}

impl Graph {
    /// Adds work after the given nodes.
    ///
    /// # Errors
    /// Work of another context, a node of another graph, a programmatic launch of a stream, or what the driver refuses.
    pub fn add(&mut self, after: &[NodeId], work: impl Into<Work>) -> Result<NodeId, Error> {
        self.add_full(after, work.into())
    }

    /// Adds work after the given nodes by edges of that kind. Where the device or the driver has no programmatic
    /// edges, they are full; [`programmatic_edges`](Self::programmatic_edges) tells.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`Error::Overlap`] for programmatic edges from or to other work than kernels, or to a
    /// kernel that does not wait; [`Error::Stale`] for a kernel that reads by `ld.global.nc` what a kernel writes that
    /// may still run when it starts. A node with edges of both kinds is added by the full ones.
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
        let writers = self.writers.get_or_insert_with(|| Writers::of(&self.nodes));
        expect_coherent(
            (&self.nodes, &self.edges, writers),
            &into,
            self.nodes.len(),
            &work,
        )?;
        // Without a node before it there is no edge, and it may be of any sort.
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
    /// As [`Kernel::with`] and [`add`](Self::add).
    pub fn launch<K: KernelDef>(
        &mut self,
        after: &[NodeId],
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<NodeId, Error> {
        self.add(after, kernel.with(args)?)
    }

    /// Adds a copy after the given nodes. [`Work::copy_box`] makes copies of two and three dimensions.
    ///
    /// # Errors
    /// As [`Work::copy`] and [`add`](Self::add).
    pub fn copy<T: Element>(
        &mut self,
        after: &[NodeId],
        from: &View<T>,
        to: &View<T>,
    ) -> Result<NodeId, Error> {
        self.add(after, Work::copy(from, to)?)
    }

    /// Adds a fill after the given nodes. [`Work::fill_box`] makes fills of two and three dimensions.
    ///
    /// # Errors
    /// As [`Work::fill`] and [`add`](Self::add).
    pub fn fill<T: Element>(
        &mut self,
        after: &[NodeId],
        to: &View<T>,
        value: T,
    ) -> Result<NodeId, Error> {
        self.add(after, Work::fill(to, value)?)
    }

    /// Adds a node that does nothing: a place for edges to meet.
    ///
    /// # Errors
    /// A node of another graph, or what the driver refuses.
    pub fn empty(&mut self, after: &[NodeId]) -> Result<NodeId, Error> {
        self.insert(EdgeKind::Full, after, NodeKind::Empty, |call, _| {
            // SAFETY: the call names nodes of the graph.
            unsafe { add!(call, cuGraphAddEmptyNode()) }
        })
    }

    /// Adds a node by the given call, and remembers what it is and needs.
    #[inline]
    pub(super) fn insert(
        &mut self,
        edges: EdgeKind,
        after: &[NodeId],
        kind: NodeKind,
        add: impl FnOnce(&AddCall<'_>, &NodeKind) -> Result<(), DriverError>,
    ) -> Result<NodeId, Error> {
        let (mut indices, mut handles) = (Few::new(), Few::new());
        let indices = self.find_before(after, &kind, &mut indices, &mut handles)?;
        let mut node = CUgraphNode::NULL;
        {
            let (graph, _calls) = RawGraph::begin_by(&mut self.raw)?;
            let (context, graph, _current) = (&graph.context, graph.raw, graph.context.enter()?);
            let (after, count) = (handles.as_ptr(), handles.len());
            add(
                &AddCall {
                    context,
                    graph,
                    node: &mut node,
                    after,
                    count,
                },
                &kind,
            )?;
        }
        let id = self.push_after(node, kind, indices);
        indices
            .iter()
            .for_each(|from| self.push_edge(*from, id.index, edges));
        Ok(id)
    }

    /// The nodes that a new one comes after: their numbers in order, each once, and their handles.
    #[inline]
    fn find_before<'i>(
        &self,
        after: &[NodeId],
        kind: &NodeKind,
        indices: &'i mut Few<usize, 8>,
        handles: &mut Few<CUgraphNode, 8>,
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
        let indices = sorted(indices);
        indices
            .iter()
            .for_each(|i| handles.push(self.nodes[*i].raw));
        Ok(indices)
    }
}

/// Refuses work of another context, and a launch that overlaps the one before it in a stream: a graph has edges for
/// that.
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

/// The numbers in order, each once.
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
            // SAFETY: the parameters name a loaded function and live arguments, which the driver copies.
            unsafe { add!(call, cuGraphAddKernelNode_v2(params)) }
        }),
        // The driver refuses a copy or a fill of nothing.
        work if work.is_nothing() => {
            // SAFETY: the call names nodes of the graph.
            unsafe { add!(call, cuGraphAddEmptyNode()) }
        }
        Work::Copy(copy) => {
            let (params, context) = (memcpy_params(copy), call.context.raw());
            // SAFETY: the parameters name live memory of the context, which the node keeps.
            unsafe { add!(call, cuGraphAddMemcpyNode(&params, context)) }
        }
        Work::Fill(fill) => {
            let (params, context) = (memset_params(fill), call.context.raw());
            // SAFETY: as above.
            unsafe { add!(call, cuGraphAddMemsetNode(&params, context)) }
        }
    }
}

/// Adds a kernel by edges of one kind, which the driver has a function for: see [`EdgeKind::on`].
fn add_kernel(
    call: &AddCall<'_>,
    data: CUgraphEdgeData,
    launch: &Launch,
) -> Result<(), DriverError> {
    let edges = vec![data; call.count];
    let (driver, after, edges) = (call.context.driver(), call.after, edges.as_ptr());
    with_kernel_params(launch, |kernel| {
        // SAFETY: the parameters are those that `with_kernel_params` made.
        let mut params = unsafe { any_kernel(kernel) };
        let params = std::ptr::from_mut(&mut params).cast();
        // SAFETY: as for a kernel by full edges; there is a record for each node before it.
        unsafe {
            cu_if_there!(
                driver,
                cuGraphAddNode_v2(call.node, call.graph, after, edges, call.count, params)
            )
        }
    })
}
