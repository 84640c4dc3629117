//! Operations on graphs among the objects: adding, copying and removing nodes, and conversion to
//! plain data.

use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::draft::{Draft, DraftConditional, DraftContent, DraftNode};
use crate::graph::nodes::{
    Attributes, ConditionalNode, EdgeData, GraphContent, GraphEdge, Node, NodeContent,
};
use crate::handle::{GraphId, NodeId, UserObjectId};
use crate::state::DriverState;
use crate::work::StreamWork;

impl DriverState {
    /// Adds a node that depends on other nodes of its graph.
    pub(crate) fn add_node(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, EdgeData)],
        content: NodeContent,
    ) -> NodeId {
        let attributes = Attributes::new();
        let node = self.nodes.insert(Node {
            graph,
            content,
            original: None,
            shown: None,
            attributes,
        });
        for owned in self.nodes[node].content.graphs().to_vec() {
            self.graphs[owned].owner = Some(node);
        }

        let edges = after.iter().map(|&(from, data)| GraphEdge {
            from,
            to: node,
            data,
        });
        let graph = &mut self.graphs[graph];
        graph.nodes.push(node);
        graph.edges.extend(edges);
        node
    }

    /// Removes a graph, its nodes and the graphs that they own.
    pub(crate) fn destroy_graph(&mut self, id: GraphId) {
        let Some(graph) = self.graphs.remove(id) else {
            return;
        };
        for node in graph.nodes {
            self.remove_node(node);
        }
        for condition in &graph.conditions {
            self.device.conditions.remove(condition.handle);
        }
        for object in graph.objects {
            self.release_object(object, 1);
        }
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.remove(id) {
            for &graph in node.content.graphs() {
                self.destroy_graph(graph);
            }
        }
    }

    /// Copies a graph with its child graphs. The new nodes refer to their originals.
    pub(crate) fn copy_graph(&mut self, id: GraphId) -> GraphId {
        let copy = self.graphs.insert(GraphContent::default());
        let mut copies = HashMap::new();

        // Nodes come first, because edges refer to the copies of both ends.
        for original in self.graphs[id].nodes.clone() {
            let content = match self.nodes[original].content.clone() {
                NodeContent::Child(child) => NodeContent::Child(self.copy_graph(child)),
                content => content,
            };
            let node = self.add_node(copy, &[], content);
            self.nodes[node].original = Some(original);
            self.nodes[node].attributes = self.nodes[original].attributes.clone();
            copies.insert(original, node);
        }

        let edges = self.graphs[id].edges.iter();
        let edges = edges
            .map(|e| GraphEdge {
                from: copies[&e.from],
                to: copies[&e.to],
                data: e.data,
            })
            .collect();
        self.graphs[copy].edges = edges;
        let objects = self.graphs[id].objects.clone();
        for &object in &objects {
            self.retain_object(object, 1);
        }

        self.graphs[copy].objects = objects;
        copy
    }

    /// Returns a graph as plain data.
    pub(crate) fn draft(&self, graph: GraphId) -> Draft {
        let graph = &self.graphs[graph];

        // Edges of a draft refer to nodes by position, so that drafts of different graphs can be
        // compared.
        let numbers: HashMap<NodeId, usize> = graph
            .nodes
            .iter()
            .enumerate()
            .map(|(i, &id)| (id, i))
            .collect();
        let content = |id: NodeId| match &self.nodes[id].content {
            NodeContent::Work(work) => DraftContent::Work(work.clone()),
            NodeContent::Child(child) => DraftContent::Child(self.draft(*child)),
            NodeContent::Conditional(conditional) => {
                DraftContent::Conditional(self.draft_conditional(conditional))
            }
        };
        let node = |&id: &NodeId| DraftNode {
            id,
            content: content(id),
            after: Vec::new(),
        };
        let mut nodes: Vec<DraftNode> = graph.nodes.iter().map(node).collect();
        for edge in &graph.edges {
            nodes[numbers[&edge.to]]
                .after
                .push((numbers[&edge.from], edge.data));
        }

        let conditions = graph.conditions.iter();
        let defaults = conditions
            .filter_map(|c| Some((Arc::clone(&c.cell), c.default?)))
            .collect();
        Draft { nodes, defaults }
    }

    fn draft_conditional(&self, conditional: &ConditionalNode) -> DraftConditional {
        DraftConditional {
            condition: self.device.conditions.cell(conditional.handle),
            kind: conditional.kind,
            bodies: conditional
                .bodies
                .iter()
                .map(|&body| self.draft(body))
                .collect(),
        }
    }

    /// Returns true if `which` selects a node of the graph or of a graph that a node owns.
    pub(crate) fn has_node(&self, graph: GraphId, which: fn(&NodeContent) -> bool) -> bool {
        self.graphs[graph].nodes.iter().any(|&node| {
            let content = &self.nodes[node].content;
            which(content)
                || content
                    .graphs()
                    .iter()
                    .any(|&owned| self.has_node(owned, which))
        })
    }

    /// Adds references to an object of the program.
    pub(crate) fn retain_object(&mut self, id: UserObjectId, count: u64) {
        if let Some(object) = self.user_objects.get_mut(id) {
            object.count += count;
        }
    }

    /// Removes references to an object of the program. Without references it is destroyed on a
    /// separate thread.
    pub(crate) fn release_object(&mut self, id: UserObjectId, count: u64) {
        let Some(object) = self.user_objects.get_mut(id) else {
            return;
        };
        object.count = object.count.saturating_sub(count);
        if object.count == 0 {
            let destroy = object.destroy;
            self.user_objects.remove(id);
            std::thread::spawn(move || destroy.call());
        }
    }

    /// Creates a graph from plain data, with the current work of an executable graph.
    pub(crate) fn graph_of(
        &mut self,
        draft: &Draft,
        exec: &dyn Fn(NodeId) -> Option<StreamWork>,
    ) -> GraphId {
        let graph = self.graphs.insert(GraphContent::default());
        let mut made = Vec::new();
        for node in &draft.nodes {
            let content = match &node.content {
                DraftContent::Work(work) => {
                    NodeContent::Work(exec(node.id).unwrap_or_else(|| work.clone()))
                }
                DraftContent::Child(child) => NodeContent::Child(self.graph_of(child, exec)),
                // Graphs with conditional nodes cannot be launched into a capture, so this is never
                // run.
                DraftContent::Conditional(_) => NodeContent::Work(StreamWork::Empty),
            };
            made.push(self.add_node(graph, &[], content));
        }

        for (i, node) in draft.nodes.iter().enumerate() {
            let edges = node.after.iter();
            let edges = edges.map(|&(from, data)| GraphEdge {
                from: made[from],
                to: made[i],
                data,
            });
            self.graphs[graph].edges.extend(edges);
        }

        graph
    }
}
