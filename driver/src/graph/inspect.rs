//! Tools that look at a graph: its races, the reasons of its edges, plots and profiles.

use std::fmt::Write;

use crate::device::context::expect_same;
use crate::error::Error;
use crate::graph::check::races::races;
use crate::graph::exec::profile::profile;
use crate::graph::{Edge, EdgeKind, Graph, Node, NodeId, NodeKind, Profile, Race};
use crate::ordering::memory_accesses::hazard;
use crate::ordering::{Hazard, Use};
use crate::stream::{Stream, Work};

impl Graph {
    /// Returns the reasons for an edge between two nodes: each buffer that both access, with the
    /// kind of hazard.
    ///
    /// # Errors
    /// Returns an error if a node belongs to another graph or was removed.
    pub fn reasons(&self, from: NodeId, to: NodeId) -> Result<Vec<(Hazard, String)>, Error> {
        let from = self.index_of(from)?;
        let to = self.index_of(to)?;
        let mut reasons = Vec::new();
        for earlier in self.nodes[from].kind.touches() {
            for later in self.nodes[to].kind.touches() {
                if !earlier.region.overlaps(later.region) {
                    continue;
                }
                if let Some(hazard) = hazard(earlier.access, later.access) {
                    insert_sorted(&mut reasons, (hazard, earlier.region.name()));
                }
            }
        }

        Ok(reasons)
    }

    /// Returns the pairs of nodes that access the same bytes, at least one of which writes, without
    /// a path of edges between them.
    ///
    /// These pairs lack an edge, and [`instantiate`](Self::instantiate) refuses such a graph. Pairs
    /// within child graphs and within the bodies of conditional nodes are included. A recorded
    /// graph has no races. A wait for a word of memory
    /// ([`WordOperation::wait`](crate::graph::WordOperation::wait)) does not count as an access,
    /// because its purpose is to order work.
    pub fn races(&self) -> Vec<Race> {
        races(self)
    }

    /// Runs the nodes one by one in the stream with events between them, and waits.
    ///
    /// The order is one that the edges allow. Nodes do not overlap here, so a launch of the graph
    /// is faster.
    ///
    /// Some nodes run only as part of a graph and are listed as [untimed](Profile::untimed):
    /// allocations and users of their memory, conditional nodes, waits for words, and work of other
    /// code. Because they do not run, the other nodes may compute other values than in a launch.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 1000)?;
    /// let mut graph = Graph::new(&context)?;
    /// graph.fill(&[], &x, 1.0)?;
    /// let profile = graph.profile(&stream)?.against(3.35e12);
    /// assert_eq!((profile.rows[0].name.as_str(), profile.rows[0].bytes), ("fill", 4000));
    /// println!("{profile}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the stream belongs to another context.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if a node cannot run.
    pub fn profile(&self, stream: &Stream) -> Result<Profile, Error> {
        expect_same("a graph", self.context(), "the stream", stream.context())?;
        profile(&self.nodes, self.order(), stream, &|_| Ok(true))
    }

    /// Returns the graph in the language of Graphviz.
    ///
    /// Each node shows its kernel, geometry and buffers. Each edge shows the buffers that require
    /// it. Programmatic edges are dashed, and edges in launch order are dotted. If the buffers have
    /// labels, the same graph gives the same text in every run.
    pub fn dot(&self) -> String {
        let mut out = String::from(
            "digraph {\n  node [shape=box fontname=monospace]\n  edge [fontname=monospace]\n",
        );
        for node in self
            .nodes()
            .iter()
            .filter(|node| !matches!(node.kind(), NodeKind::Removed))
        {
            let lines: Vec<String> = label(node).iter().map(|l| escape(l)).collect();
            let _ = writeln!(
                out,
                "  n{} [label=\"{}\"]",
                node.id().index(),
                lines.join("\\n")
            );
        }

        for &Edge { from, to, kind } in self.edges() {
            let style = match kind {
                EdgeKind::Full => "",
                EdgeKind::Programmatic => " style=dashed",
                EdgeKind::LaunchOrder => " style=dotted",
            };
            let reasons = self.reasons(from, to).unwrap_or_default().into_iter();
            let reasons: Vec<String> = reasons
                .map(|(hazard, name)| escape(&format!("{name} {}", hazard.name())))
                .collect();
            let from = from.index();
            let to = to.index();
            let reasons = reasons.join("\\n");
            let _ = writeln!(out, "  n{from} -> n{to} [label=\"{reasons}\"{style}]");
        }

        out + "}\n"
    }
}

/// Returns the lines in the box of a node.
fn label(node: &Node) -> Vec<String> {
    let mut lines = vec![node.name()];
    if let NodeKind::Work(Work::Launch(launch)) = node.kind() {
        let config = launch.config();
        let [x, y, z] = config.grid;
        let block = match config.block {
            [threads, 1, 1] => threads.to_string(),
            [a, b, c] => format!("{a}x{b}x{c}"),
        };
        let shared = if config.shared > 0 {
            format!(", {} B shared", config.shared)
        } else {
            String::new()
        };
        lines.push(format!("{x}x{y}x{z} blocks of {block}{shared}"));
    }

    lines.extend(match node.kind() {
        NodeKind::Alloc(memory) | NodeKind::Free(memory) => Some(memory.region().to_string()),
        NodeKind::Child(child) => Some(format!("{} nodes", child.nodes().len())),
        NodeKind::Words(words) => Some(format!("{} operations", words.count())),
        NodeKind::Conditional(conditional) => {
            let sizes: Vec<_> = conditional
                .bodies()
                .iter()
                .map(|body| body.nodes().len().to_string())
                .collect();
            Some(format!("bodies of {} nodes", sizes.join(", ")))
        }
        _ => None,
    });
    let uses = node.uses();
    for (verb, which) in [
        ("reads", uses_that(&uses, |u| u.access.reads())),
        ("writes", uses_that(&uses, |u| u.access.writes())),
    ] {
        if !which.is_empty() {
            lines.push(format!("{verb} {}", which.join(", ")));
        }
    }

    lines
}

fn uses_that(uses: &[Use], wanted: fn(&Use) -> bool) -> Vec<String> {
    uses.iter()
        .filter(|u| wanted(u))
        .map(|u| u.region.to_string())
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Inserts an item into a sorted vector, unless it contains the item.
fn insert_sorted<T: Ord>(items: &mut Vec<T>, item: T) {
    if let Err(place) = items.binary_search(&item) {
        items.insert(place, item);
    }
}
