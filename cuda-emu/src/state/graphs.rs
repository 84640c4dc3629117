//! Graphs among the objects: adding, copying and removing nodes, and graphs as plain data.

use std::collections::HashMap;

use crate::graph::draft::{Draft, DraftContent, DraftNode};
use crate::graph::nodes::{Content, Edge, EdgeData, Graph, Node};
use crate::handle::{GraphId, NodeId};
use crate::state::State;
use crate::work::Work;

impl State {
    /// Adds a node after others of its graph.
    pub(crate) fn add_node(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, EdgeData)],
        content: Content,
    ) -> NodeId {
        let node = self.nodes.insert(Node { graph, content, original: None, shown: None });
        if let Content::Child(child) = self.nodes[node].content {
            self.graphs[child].owner = Some(node);
        }
        let edges = after.iter().map(|&(from, data)| Edge { from, to: node, data });
        let graph = &mut self.graphs[graph];
        graph.nodes.push(node);
        graph.edges.extend(edges);
        node
    }

    /// Removes a graph, its nodes and the graphs that they own.
    pub(crate) fn destroy_graph(&mut self, id: GraphId) {
        for node in self.graphs.remove(id).map(|graph| graph.nodes).unwrap_or_default() {
            self.remove_node(node);
        }
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) {
        if let Some(Node { content: Content::Child(child), .. }) = self.nodes.remove(id) {
            self.destroy_graph(child);
        }
    }

    /// A copy of a graph with its children, whose nodes remember what they are copies of.
    pub(crate) fn copy_graph(&mut self, id: GraphId) -> GraphId {
        let copy = self.graphs.insert(Graph::default());
        let mut copies = HashMap::new();
        for original in self.graphs[id].nodes.clone() {
            let content = match self.nodes[original].content.clone() {
                Content::Child(child) => Content::Child(self.copy_graph(child)),
                content => content,
            };
            let node = self.add_node(copy, &[], content);
            self.nodes[node].original = Some(original);
            copies.insert(original, node);
        }
        let edges = self.graphs[id].edges.iter();
        let edges = edges.map(|e| Edge { from: copies[&e.from], to: copies[&e.to], data: e.data }).collect();
        self.graphs[copy].edges = edges;
        copy
    }

    /// A graph as plain data.
    pub(crate) fn draft(&self, graph: GraphId) -> Draft {
        let graph = &self.graphs[graph];
        let numbers: HashMap<NodeId, usize> =
            graph.nodes.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let content = |id: NodeId| match &self.nodes[id].content {
            Content::Work(work) => DraftContent::Work(work.clone()),
            Content::Child(child) => DraftContent::Child(self.draft(*child)),
        };
        let node = |&id: &NodeId| DraftNode { id, content: content(id), after: Vec::new() };
        let mut nodes: Vec<DraftNode> = graph.nodes.iter().map(node).collect();
        for edge in &graph.edges {
            nodes[numbers[&edge.to]].after.push((numbers[&edge.from], edge.data));
        }
        Draft { nodes }
    }

    /// A graph made from plain data, with the work that an executable graph has now.
    pub(crate) fn graph_of(&mut self, draft: &Draft, exec: &dyn Fn(NodeId) -> Option<Work>) -> GraphId {
        let graph = self.graphs.insert(Graph::default());
        let mut made = Vec::new();
        for node in &draft.nodes {
            let content = match &node.content {
                DraftContent::Work(work) => Content::Work(exec(node.id).unwrap_or_else(|| work.clone())),
                DraftContent::Child(child) => Content::Child(self.graph_of(child, exec)),
            };
            made.push(self.add_node(graph, &[], content));
        }
        for (i, node) in draft.nodes.iter().enumerate() {
            let edges = node.after.iter();
            let edges = edges.map(|&(from, data)| Edge { from: made[from], to: made[i], data });
            self.graphs[graph].edges.extend(edges);
        }
        graph
    }
}
