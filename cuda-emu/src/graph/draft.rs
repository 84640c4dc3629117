//! A graph as plain data, and its steps with children unfolded.

use std::collections::HashMap;

use crate::graph::nodes::EdgeData;
use crate::graph::step::ExecStep;
use crate::graph::topology::Topology;
use crate::handle::NodeId;
use crate::work::Work;

/// A graph as plain data, so that it outlives its nodes and compares with another.
pub(crate) struct Draft {
    pub(crate) nodes: Vec<DraftNode>,
}

pub(crate) struct DraftNode {
    pub(crate) id: NodeId,
    pub(crate) content: DraftContent,
    /// The nodes it waits for, by number, in the order of its edges.
    pub(crate) after: Vec<(usize, EdgeData)>,
}

pub(crate) enum DraftContent {
    Work(Work),
    Child(Draft),
}

/// Steps and edges under construction.
#[derive(Default)]
pub(crate) struct Unfolding {
    pub(crate) steps: Vec<ExecStep>,
    pub(crate) topology: Topology,
    pub(crate) of_node: HashMap<NodeId, usize>,
}

impl Unfolding {
    /// The steps of a graph and the edges between them.
    pub(crate) fn of(draft: &Draft) -> Self {
        let mut unfolded = Self::default();
        unfolded.graph(draft, &[]);
        unfolded
    }

    /// Adds the steps of a graph after the steps `before`. Returns the steps that no other step of it follows.
    fn graph(&mut self, draft: &Draft, before: &[usize]) -> Vec<usize> {
        let ends: Vec<(usize, usize)> = draft.nodes.iter().map(|node| self.node(node)).collect();
        for (node, &(first, _)) in draft.nodes.iter().zip(&ends) {
            for &(from, data) in &node.after {
                self.edge(ends[from].1, first);
                if data != [0; 3] {
                    // Both ends are kernels, so that neither was unfolded.
                    self.topology.programmatic.push((ends[from].1, first));
                }
            }
            if node.after.is_empty() {
                before.iter().for_each(|&from| self.edge(from, first));
            }
        }
        let inner = |i: usize| draft.nodes.iter().all(|node| node.after.iter().all(|&(from, _)| from != i));
        (0..ends.len()).filter(|&i| inner(i)).map(|i| ends[i].1).collect()
    }

    /// Adds the steps of a node: its first and its last. A child graph becomes an empty step, its own steps, and
    /// another empty step.
    fn node(&mut self, node: &DraftNode) -> (usize, usize) {
        let (first, last);
        match &node.content {
            DraftContent::Work(work) => {
                first = self.step(work.clone());
                last = first;
            }
            DraftContent::Child(child) => {
                first = self.step(Work::Empty);
                last = self.child(child, first);
            }
        }
        self.of_node.insert(node.id, first);
        (first, last)
    }

    /// Adds a child graph after its first step. Returns its last step.
    fn child(&mut self, child: &Draft, first: usize) -> usize {
        let leaves = self.graph(child, &[first]);
        let last = self.step(Work::Empty);
        leaves.iter().for_each(|&leaf| self.edge(leaf, last));
        if leaves.is_empty() {
            self.edge(first, last);
        }
        last
    }

    fn step(&mut self, work: Work) -> usize {
        self.steps.push(ExecStep::new(work));
        self.topology.next.push(Vec::new());
        self.topology.waits.push(0);
        self.steps.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.topology.next[from].push(to);
        self.topology.waits[to] += 1;
    }
}
