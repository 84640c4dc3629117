//! Adds nodes of every kind to a graph, except conditional nodes.

use driver_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUgraph, CUgraphEdgeData, CUgraphNode, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps,
};
use ptx_gen::KernelDef;

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::{DriverError, Error};
use crate::graph::check::coherence::{WrittenGraph, expect_coherent};
use crate::graph::check::memory_order::freed_by;
use crate::graph::check::overlap::expect_overlap;
use crate::graph::check::writers::Writers;
use crate::graph::conditional::refuse_in_body;
use crate::graph::driver_params::{any_kernel, memset_params, with_kernel_params};
use crate::graph::raw_graph::RawGraph;
use crate::graph::{
    Allocated, Child, EdgeKind, Graph, HostCall, Node, NodeId, NodeKind, WordOperation, Words,
};
use crate::launch::{Host, Kernel, Launch};
use crate::memory::allocation::or_out_of_memory;
use crate::memory::buffer::byte_len;
use crate::memory::{Element, View};
use crate::ordering::Event;
use crate::small_vec::SmallVec;
use crate::stream::Work;
use crate::stream::queue::memcpy_params;

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
    /// - [`Error::Launch`] for a [programmatic](crate::launch::LaunchConfig::programmatic) launch,
    ///   which is for streams.
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
        let earlier = from.iter().map(|f| &self.nodes[*f]);
        expect_overlap(earlier, self.nodes.len(), &work)?;
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
            problem: crate::error::LaunchProblem::Attribute(
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

impl Graph {
    /// Adds a node that runs `function` on the host, on a thread of the driver, in every launch.
    ///
    /// The function must not call the driver. A panic in it is caught, and logged if the feature
    /// `tracing` is enabled.
    ///
    /// The function is dropped after the graph and everything made from it, when no work can call
    /// it any more and no call is in progress. If it owns an object of the graph's context and you
    /// drop the graph while it runs, the context stays in use. It is released when a thread next
    /// waits for it, creates it with [`Context::new`], or releases an object. Therefore wait for
    /// the work before you drop the last other share of the context.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let calls = Arc::new(AtomicU32::new(0));
    /// let counter = calls.clone();
    /// let mut graph = Graph::new(&context)?;
    /// graph.host(&[], move || {
    ///     counter.fetch_add(1, Ordering::Relaxed);
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// exec.launch(&stream)?;
    /// stream.synchronize()?;
    /// assert_eq!(calls.load(Ordering::Relaxed), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a node in `after` belongs to another graph, or if the driver cannot add
    /// the node.
    pub fn host(
        &mut self,
        after: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<NodeId, Error> {
        let call = HostCall::new(self.context(), function);
        let params = call.params();
        self.insert(EdgeKind::Full, after, NodeKind::Host(call), |call, _| {
            // SAFETY: `call` looks the data up as a key and does not use it as an address.
            unsafe { add!(call, cuGraphAddHostNode(&params)) }
        })
    }

    /// Adds a copy of another graph as one node.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 4)?;
    /// let y = Buffer::<f32>::zeroed(&context, 4)?;
    /// let mut child = Graph::new(&context)?;
    /// child.fill(&[], &x, 2.0)?;
    /// let mut graph = Graph::new(&context)?;
    /// let filled = graph.child(&[], &child)?;
    /// graph.copy(&[filled], &x, &y)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&y)?, [2.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the graph belongs to another context.
    /// - [`Error::Graph`] if it contains conditional or memory nodes.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::Driver`] if the driver cannot add the node.
    pub fn child(&mut self, after: &[NodeId], child: &Graph) -> Result<NodeId, Error> {
        expect_same("a graph", child.context(), "its parent", self.context())?;
        child.expect_plain("adding it to another graph")?;
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Child(Child::from_graph(child)),
            |call, _| {
                let (child, _calls) = child.raw.begin_whole();
                // SAFETY: the references keep both graphs alive, and both are locked. The driver
                // copies the child.
                unsafe { add!(call, cuGraphAddChildGraphNode(child)) }
            },
        )
    }

    /// Adds a node that records an event.
    ///
    /// # Errors
    /// Returns an error if the event belongs to another context or a node in `after` to another
    /// graph, or if the driver cannot add the node.
    pub fn record(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        // Before the node is added: from then on a launch may record the event, so its point must
        // not count as known. If adding fails, the mark stays, which is only more cautious.
        event.give_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Record(event.clone()),
            |call, _| {
                // SAFETY: the reference keeps the event alive, and the node keeps it afterwards.
                unsafe { add!(call, cuGraphAddEventRecordNode(event.raw())) }
            },
        )
    }

    /// Adds a node that waits for an event, which a stream records outside the graph.
    ///
    /// # Errors
    /// Returns an error if the event belongs to another context or a node in `after` to another
    /// graph, or if the driver cannot add the node.
    pub fn wait(&mut self, after: &[NodeId], event: &Event) -> Result<NodeId, Error> {
        event.expect_in(self.context(), "the graph")?;
        event.lend_to_graph();
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Wait(event.clone()),
            |call, _| {
                // SAFETY: the reference keeps the event alive, and the node keeps it afterwards.
                unsafe { add!(call, cuGraphAddEventWaitNode(event.raw())) }
            },
        )
    }
}

impl Graph {
    /// Adds operations on words of memory as one node after the given nodes.
    ///
    /// ```
    /// # use warpwright_driver::graph::WordOperation;
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let flags = Buffer::<u32>::from_slice(&context, &[7, 0])?;
    /// let mut graph = Graph::new(&context)?;
    /// graph.words(&[], &[
    ///     WordOperation::wait(&flags.view_range(0..1), WaitFor::AtLeast, 7)?,
    ///     WordOperation::write(&flags.view_range(1..2), 8)?,
    /// ])?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&flags)?, [7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Graph`] if there is no operation.
    /// - [`Error::WrongContext`] if the memory belongs to another context.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::Driver`] if the driver cannot add the node. Not every device supports such
    ///   operations.
    pub fn words(
        &mut self,
        after: &[NodeId],
        operations: &[WordOperation],
    ) -> Result<NodeId, Error> {
        let words = Words::new(self.context(), operations)?;
        self.insert(
            EdgeKind::Full,
            after,
            NodeKind::Words(words.clone()),
            |call, _| {
                words.with_params(call.context, |params| {
                    // SAFETY: `Words::new` has checked that the words are of the context. The node
                    // keeps them alive.
                    unsafe { add!(call, cuGraphAddBatchMemOpNode(params)) }
                })
            },
        )
    }
}

impl Graph {
    /// Adds a node that allocates `len` elements, and returns the node and a view for the nodes
    /// after it.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
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
        self.nodes[node.index].kind = NodeKind::Alloc(Allocated::new(view.region()));
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
        if freed_by(&self.nodes, region).is_some() {
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
}
