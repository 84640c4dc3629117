//! Updates an executable graph from another graph of the same form.

use std::sync::OnceLock;

use driver_sys::CUgraphExecUpdateResultInfo;

use crate::device::context::expect_same;
use crate::error::Error;
use crate::graph::check::memory_order::expect_memory_in_order;
use crate::graph::check::overlap::expect_edges_as_told;
use crate::graph::check::races::expect_no_races;
use crate::graph::exec::graph_exec::RaceCheck;
use crate::graph::{Edge, Graph, GraphExec, Node, NodeKind};

impl GraphExec {
    /// Takes over the arguments of another graph of the same form: the same nodes and edges, added
    /// in the same order.
    ///
    /// The driver may also accept a graph whose nodes were added in another order. Single nodes
    /// cannot be changed any more then, because they are no longer known to correspond to the plan.
    ///
    /// # Errors
    /// Nothing has changed after an error.
    ///
    /// - [`Error::Races`] if nodes of `graph` access the same bytes without an order (see
    ///   [`Graph::races`]).
    /// - [`Error::Update`] if the driver refuses. The error contains the first difference that this
    ///   crate finds, and the nodes that the driver names, by their index in `graph`.
    /// - [`Error::Graph`] if one of the graphs allocates or frees memory.
    pub fn update(&mut self, graph: &Graph) -> Result<(), Error> {
        expect_same(
            "a graph",
            graph.context(),
            "the exec to update",
            self.context(),
        )?;
        self.expect_form(graph)?;
        let mut info = CUgraphExecUpdateResultInfo::zeroed();
        let result = {
            let _current = self.context().enter()?;
            let (raw, _calls) = graph.raw.begin()?;
            // SAFETY: the references keep both graphs alive, and the plan is locked. `info` is a
            // local variable that the driver may write.
            unsafe {
                cu_optional!(
                    self.context().driver(),
                    cuGraphExecUpdate_v2(self.inner.raw, raw, &mut info)
                )
            }
        };
        if let Err(source) = result {
            let name = |node| graph.name_of(node).map(String::into_boxed_str);
            let node = name(info.errorNode);
            let from = name(info.errorFromNode);
            let changed = self.change_to(graph).map(String::into_boxed_str);
            let source = Box::new(source);
            return Err(Error::Update {
                source,
                result: info.result,
                node,
                from,
                changed,
            });
        }

        self.paired = self.pairs_with(graph);
        for (mine, theirs) in self.nodes.iter_mut().zip(&graph.nodes) {
            mine.kind = theirs.kind.clone();
        }

        self.owners = graph.owners.clone();

        // Both were computed from the old arguments.
        self.touched = OnceLock::new();
        self.users = OnceLock::new();
        Ok(())
    }

    /// Checks that the graphs do not own memory, which would remain the memory of the old graph.
    fn expect_form(&self, graph: &Graph) -> Result<(), Error> {
        let refuse = |problem| {
            Err(Error::Graph {
                what: "updating a graph",
                problem,
            })
        };
        graph.expect_whole("updating a graph by it")?;
        expect_edges_as_told(graph)?;
        expect_memory_in_order(graph)?;
        if self.races == RaceCheck::Refuse {
            expect_no_races(graph, "updating by it")?;
        }

        let owns = |nodes: &[Node]| {
            nodes
                .iter()
                .any(|n| matches!(n.kind, NodeKind::Alloc(_) | NodeKind::Free(_)))
        };
        if owns(&self.nodes) || owns(&graph.nodes) {
            return refuse(
                "a graph that allocates or frees memory cannot be updated as a whole; change its nodes one by one",
            );
        }

        Ok(())
    }

    /// Returns true if the nodes of `graph` correspond to those of this graph in the order of
    /// adding.
    fn pairs_with(&self, graph: &Graph) -> bool {
        let edges = |edges: &[Edge]| {
            let mut edges: Vec<_> = edges
                .iter()
                .map(|e| (e.from.index, e.to.index, e.kind))
                .collect();
            edges.sort_unstable();
            edges
        };
        let is_gone = |node: &Node| matches!(node.kind, NodeKind::Removed);
        self.nodes.len() == graph.nodes.len()
            && self
                .nodes
                .iter()
                .map(is_gone)
                .eq(graph.nodes.iter().map(is_gone))
            && edges(&self.edges) == edges(&graph.edges)
    }

    /// Returns the first difference in form, if there is one.
    fn change_to(&self, graph: &Graph) -> Option<String> {
        let counts = |what, a, b| (a != b).then(|| format!("{a} {what} became {b}"));
        // Counts first, because nodes pair up only if the counts are equal.
        counts("nodes", self.nodes.len(), graph.nodes.len())
            .or_else(|| counts("edges", self.edges.len(), graph.edges.len()))
            .or_else(|| {
                let mut pairs = self.nodes.iter().zip(&graph.nodes);
                pairs
                    .find(|(a, b)| a.sort() != b.sort() || a.name() != b.name())
                    .map(|(a, b)| {
                        format!(
                            "node {} was {} ({}) and became {} ({})",
                            a.id.index,
                            a.sort(),
                            a.name(),
                            b.sort(),
                            b.name()
                        )
                    })
            })
    }
}
