//! A diagram of folders and their imports as SVG.
//!
//! Boxes stand in layers: each one is below everything that imports from it. Folders that import
//! each other share a layer. The text is a function of the graph alone, so that `cargo xtask codegen
//! --check` can compare it.

use std::collections::{BTreeMap, BTreeSet};

use xtask::imports::{ImportGraph, reachable_from};

const WIDTH: usize = 760;
const MARGIN: usize = 16;
const BOX_HEIGHT: usize = 26;
/// The vertical distance between layers, which leaves room for arrows.
const LAYER_HEIGHT: usize = 76;
/// Layers with more boxes are drawn in several rows.
const BOXES_PER_ROW: usize = 6;

/// Returns the SVG document of a graph.
///
/// An arrow is left out if it follows from two others, which keeps the picture readable.
pub(super) fn svg(graph: &ImportGraph) -> String {
    let rows = rows(graph);
    let positions = positions(&rows);
    let mut body = String::new();
    for (node, used) in arrows(graph) {
        let from = &positions[node];
        let to = &positions[used];
        body += &arrow(from, to);
    }

    for (node, position) in &positions {
        body += &position.draw(node);
    }

    let height = 2 * MARGIN + LAYER_HEIGHT * rows.len().saturating_sub(1) + BOX_HEIGHT;

    // The background is drawn because GitHub shows the file on light and on dark pages.
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#666666\"/></marker></defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// The place of a box.
struct BoxPosition {
    /// The horizontal center.
    center: usize,
    /// The upper edge.
    top: usize,
    width: usize,
}

impl BoxPosition {
    fn draw(&self, name: &str) -> String {
        let left = self.center - self.width / 2;
        let baseline = self.top + BOX_HEIGHT / 2 + 4;
        format!(
            "<rect x=\"{left}\" y=\"{}\" width=\"{}\" height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"#e8f1f8\" \
             stroke=\"#0072b2\"/>\n<text x=\"{}\" y=\"{baseline}\" text-anchor=\"middle\" \
             fill=\"#222222\">{name}</text>\n",
            self.top, self.width, self.center
        )
    }
}

/// Draws an arrow from the lower edge of one box to the upper edge of a lower one, or between the
/// facing sides of two boxes of one row.
fn arrow(from: &BoxPosition, to: &BoxPosition) -> String {
    let stroke = "fill=\"none\" stroke=\"#999999\" marker-end=\"url(#head)\"";
    if from.top == to.top {
        let y = from.top + BOX_HEIGHT / 2;
        let (start, end) = if from.center < to.center {
            (from.center + from.width / 2, to.center - to.width / 2)
        } else {
            (from.center - from.width / 2, to.center + to.width / 2)
        };
        return format!("<path d=\"M{start} {y} {end} {y}\" {stroke}/>\n");
    }

    let start = from.top + BOX_HEIGHT;

    // Only folders that import each other can point upward.
    let end = if to.top > from.top {
        to.top
    } else {
        to.top + BOX_HEIGHT
    };
    let middle = start.midpoint(end);
    format!(
        "<path d=\"M{} {start} C{} {middle} {} {middle} {} {end}\" {stroke}/>\n",
        from.center, from.center, to.center, to.center
    )
}

/// Returns the arrows that do not follow from others.
fn arrows(graph: &ImportGraph) -> Vec<(&str, &str)> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|node| (node.as_str(), reachable_from(node, graph)))
        .collect();
    let reaches = |from: &str, to: &str| reachable[from].contains(to);
    let mut arrows = vec![];
    for (node, used) in graph {
        for other in used {
            // In a cycle each arrow would follow from the others, so those of a cycle and those to
            // different nodes of one cycle stay.
            let follows = used.iter().any(|between| {
                reaches(between, other) && !reaches(between, node) && !reaches(other, between)
            });
            if !follows {
                arrows.push((node.as_str(), other.as_str()));
            }
        }
    }

    arrows
}

/// Returns the boxes of each row, from top to bottom.
fn rows(graph: &ImportGraph) -> Vec<Vec<&str>> {
    let mut layers: Vec<Vec<&str>> = vec![];
    for (node, layer) in layers_by_node(graph) {
        if layers.len() <= layer {
            layers.resize(layer + 1, vec![]);
        }
        layers[layer].push(node);
    }

    // A box stands below the boxes that import from it: the mean of their places, as in Sugiyama's
    // method of drawing layered graphs.
    let mut place: BTreeMap<&str, f64> = BTreeMap::new();
    for layer in &mut layers {
        let mean = |node: &str| {
            let above: Vec<f64> = graph
                .iter()
                .filter(|(_, used)| used.contains(node))
                .filter_map(|(user, _)| place.get(user.as_str()).copied())
                .collect();
            if above.is_empty() {
                0.5
            } else {
                above.iter().sum::<f64>() / above.len() as f64
            }
        };
        layer.sort_by(|a, b| mean(a).total_cmp(&mean(b)).then(a.cmp(b)));
        let count = layer.len() as f64;
        for (index, node) in layer.iter().enumerate() {
            place.insert(node, (index as f64 + 0.5) / count);
        }
    }

    layers
        .iter()
        .flat_map(|layer| layer.chunks(layer.len().div_ceil(layer.len().div_ceil(BOXES_PER_ROW))))
        .map(<[&str]>::to_vec)
        .collect()
}

/// Returns the layer of each node: the length of the longest chain of imports that leads to it.
/// Nodes that import each other count as one.
fn layers_by_node(graph: &ImportGraph) -> BTreeMap<&str, usize> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|node| (node.as_str(), reachable_from(node, graph)))
        .collect();
    let mut layers: BTreeMap<&str, usize> = reachable.keys().map(|node| (*node, 0)).collect();

    // Each round moves nodes down by at least one layer, and no chain is longer than the graph.
    for _ in 0..graph.len() {
        for (node, used) in &reachable {
            for other in used {
                let together = reachable[other].contains(node);
                let least = layers[node] + usize::from(!together);
                let layer = layers.get_mut(other).expect("every import is a node");
                *layer = (*layer).max(least);
            }
        }
    }

    layers
}

fn positions<'a>(rows: &[Vec<&'a str>]) -> BTreeMap<&'a str, BoxPosition> {
    let mut positions = BTreeMap::new();
    for (row, nodes) in rows.iter().enumerate() {
        let slot = (WIDTH - 2 * MARGIN) / nodes.len();
        for (index, node) in nodes.iter().enumerate() {
            positions.insert(
                *node,
                BoxPosition {
                    center: MARGIN + slot * index + slot / 2,
                    top: MARGIN + LAYER_HEIGHT * row,
                    // The font is not known, so 7 units for each character is an upper bound.
                    width: 7 * node.len() + 20,
                },
            );
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: &[(&str, &[&str])]) -> ImportGraph {
        nodes
            .iter()
            .map(|(node, used)| {
                let used = used.iter().map(|name| name.to_string()).collect();
                (node.to_string(), used)
            })
            .collect()
    }

    #[test]
    fn an_import_is_below_everything_that_uses_it() {
        let graph = graph(&[
            ("cli", &["engine", "kernels"]),
            ("engine", &["kernels"]),
            ("kernels", &[]),
            ("xtask", &["kernels"]),
        ]);
        assert_eq!(
            rows(&graph),
            [vec!["cli", "xtask"], vec!["engine"], vec!["kernels"]]
        );
        // The arrow from cli to kernels follows from the two others.
        assert_eq!(
            arrows(&graph),
            [
                ("cli", "engine"),
                ("engine", "kernels"),
                ("xtask", "kernels")
            ]
        );
    }

    #[test]
    fn a_cycle_shares_a_layer_and_keeps_its_arrows() {
        let graph = graph(&[("a", &["b"]), ("b", &["a", "c"]), ("c", &[])]);
        assert_eq!(rows(&graph), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(arrows(&graph), [("a", "b"), ("b", "a"), ("b", "c")]);
        let above = self::graph(&[("a", &["b"]), ("b", &["a"]), ("top", &["a", "b"])]);
        assert_eq!(arrows(&above).len(), 4);
        let svg = svg(&graph);
        assert_eq!(svg.matches("<path d=\"M").count(), 4, "{svg}");
    }

    #[test]
    fn a_wide_layer_is_drawn_in_rows_of_equal_length() {
        let names: Vec<String> = (0..8).map(|i| format!("n{i}")).collect();
        let graph: ImportGraph = names.into_iter().map(|n| (n, BTreeSet::new())).collect();
        assert_eq!(
            rows(&graph).iter().map(Vec::len).collect::<Vec<_>>(),
            [4, 4]
        );
    }
}
