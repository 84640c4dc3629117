//! Changes a graph after it was built: its edges, the removal of nodes, and attributes of kernels.

use driver_sys::{CUgraphEdgeData, CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue};

use crate::error::Error;
use crate::graph::check::coherence::expect_all_coherent;
use crate::graph::check::overlap::expect_overlap;
use crate::graph::check::writers::Writers;
use crate::graph::{Edge, EdgeKind, Graph, NodeAttribute, NodeId, NodeKind};
use crate::launch::Launch;
use crate::stream::Work;

impl Graph {
    /// Returns the number of programmatic edges. It is 0 if the device or the driver does not
    /// support them.
    pub fn programmatic_edges(&self) -> usize {
        self.edges.iter().filter(|e| e.kind.overlaps()).count()
    }

    /// Adds an edge, so that `to` runs after `from`.
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if one of the nodes is not in the graph.
    /// - [`Error::Edge`] if the edge exists already or would create a cycle.
    /// - [`Error::Driver`] if the driver cannot add the edge.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        self.add_edge_of(EdgeKind::Full, from, to)
    }

    /// Adds an edge of a kind, so that `to` runs after `from` or overlaps its end.
    ///
    /// The edge is full if the device or the driver does not support programmatic edges.
    /// [`programmatic_edges`](Self::programmatic_edges) returns how many are programmatic.
    ///
    /// # Errors
    /// - The errors of [`add_edge`](Self::add_edge).
    /// - [`Error::Overlap`] for a programmatic edge from or to other work than a kernel, or to a
    ///   kernel that does not wait.
    /// - [`Error::Stale`] if a kernel of the graph would read memory with `ld.global.nc` that an
    ///   overlapping kernel writes.
    pub fn add_edge_of(&mut self, kind: EdgeKind, from: NodeId, to: NodeId) -> Result<(), Error> {
        let kind = kind.on(self.context());
        let a = self.index_of(from)?;
        let b = self.index_of(to)?;
        let refuse = |problem| {
            Err(Error::Edge {
                from: a,
                to: b,
                problem,
            })
        };
        let order = self.order();

        // An existing edge implies an order, and the order is the cheaper test.
        if order.precedes(a, b) && self.edges.iter().any(|e| e.indices() == (a, b)) {
            return refuse("it exists already");
        }
        if a == b || order.precedes(b, a) {
            return refuse("it would create a cycle");
        }

        let earlier = self.nodes[a].raw;
        let later = self.nodes[b].raw;
        match kind {
            EdgeKind::Full => self.add_dependency(earlier, later)?,
            _ => {
                match &self.nodes[b].kind {
                    NodeKind::Work(work) => expect_overlap([&self.nodes[a]], b, work)?,
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

    /// Removes an edge.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// Returns [`Error::Edge`] if there is no such edge, or an error if a node is not in the graph
    /// or the driver cannot remove the edge.
    pub fn remove_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let a = self.index_of(from)?;
        let b = self.index_of(to)?;
        let Some(at) = self.edges.iter().position(|e| e.indices() == (a, b)) else {
            return Err(Error::Edge {
                from: a,
                to: b,
                problem: "it does not exist",
            });
        };

        self.remove_dependency(self.edges[at].kind, self.nodes[a].raw, self.nodes[b].raw)?;
        self.edges.remove(at);
        self.order.take();
        Ok(())
    }

    /// Removes a node with its edges.
    ///
    /// The indices of the other nodes do not change. Graphs that were instantiated before still run
    /// the node, but its work can no longer be changed there.
    ///
    /// A graph whose conditional node was removed cannot be instantiated any more. Its condition
    /// remains without a node, and the driver refuses such a graph.
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if the node is not in the graph.
    /// - [`Error::Graph`] if the node allocates or frees memory.
    /// - [`Error::Driver`] if the driver cannot remove the node.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if let NodeKind::Alloc(_) | NodeKind::Free(_) = self.nodes[index].kind {
            let what = "removing a node";
            return Err(Error::Graph {
                what,
                problem: "a node that allocates or frees memory cannot be removed",
            });
        }

        {
            let _current = self.raw.context.enter()?;
            let (_, mut removed) = self.raw.begin()?;

            // SAFETY: `index_of` has checked the node. It is added to the removed nodes below under
            // the same lock, so no later call uses it.
            unsafe {
                cu_optional!(
                    self.raw.context.driver(),
                    cuGraphDestroyNode(self.nodes[index].raw)
                )
            }?;
            removed.push(node);
        }

        if let NodeKind::Conditional(_) = self.nodes[index].kind {
            self.broken = Some(crate::graph::plan::UNUSED_CONDITION);
        }

        self.nodes[index].kind = NodeKind::Removed;
        self.nodes[index].raw = CUgraphNode::NULL;
        self.edges
            .retain(|edge| edge.from != node && edge.to != node);

        // Neither table supports removal, so both are computed anew.
        self.writers = self.writers.take().map(|_| Writers::new(&self.nodes));
        self.order.take();
        Ok(())
    }

    /// Removes a node that could not be completed. If the driver cannot remove it, the graph never
    /// runs.
    pub(super) fn take_back(&mut self, node: NodeId, problem: &'static str) {
        if let Err(error) = self.remove_node(node) {
            log_event!(warn, %error, problem);
            self.broken = Some(problem);
        }
    }

    fn add_dependency(&self, from: CUgraphNode, to: CUgraphNode) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;

        // SAFETY: the caller has checked both nodes, and the graph is locked.
        unsafe {
            cu_optional!(
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

        // SAFETY: the caller has checked both nodes, and the graph is locked. Each array has one
        // element.
        unsafe {
            cu_optional!(
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
        let driver = self.context().driver();
        let data = kind.data();

        // SAFETY: the caller has checked both nodes, and the graph is locked. Each array has one
        // element.
        unsafe {
            match kind {
                EdgeKind::Full => {
                    cu_optional!(driver, cuGraphRemoveDependencies(graph, &from, &to, 1))
                }
                _ => cu_optional!(
                    driver,
                    cuGraphRemoveDependencies_v2(graph, &from, &to, &data, 1)
                ),
            }
        }?;
        Ok(())
    }

    /// Sets an attribute of a kernel node for later instantiations.
    ///
    /// ```
    /// # use ptx_gen::{args, Builder, Cpu, Dev, Grid, InOut, KernelDef, Shape, ShapeError, Side};
    /// # args! { pub struct Args { x: InOut<f32> } }
    /// # struct Double;
    /// # impl KernelDef for Double {
    /// #     type Args<S: Side> = Args<S>;
    /// #     fn name(&self) -> String { "double".into() }
    /// #     fn block(&self) -> u32 { 32 }
    /// #     fn grid(&self, _: &Args<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(1)) }
    /// #     fn program<'k>(&self, k: Builder<'k>, a: Args<Dev<'k>>) {
    /// #         let x = a.x.at(k.tid()).ld();
    /// #         a.x.at(k.tid()).st(x + x);
    /// #     }
    /// #     fn reference(&self, _: Args<Cpu<'_>>) {}
    /// # }
    /// # use warpwright_driver::graph::NodeAttribute;
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let double = unsafe { Kernel::load(&context, Double) }?;
    /// # let x = Buffer::<f32>::zeroed(&context, 32)?;
    /// let mut graph = Graph::new(&context)?;
    /// let node = graph.launch(&[], &double, Args { x: &x })?;
    /// graph.set_attribute(node, NodeAttribute::Priority(-1))?;
    /// assert_eq!(graph.attribute(node, NodeAttribute::Priority(0))?, NodeAttribute::Priority(-1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::NodeKind`] if the node is not a kernel of this graph.
    /// - [`Error::Transfer`] if the device does not support the access window.
    /// - [`Error::Driver`] if the driver cannot set the attribute.
    pub fn set_attribute(&mut self, node: NodeId, attribute: NodeAttribute) -> Result<(), Error> {
        let raw = self.kernel_node(node)?;
        if let NodeAttribute::AccessWindow(window) = attribute {
            window.expect_on(self.context().device())?;
        }
        self.set_raw_attribute(raw, attribute.id(), attribute.words())
    }

    /// Returns the present value of the attribute of the same kind as `attribute`. The value of
    /// `attribute` does not matter.
    ///
    /// # Errors
    /// Returns the errors of [`set_attribute`](Self::set_attribute).
    pub fn attribute(
        &self,
        node: NodeId,
        attribute: NodeAttribute,
    ) -> Result<NodeAttribute, Error> {
        let raw = self.kernel_node(node)?;
        let mut value = CUlaunchAttributeValue::zeroed();
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;

        // SAFETY: `value` is a local variable that the driver may write. `kernel_node` has checked
        // the node, and the graph is locked.
        unsafe {
            cu_optional!(
                driver,
                cuGraphKernelNodeGetAttribute(raw, attribute.id(), &mut value)
            )
        }?;
        let [a, b, c, d, ..] = value.words;
        Ok(attribute.with([a, b, c, d]))
    }

    /// Copies all attributes of the kernel node `from` to the kernel node `to`.
    ///
    /// # Errors
    /// Returns the errors of [`set_attribute`](Self::set_attribute).
    pub fn copy_attributes(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let from = self.kernel_node(from)?;
        let to = self.kernel_node(to)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `kernel_node` has checked both nodes, and the graph is locked.
        unsafe { cu_optional!(driver, cuGraphKernelNodeCopyAttributes(to, from)) }?;
        Ok(())
    }

    /// Sets the attributes of a new node from its launch, or removes the node.
    #[cold]
    pub(super) fn take_attributes(&mut self, node: NodeId) -> Result<(), Error> {
        let NodeKind::Work(Work::Launch(launch)) = &self.nodes[node.index].kind else {
            return Ok(());
        };

        let raw = self.nodes[node.index].raw;
        let launch: Launch = launch.clone();
        let set = launch
            .config()
            .attributes()
            .iter()
            .try_for_each(|attribute| {
                let [a, b, c, d, ..] = attribute.value;
                self.set_raw_attribute(raw, attribute.id, [a, b, c, d])
            });
        if let Err(error) = set {
            self.take_back(
                node,
                "a node that lacks the attributes of its launch could not be removed",
            );
            return Err(error);
        }

        Ok(())
    }

    fn set_raw_attribute(
        &self,
        node: CUgraphNode,
        id: CUlaunchAttributeID,
        words: [u64; 4],
    ) -> Result<(), Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        value.words[..4].copy_from_slice(&words);
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `value` lives until the call returns. The callers pass a kernel node of the
        // graph, which is locked.
        unsafe { cu_optional!(driver, cuGraphKernelNodeSetAttribute(node, id, &value)) }?;
        Ok(())
    }

    fn kernel_node(&self, node: NodeId) -> Result<CUgraphNode, Error> {
        let node = &self.nodes[self.index_of(node)?];
        match node.kind {
            NodeKind::Work(Work::Launch(_)) => Ok(node.raw),
            _ => Err(node.wrong_kind("only a kernel has attributes")),
        }
    }
}
