//! Changes the work of nodes of an executable graph.
//!
//! A node keeps its kind and its edges, so its new work must fit the existing order. Work that
//! would conflict with another node without a path of edges between them is refused before the
//! driver is called.

use std::sync::Arc;

use ptx_gen::KernelDef;

use crate::device::context::expect_same;
use crate::error::{Error, LaunchProblem};
use crate::graph::check::coherence::expect_all_coherent;
use crate::graph::check::memory_order::{OrderedNodes, expect_in_order};
use crate::graph::check::overlap::expect_overlap;
use crate::graph::check::races::{conflict, expect_no_races};
use crate::graph::driver_params::{kernel_params, memset_params, with_kernel_params};
use crate::graph::exec::graph_exec::{MemoryUsers, RaceCheck};
use crate::graph::{Child, Graph, GraphExec, HostCall, NodeId, NodeKind, WordOperation, Words};
use crate::launch::borrowed_args::Args;
use crate::launch::{Host, Kernel, Launch, LaunchConfig};
use crate::memory::Region;
use crate::module::Function;
use crate::ordering::Event;
use crate::ordering::memory_accesses::MemoryAccess;
use crate::stream::Work;
use crate::stream::queue::memcpy_params;

fn add_user(users: &mut MemoryUsers, memory: usize, node: usize) {
    let nodes = users.entry(memory).or_default();
    if !nodes.contains(&node) {
        nodes.push(node);
    }
}

fn remove_user(users: &mut MemoryUsers, memory: usize, node: usize) {
    if let Some(nodes) = users.get_mut(&memory) {
        nodes.retain(|n| *n != node);
        if nodes.is_empty() {
            users.remove(&memory);
        }
    }
}

/// The new work of a node, which must be of the same kind as the old.
///
/// ```
/// # use warpwright_driver::graph::NodeWork;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut one = Graph::new(&context)?;
/// let mut two = Graph::new(&context)?;
/// one.fill(&[], &x, 1.0)?;
/// two.fill(&[], &x, 2.0)?;
/// let mut graph = Graph::new(&context)?;
/// let child = graph.child(&[], &one)?;
/// let printed = graph.host(&[child], || println!("one"))?;
/// let mut exec = graph.instantiate()?;
/// exec.set(child, &two)?; // graphs and work convert to `NodeWork`
/// exec.set(printed, NodeWork::host(&context, || println!("two")))?;
/// exec.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [2.0; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeWork<'g> {
    /// A launch, a copy or a fill.
    Work(Work),
    /// A host function.
    Host(HostCall),
    /// A graph of the same form as the child.
    Child(&'g Graph),
    /// The recording of another event.
    Record(Event),
    /// A wait for another event.
    Wait(Event),
    /// Other operations on words of memory, as many as before.
    Words(Vec<WordOperation>),
}

impl NodeWork<'_> {
    /// Creates the work of a host node.
    pub fn host(
        context: &crate::device::Context,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self::Host(HostCall::new(context, function))
    }
}

impl<W: Into<Work>> From<W> for NodeWork<'_> {
    fn from(work: W) -> Self {
        Self::Work(work.into())
    }
}

impl<'g> From<&'g Graph> for NodeWork<'g> {
    fn from(graph: &'g Graph) -> Self {
        Self::Child(graph)
    }
}

impl GraphExec {
    /// Changes the work of a node for later launches. The new work must be of the same kind.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 4)?;
    /// let mut graph = Graph::new(&context)?;
    /// let filled = graph.fill(&[], &x, 1.0)?;
    /// let mut exec = graph.instantiate()?;
    /// exec.set(filled, Work::fill(&x, 2.0)?)?;
    /// exec.launch(&stream)?;
    /// assert_eq!(stream.read(&x)?, [2.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// CUDA supports changes in the bodies of conditional nodes only for the whole graph. Use
    /// [`update`](Self::update) with another graph of the same form.
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if the node is not in the graph.
    /// - [`Error::NodeKind`] if the new work is of another kind.
    /// - [`Error::Graph`] if the node is in the body of a conditional node.
    /// - The errors of [`set_launch`](Self::set_launch).
    /// - [`Error::Driver`] if the driver refuses. For example, a copy must keep its kinds of memory
    ///   and a child graph its form.
    pub fn set<'g>(&mut self, node: NodeId, work: impl Into<NodeWork<'g>>) -> Result<(), Error> {
        match work.into() {
            NodeWork::Work(Work::Launch(launch)) => self.set_launch(node, launch),
            NodeWork::Work(work) => self.set_transfer(node, work),
            NodeWork::Host(call) => self.set_host(node, call),
            NodeWork::Child(graph) => self.set_child(node, graph),
            NodeWork::Record(event) => self.set_event(node, NodeKind::Record(event)),
            NodeWork::Wait(event) => self.set_event(node, NodeKind::Wait(event)),
            NodeWork::Words(operations) => self.set_words(node, &operations),
        }
    }

    /// Changes the arguments of a kernel node, and with them its grid, for later launches.
    ///
    /// # Errors
    /// Returns the errors of [`Kernel::with`] and [`set_launch`](Self::set_launch).
    pub fn set_args<K: KernelDef>(
        &mut self,
        node: NodeId,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        let function = kernel.function();
        let made = kernel.collect(&args, |config, args| {
            match self.refit(node, function, &config, args) {
                Some(set) => set.map(|()| None),
                None => Launch::typed(function, config, args).map(Some),
            }
        })?;
        made.map_or(Ok(()), |launch| self.set_launch(node, launch))
    }

    /// Changes only the scalars and the shape of a kernel in place. Returns `None` if more differs.
    fn refit(
        &mut self,
        node: NodeId,
        function: &Function,
        config: &LaunchConfig,
        args: &Args<'_>,
    ) -> Option<Result<(), Error>> {
        let index = self.index_of(node).ok()?;
        let place = &mut self.nodes[index].kind;
        if !matches!(place, NodeKind::Work(Work::Launch(_))) {
            return None;
        }

        // Moved out during the call, which borrows the other fields of `self`.
        let mut kind = std::mem::replace(place, NodeKind::Empty);
        let NodeKind::Work(Work::Launch(launch)) = &mut kind else {
            return None;
        };

        let set = launch.refit(function, config, args, |params| {
            self.with_node(node, |driver, exec, raw| {
                let params = kernel_params(function, config, params);
                // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
                // node. The driver copies the parameters.
                unsafe {
                    cu_optional!(
                        driver,
                        cuGraphExecKernelNodeSetParams_v2(exec, raw, &params)
                    )
                }
            })
        });
        self.nodes[index].kind = kind;
        set
    }

    /// Changes the launch of a kernel node for later launches.
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if the node is not in the graph.
    /// - [`Error::NodeKind`] if the node is not a kernel.
    /// - [`Error::WrongContext`] if the kernel belongs to another context.
    /// - [`Error::Launch`] if the launch attributes differ, because those belong to the node.
    /// - [`Error::Unordered`] if a node without a path to this one uses a buffer of the launch.
    ///   Edges follow from arguments and do not change here.
    /// - [`Error::Overlap`] if the node has a programmatic edge and the kernel does not wait.
    /// - [`Error::Stale`] if the kernel reads memory with `ld.global.nc` that an overlapping kernel
    ///   writes.
    pub fn set_launch(&mut self, node: NodeId, launch: Launch) -> Result<(), Error> {
        let index = self.index_of(node)?;
        let NodeKind::Work(Work::Launch(old)) = &self.nodes[index].kind else {
            return Err(self.nodes[index].wrong_kind("only a kernel has arguments"));
        };

        launch.expect_in(self.context())?;
        expect_same_attributes(old, &launch)?;

        // New scalars or a smaller range of the same buffers cannot create a conflict.
        let moves = touches_more(old, &launch);
        if moves {
            self.expect_place(index, &NodeKind::Work(Work::Launch(launch.clone())))?;
        }

        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
            // node. The driver copies the parameters.
            with_kernel_params(&launch, |params| unsafe {
                cu_optional!(driver, cuGraphExecKernelNodeSetParams_v2(exec, raw, params))
            })
        })?;

        // Dropping the old launch is safe while launches of this graph still run, because its
        // memory is freed only after the streams have completed them.
        let kind = NodeKind::Work(Work::Launch(launch));
        if moves {
            self.replace(index, kind);
        } else {
            self.nodes[index].kind = kind;
        }

        Ok(())
    }

    fn set_transfer(&mut self, node: NodeId, work: Work) -> Result<(), Error> {
        let index = self.index_of(node)?;
        let fits = match (&self.nodes[index].kind, &work) {
            (NodeKind::Work(old), new) if old.is_empty() || new.is_empty() => false,
            (NodeKind::Work(Work::Copy(_)), Work::Copy(_))
            | (NodeKind::Work(Work::Fill(_)), Work::Fill(_)) => true,
            _ => false,
        };
        if !fits {
            return Err(self.nodes[index].wrong_kind(
                "only a copy can become a copy, and only a fill a fill, of at least one byte",
            ));
        }

        work.expect_in(self.context())?;
        let context = self.context().raw();
        let kind = NodeKind::Work(work.clone());
        self.expect_place(index, &kind)?;
        self.with_node(node, |driver, exec, raw| match &work {
            Work::Copy(copy) => {
                let params = memcpy_params(copy);
                // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
                // node. The memory is of this context, and the node keeps it alive.
                unsafe {
                    cu_optional!(
                        driver,
                        cuGraphExecMemcpyNodeSetParams(exec, raw, &params, context)
                    )
                }
            }
            Work::Fill(fill) => {
                let params = memset_params(fill);
                // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
                // node. The memory is of this context, and the node keeps it alive.
                unsafe {
                    cu_optional!(
                        driver,
                        cuGraphExecMemsetNodeSetParams(exec, raw, &params, context)
                    )
                }
            }
            Work::Launch(_) => Ok(()),
        })?;
        self.replace(index, kind);
        Ok(())
    }

    fn set_host(&mut self, node: NodeId, call: HostCall) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if !matches!(self.nodes[index].kind, NodeKind::Host(_)) {
            return Err(self.nodes[index].wrong_kind("only a host function can become another one"));
        }

        expect_same(
            "a function of the host",
            call.context(),
            "the graph",
            self.context(),
        )?;
        let params = call.params();
        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
            // node. The node keeps the function from here on.
            unsafe { cu_optional!(driver, cuGraphExecHostNodeSetParams(exec, raw, &params)) }
        })?;
        self.nodes[index].kind = NodeKind::Host(call);
        Ok(())
    }

    fn set_child(&mut self, node: NodeId, graph: &Graph) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if !matches!(self.nodes[index].kind, NodeKind::Child(_)) {
            return Err(self.nodes[index].wrong_kind("only a child graph can become another one"));
        }

        expect_same("a graph", graph.context(), "its parent", self.context())?;
        let what = "making it another graph's child";
        graph.expect_plain(what)?;

        // `with_node` locks the plan, and the call below locks the child. The same lock twice would
        // deadlock.
        if Arc::ptr_eq(&graph.raw, &self.inner.graph) {
            return Err(Error::Graph {
                what,
                problem: "it is the graph itself",
            });
        }

        if self.races == RaceCheck::Refuse {
            expect_no_races(graph, what)?;
        }

        let kind = NodeKind::Child(Child::from_graph(graph));
        self.expect_place(index, &kind)?;
        self.with_node(node, |driver, exec, raw| {
            let (child, _calls) = graph.raw.begin_whole();
            // SAFETY: the references keep both graphs alive, the child is locked, and `with_node`
            // has checked the node. The driver copies the work of the child.
            unsafe { cu_optional!(driver, cuGraphExecChildGraphNodeSetParams(exec, raw, child)) }
        })?;
        self.replace(index, kind);
        Ok(())
    }

    fn set_event(&mut self, node: NodeId, kind: NodeKind) -> Result<(), Error> {
        let index = self.index_of(node)?;
        let (event, records) = match (&self.nodes[index].kind, &kind) {
            (NodeKind::Record(_), NodeKind::Record(event)) => (event, true),
            (NodeKind::Wait(_), NodeKind::Wait(event)) => (event, false),
            _ => {
                return Err(self.nodes[index].wrong_kind(
                    "only a node that records or waits for an event can take another event",
                ));
            }
        };
        event.expect_in(self.context(), "the graph")?;
        if records {
            event.give_to_graph()
        } else {
            event.lend_to_graph()
        }

        self.with_node(node, |driver, exec, raw| {
            // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
            // node. The node keeps the event from here on.
            unsafe {
                if records {
                    cu_optional!(
                        driver,
                        cuGraphExecEventRecordNodeSetEvent(exec, raw, event.raw())
                    )
                } else {
                    cu_optional!(
                        driver,
                        cuGraphExecEventWaitNodeSetEvent(exec, raw, event.raw())
                    )
                }
            }
        })?;
        self.nodes[index].kind = kind;
        Ok(())
    }

    fn set_words(&mut self, node: NodeId, operations: &[WordOperation]) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if !matches!(self.nodes[index].kind, NodeKind::Words(_)) {
            return Err(self.nodes[index].wrong_kind("only operations on words can become others"));
        }

        let words = Words::new(self.context(), operations)?;
        let kind = NodeKind::Words(words.clone());
        self.expect_place(index, &kind)?;
        let context = self.context().clone();
        self.with_node(node, |driver, exec, raw| {
            words.with_params(&context, |params| {
                // SAFETY: `self` keeps the executable graph alive, and `with_node` has checked the
                // node. The words are of this context, and the node keeps them from here on.
                unsafe {
                    cu_optional!(
                        driver,
                        cuGraphExecBatchMemOpNodeSetParams(exec, raw, params)
                    )
                }
            })
        })?;
        self.replace(index, kind);
        Ok(())
    }

    /// Checks that new work fits the edges of a node.
    fn expect_place(&self, index: usize, new: &NodeKind) -> Result<(), Error> {
        let node = self.nodes[index].id;
        if let NodeKind::Work(work) = new {
            let overlapped = self
                .programmatic()
                .filter(|e| e.to == node)
                .map(|e| &self.nodes[e.from.index]);
            expect_overlap(overlapped, index, work)?;
        }

        self.expect_ordered(index, new)?;
        self.expect_coherent_with(node, new)?;
        let graph = OrderedNodes {
            id: self.id,
            nodes: &self.nodes,
            order: self.order(),
        };
        for touch in new.touches() {
            expect_in_order(&graph, &self.nodes[index], touch)?;
        }

        Ok(())
    }

    /// Records the new work of a node, with its accesses.
    ///
    /// Callers do this after the driver has accepted the work. If the driver refuses it, the node
    /// keeps its old accesses, and later changes are still checked against them.
    fn replace(&mut self, index: usize, new: NodeKind) {
        if let Some(users) = self.users.get_mut() {
            let old = &self.nodes[index].kind;
            for touch in old.touches() {
                remove_user(users, touch.region.memory(), index);
            }
            for touch in new.touches() {
                add_user(users, touch.region.memory(), index);
            }
        }
        self.touched.take();
        self.nodes[index].kind = new;
    }

    /// Checks that new accesses do not conflict with a node without a path to this one.
    fn expect_ordered(&self, index: usize, new: &NodeKind) -> Result<(), Error> {
        let old = &self.nodes[index].kind;
        let is_new = |touch: &MemoryAccess<'_>| {
            !old.touches()
                .any(|known| touch.access == known.access && known.region.covers(touch.region))
        };

        // Accesses that the node had before were checked when the graph was instantiated.
        let new: Vec<_> = new.touches().filter(is_new).collect();
        let order = self.order();
        for other in self.users_of(new.iter().map(|touch| touch.region)) {
            let node = &self.nodes[other];
            let ordered =
                other == index || order.precedes(other, index) || order.precedes(index, other);
            let met = if ordered {
                None
            } else {
                conflict(new.iter().copied(), node.kind.touches())
            };
            if let Some(buffer) = met.map(|(region, _)| region.name()) {
                let name = self.nodes[index].name();
                let other_name = node.name();
                return Err(Error::Unordered {
                    node: index,
                    name,
                    other,
                    other_name,
                    buffer,
                });
            }
        }

        Ok(())
    }

    /// Returns the nodes that may use memory of these regions, in ascending order.
    fn users_of<'a>(&self, regions: impl Iterator<Item = &'a Region>) -> Vec<usize> {
        let all = self.users.get_or_init(|| {
            let mut users = MemoryUsers::default();
            for (index, node) in self.nodes.iter().enumerate() {
                for touch in node.kind.touches() {
                    add_user(&mut users, touch.region.memory(), index);
                }
            }
            users
        });
        let mut found = Vec::new();
        for nodes in regions.filter_map(|region| all.get(&region.memory())) {
            found.extend_from_slice(nodes);
        }

        found.sort_unstable();
        found.dedup();
        found
    }

    /// Checks that with this work no kernel would read memory that an overlapping kernel may still
    /// write.
    fn expect_coherent_with(&self, node: NodeId, new: &NodeKind) -> Result<(), Error> {
        if !self.programmatic().any(|e| e.to == node || e.from == node) {
            return Ok(());
        }
        let mut nodes = self.nodes.clone();
        nodes[node.index].kind = new.clone();
        expect_all_coherent(&nodes, &self.edges)
    }
}

/// Returns true if a launch has another kernel or accesses bytes that the old one does not.
fn touches_more(old: &Launch, new: &Launch) -> bool {
    let same = |(old, new): (MemoryAccess<'_>, MemoryAccess<'_>)| {
        old.name == new.name && old.access == new.access && old.region.covers(new.region)
    };
    !old.function().same(new.function())
        || old.buffers().count() != new.buffers().count()
        || !old.buffers().zip(new.buffers()).all(same)
}

/// Checks that a launch has the same attributes as the old one, because those belong to the node.
#[inline]
fn expect_same_attributes(old: &Launch, new: &Launch) -> Result<(), Error> {
    if old.config().same_attributes(&new.config()) {
        Ok(())
    } else {
        Err(other_attributes(new))
    }
}

#[cold]
fn other_attributes(new: &Launch) -> Error {
    let problem = LaunchProblem::Attribute(
        "cluster, cooperative, priority and domain are attributes of the node and cannot change after instantiation",
    );
    Error::Launch {
        kernel: new.function().name().to_string(),
        problem,
    }
}
