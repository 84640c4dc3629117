//! Graphs in the DOT language of Graphviz.

use std::collections::HashMap;
use std::fmt::Write;

use warpwright_driver_sys::CUgraphDebugDot_flags;

use crate::graph::nodes::NodeContent;
use crate::handle::{GraphId, NodeId};
use crate::state::DriverState;
use crate::work::StreamWork;

/// Returns a graph in the DOT language. Nodes are numbered in order of creation, and child graphs
/// are clusters.
pub(crate) fn print(s: &DriverState, graph: GraphId, flags: CUgraphDebugDot_flags) -> String {
    let mut picture = Picture {
        s,
        flags,
        text: String::new(),
        numbers: HashMap::new(),
    };
    picture.body(graph);
    format!("digraph dot {{\n{}}}\n", picture.text)
}

struct Picture<'a> {
    s: &'a DriverState,
    flags: CUgraphDebugDot_flags,
    text: String,
    numbers: HashMap<NodeId, usize>,
}

impl Picture<'_> {
    fn body(&mut self, graph: GraphId) {
        for &id in &self.s.graphs[graph].nodes {
            let number = self.numbers.len();
            self.numbers.insert(id, number);
            let label = self.label(id);
            self.line(format!("n{number} [label=\"{number}\\n{label}\"];"));

            // Graphviz draws a subgraph as a box only if its name starts with "cluster".
            for (i, &owned) in self.s.nodes[id].content.graphs().iter().enumerate() {
                let cluster = if i == 0 {
                    format!("{number}")
                } else {
                    format!("{number}_{i}")
                };
                self.line(format!("subgraph cluster_{cluster} {{"));
                self.body(owned);
                self.line("}".into());
            }
        }
        for edge in &self.s.graphs[graph].edges {
            let from = self.numbers[&edge.from];
            let to = self.numbers[&edge.to];
            // With edge data of zeros, the second node waits for the end of the first.
            let style = if edge.data == [0; 3] {
                ""
            } else {
                " [style=dashed]"
            };
            self.line(format!("n{from} -> n{to}{style};"));
        }
    }

    fn line(&mut self, line: String) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn label(&self, id: NodeId) -> String {
        let mut label = match &self.s.nodes[id].content {
            NodeContent::Child(_) => "graph".to_string(),
            NodeContent::Conditional(conditional) => format!("{:?}", conditional.kind),
            NodeContent::Work(work) => work.name().to_string(),
        };
        let asks = |flag| self.flags.intersects(flag | CUgraphDebugDot_flags::VERBOSE);
        if let NodeContent::Work(StreamWork::Kernel(k)) = &self.s.nodes[id].content
            && asks(CUgraphDebugDot_flags::KERNEL_NODE_PARAMS)
        {
            label += &format!(
                "\\ngrid {:?} block {:?} shared {}",
                k.geometry.grid, k.geometry.block, k.geometry.shared
            );
        }

        if asks(CUgraphDebugDot_flags::HANDLES) {
            label += &format!("\\n{id:?}");
        }

        label
    }
}
