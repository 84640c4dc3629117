//! A graph as a picture, in the language of Graphviz.

use std::fmt::Write;

use super::{Edge, EdgeKind, Graph, Node, NodeKind};
use crate::queue::{Use, Work};

impl Graph {
    /// The graph in the language of Graphviz: each node with its kernel, geometry and buffers, each edge with the
    /// buffers that make it needed, and dashed where it is programmatic. The same graph gives the same text where its
    /// buffers are labelled.
    pub fn dot(&self) -> String {
        let mut out =
            String::from("digraph {\n  node [shape=box fontname=monospace]\n  edge [fontname=monospace]\n");
        for node in self.nodes() {
            let lines: Vec<String> = label(node).iter().map(|l| escape(l)).collect();
            let _ = writeln!(out, "  n{} [label=\"{}\"]", node.id().index(), lines.join("\\n"));
        }
        for &Edge { from, to, kind } in self.edges() {
            let style = if kind == EdgeKind::Programmatic { " style=dashed" } else { "" };
            let reasons = self.reasons(from, to).unwrap_or_default().into_iter();
            let reasons: Vec<String> =
                reasons.map(|(hazard, name)| escape(&format!("{name} {}", hazard.name()))).collect();
            let (from, to, reasons) = (from.index(), to.index(), reasons.join("\\n"));
            let _ = writeln!(out, "  n{from} -> n{to} [label=\"{reasons}\"{style}]");
        }
        out + "}\n"
    }
}

/// The lines in a node's box.
fn label(node: &Node) -> Vec<String> {
    let mut lines = vec![node.name()];
    if let NodeKind::Work(Work::Launch(launch)) = node.kind() {
        let config = launch.config();
        let [x, y, z] = config.grid;
        let block = match config.block {
            [threads, 1, 1] => threads.to_string(),
            [a, b, c] => format!("{a}x{b}x{c}"),
        };
        let shared = if config.shared > 0 { format!(", {} B shared", config.shared) } else { String::new() };
        lines.push(format!("{x}x{y}x{z} blocks of {block}{shared}"));
    }
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

fn uses_that(uses: &[Use], wanted: impl Fn(&Use) -> bool) -> Vec<String> {
    uses.iter().filter(|u| wanted(u)).map(|u| u.region.to_string()).collect()
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
