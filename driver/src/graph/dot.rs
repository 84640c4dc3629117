//! Plots of graphs in the language of Graphviz.

use std::fmt::Write;

use crate::graph::{Edge, EdgeKind, Graph, Node, NodeKind};
use crate::ordering::Use;
use crate::stream::Work;

impl Graph {
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
