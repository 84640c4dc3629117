//! A graph as plain data, and its steps with child graphs unfolded.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use warpwright_driver_sys::CUgraphConditionalNodeType;

use crate::graph::nodes::EdgeData;
use crate::graph::step::ExecStep;
use crate::graph::topology::Topology;
use crate::handle::NodeId;
use crate::work::{Branch, GraphAllocation, StreamWork};

/// A graph as plain data, which outlives its nodes and can be compared with another graph.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) nodes: Vec<DraftNode>,
    /// The conditions that a launch sets, and their values.
    pub(crate) defaults: Vec<(Arc<AtomicU32>, u32)>,
}

pub(crate) struct DraftNode {
    pub(crate) id: NodeId,
    pub(crate) content: DraftContent,
    /// The nodes on which it depends, by number, in the order of its edges.
    pub(crate) after: Vec<(usize, EdgeData)>,
}

pub(crate) enum DraftContent {
    Work(StreamWork),
    Child(Draft),
    Conditional(DraftConditional),
}

/// A conditional node with its bodies.
pub(crate) struct DraftConditional {
    pub(crate) condition: Arc<AtomicU32>,
    pub(crate) kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<Draft>,
}

impl Draft {
    /// Returns all drafts inside this one, including itself first.
    pub(crate) fn all(&self) -> Vec<&Draft> {
        let mut all = vec![self];
        for node in &self.nodes {
            match &node.content {
                DraftContent::Work(_) => {}
                DraftContent::Child(child) => all.extend(child.all()),
                DraftContent::Conditional(c) => all.extend(c.bodies.iter().flat_map(Draft::all)),
            }
        }
        all
    }

    /// Returns the work of all nodes inside.
    pub(crate) fn works(&self) -> impl Iterator<Item = &StreamWork> {
        let nodes = self.all().into_iter().flat_map(|draft| &draft.nodes);
        nodes.filter_map(|node| {
            if let DraftContent::Work(work) = &node.content {
                Some(work)
            } else {
                None
            }
        })
    }

    /// Returns the memory that a launch leaves allocated.
    pub(crate) fn leaves(&self) -> Vec<GraphAllocation> {
        let made = self.works().filter_map(|w| {
            if let StreamWork::Alloc(made) = w {
                Some(*made)
            } else {
                None
            }
        });
        let freed: Vec<u64> = self.freed().collect();
        made.filter(|made| !freed.contains(&made.base)).collect()
    }

    /// Returns the memory that a launch frees without having allocated it.
    pub(crate) fn takes(&self) -> Vec<u64> {
        let makes = |at: u64| {
            self.works()
                .any(|w| matches!(w, StreamWork::Alloc(made) if made.base == at))
        };
        self.freed().filter(|at| !makes(*at)).collect()
    }

    fn freed(&self) -> impl Iterator<Item = u64> {
        self.works().filter_map(|w| {
            if let StreamWork::Free(at) = w {
                Some(*at)
            } else {
                None
            }
        })
    }

    /// Returns true if a node inside is conditional.
    pub(crate) fn is_conditional(&self) -> bool {
        let conditional = |node: &DraftNode| matches!(node.content, DraftContent::Conditional(_));
        self.all()
            .into_iter()
            .any(|draft| draft.nodes.iter().any(conditional))
    }
}

/// Steps that run together: those of a graph with its child graphs, or those of a body of a
/// conditional node.
#[derive(Default)]
pub(crate) struct GraphPart {
    /// The number of the first step.
    pub(crate) first: usize,
    /// The edges between its steps, which are counted from the first.
    pub(crate) topology: Topology,
}

/// The steps of an executable graph, part by part. Part 0 is the graph itself.
#[derive(Default)]
pub(crate) struct Unfolding {
    pub(crate) steps: Vec<ExecStep>,
    pub(crate) parts: Vec<GraphPart>,
    pub(crate) of_node: HashMap<NodeId, usize>,
}

impl Unfolding {
    /// Returns the steps of a graph and the edges between them.
    pub(crate) fn of(draft: &Draft) -> Self {
        let mut builder = UnfoldingBuilder {
            unfolded: Self::default(),
            open: VecDeque::from([draft]),
            given: 1,
        };
        while let Some(draft) = builder.open.pop_front() {
            let first = builder.unfolded.steps.len();
            builder.unfolded.parts.push(GraphPart {
                first,
                topology: Topology::default(),
            });
            builder.graph(draft, &[]);
        }
        builder.unfolded
    }
}

/// An unfolding under construction.
struct UnfoldingBuilder<'a> {
    unfolded: Unfolding,
    /// The bodies that still become parts, in the order of their numbers.
    open: VecDeque<&'a Draft>,
    /// The number of parts that have a number.
    given: usize,
}

impl<'a> UnfoldingBuilder<'a> {
    /// Adds the steps of a graph after the steps `before`. Returns the steps that no other step of
    /// it follows.
    fn graph(&mut self, draft: &'a Draft, before: &[usize]) -> Vec<usize> {
        let ends: Vec<(usize, usize)> = draft.nodes.iter().map(|node| self.node(node)).collect();
        for (node, &(first, _)) in draft.nodes.iter().zip(&ends) {
            for &(from, data) in &node.after {
                self.edge(ends[from].1, first);
                if data != [0; 3] {
                    // Both ends are kernels, so each is a single step.
                    let base = self.part().first;
                    self.part()
                        .topology
                        .programmatic
                        .push((ends[from].1 - base, first - base));
                }
            }
            if node.after.is_empty() {
                for &from in before {
                    self.edge(from, first);
                }
            }
        }

        let inner = |i: usize| {
            draft
                .nodes
                .iter()
                .all(|node| node.after.iter().all(|&(from, _)| from != i))
        };
        (0..ends.len())
            .filter(|&i| inner(i))
            .map(|i| ends[i].1)
            .collect()
    }

    /// Adds the steps of a node. Returns its first and its last step.
    ///
    /// A child graph becomes an empty step, its own steps, and another empty step.
    fn node(&mut self, node: &'a DraftNode) -> (usize, usize) {
        let (first, last);
        match &node.content {
            DraftContent::Work(work) => {
                first = self.step(work.clone());
                last = first;
            }
            DraftContent::Child(child) => {
                first = self.step(StreamWork::Empty);
                last = self.child(child, first);
            }
            DraftContent::Conditional(conditional) => {
                first = self.conditional(conditional);
                last = first;
            }
        }

        self.unfolded.of_node.insert(node.id, first);
        (first, last)
    }

    /// Adds a child graph after its first step. Returns its last step.
    fn child(&mut self, child: &'a Draft, first: usize) -> usize {
        let leaves = self.graph(child, &[first]);
        let last = self.step(StreamWork::Empty);
        for &leaf in &leaves {
            self.edge(leaf, last);
        }
        if leaves.is_empty() {
            self.edge(first, last);
        }
        last
    }

    /// Adds the step of a conditional node, whose bodies become parts.
    fn conditional(&mut self, conditional: &'a DraftConditional) -> usize {
        let bodies = self.given..self.given + conditional.bodies.len();
        self.given = bodies.end;
        self.open.extend(&conditional.bodies);
        let condition = Arc::clone(&conditional.condition);
        self.step(StreamWork::Branch(Arc::new(Branch {
            condition,
            kind: conditional.kind,
            bodies: bodies.collect(),
        })))
    }

    /// Returns the part under construction.
    fn part(&mut self) -> &mut GraphPart {
        self.unfolded
            .parts
            .last_mut()
            .expect("a part is begun before its steps are added")
    }

    fn step(&mut self, work: StreamWork) -> usize {
        self.unfolded.steps.push(ExecStep::new(work));
        let topology = &mut self.part().topology;
        topology.next.push(Vec::new());
        topology.waits.push(0);
        self.unfolded.steps.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        let part = self.part();
        part.topology.next[from - part.first].push(to - part.first);
        part.topology.waits[to - part.first] += 1;
    }
}
