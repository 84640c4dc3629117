//! Finds pairs of nodes that access the same bytes without an order.
//!
//! [`Graph::races`] is the specification and compares every two nodes. [`Graph::instantiate`] needs
//! the answer for every graph, so it uses a faster check. The check visits the nodes in a
//! topological order. For each range of bytes it keeps the last writer and the readers since then.
//! A node only has to follow those, because they follow everything before them.
//!
//! Most of these pairs are connected by an edge or lie on one chain of edges. Only for the others
//! the paths of the whole graph are computed (see [`NodeOrder`]).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use ptx_gen::Access;

use crate::error::{Error, Races};
use crate::graph::check::by_memory::ByMemory;
use crate::graph::check::node_order::NodeOrder;
use crate::graph::{Graph, Node, NodeId, NodeKind};
use crate::memory::Region;
use crate::ordering::memory_accesses::{MemoryAccess, hazard};

/// Two nodes that access the same bytes, at least one of which writes, without a path of edges
/// between them.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let mut graph = Graph::new(&context)?;
/// let first = graph.fill(&[], &x, 1.0)?;
/// let second = graph.fill(&[], &x.view_range(2..4), 2.0)?;
/// let races = graph.races();
/// assert_eq!((races[0].first, races[0].second), (first, second));
/// let text = "node 0 (fill) and node 1 (fill) touch bytes 8 to 16 of x, one of them writing, and no edge orders them";
/// assert_eq!(races[0].to_string(), text);
/// assert!(graph.instantiate().is_err());
/// graph.add_edge(first, second)?;
/// assert!(graph.races().is_empty());
/// graph.instantiate()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Race {
    /// The node that was added first.
    pub first: NodeId,
    /// The index and the name of the first node.
    pub first_name: String,
    /// The node that was added later.
    pub second: NodeId,
    /// The index and the name of the second node.
    pub second_name: String,
    /// The region that the first node accesses.
    pub region: Region,
    /// The bytes of the region's allocation that both nodes access.
    pub bytes: Range<usize>,
    /// The child graphs and conditional nodes that contain both nodes, by index and name, from the
    /// outermost to the innermost. Empty if both are nodes of the graph itself.
    pub within: Vec<String>,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first_name,
            second_name,
            region,
            bytes,
            within,
            ..
        } = self;
        let Range { start, end } = bytes;
        write!(f, "node {first_name} and node {second_name}")?;
        within
            .iter()
            .rev()
            .try_for_each(|node| write!(f, " within node {node}"))?;
        let memory = region.name();
        write!(
            f,
            " touch bytes {start} to {end} of {memory}, one of them writing, and no edge orders them"
        )
    }
}

/// Returns the races of a graph and of the graphs in it.
pub(crate) fn races(graph: &Graph) -> Vec<Race> {
    let mut races = Vec::new();
    add_races(&graph.nodes, graph.order(), &[], &mut races);
    races
}

/// Checks that the graph has no races.
pub(crate) fn expect_no_races(graph: &Graph, what: &'static str) -> Result<(), Error> {
    if is_free_of_races(graph) {
        return Ok(());
    }

    let races = races(graph);
    let others = races.len().saturating_sub(1);
    match races.into_iter().next() {
        Some(race) => Err(Error::Races(Box::new(Races {
            what,
            first: race.first_name,
            second: race.second_name,
            within: race.within,
            buffer: race.region.name(),
            bytes: race.bytes,
            others,
        }))),
        None => Ok(()),
    }
}

/// Returns true if [`races`] would return no pair.
fn is_free_of_races(graph: &Graph) -> bool {
    if !are_free_of_races_within(&graph.nodes) {
        return false;
    }

    let edges = Edges::new(graph.edges.iter().map(crate::graph::Edge::indices));

    // The order of adding is a topological order, unless an edge was added later against it.
    let forward = edges.0.iter().all(|(to, from)| from < to);
    let sequence: Vec<usize> = if forward {
        (0..graph.nodes.len()).collect()
    } else {
        graph.order().sorted()
    };
    let chains = edges.chains(&sequence);
    are_ordered(
        &graph.nodes,
        &sequence,
        &GraphPaths {
            graph,
            edges,
            chains,
        },
    )
}

/// Adds the races between these nodes and within them.
fn add_races(nodes: &[Node], order: &NodeOrder, within: &[String], races: &mut Vec<Race>) {
    let touches: Vec<Vec<MemoryAccess<'_>>> =
        nodes.iter().map(|node| accesses(node).collect()).collect();
    // Every pair is compared, because this is the specification of the faster check.
    for (b, later) in touches.iter().enumerate() {
        for (a, earlier) in touches[..b].iter().enumerate() {
            if order.precedes(a, b) || order.precedes(b, a) {
                continue;
            }
            let met = conflict(earlier.iter().copied(), later.iter().copied());
            races.extend(met.map(|(region, bytes)| Race {
                first: nodes[a].id,
                first_name: nodes[a].describe(),
                second: nodes[b].id,
                second_name: nodes[b].describe(),
                region: region.clone(),
                bytes,
                within: within.to_vec(),
            }));
        }
    }
    for node in nodes {
        let path = || {
            within
                .iter()
                .cloned()
                .chain([node.describe()])
                .collect::<Vec<_>>()
        };
        match &node.kind {
            NodeKind::Child(child) => add_races(child.nodes(), child.order(), &path(), races),
            NodeKind::Conditional(conditional) => {
                for body in conditional.bodies() {
                    add_races(&body.nodes, body.order(), &path(), races);
                }
            }
            _ => {}
        }
    }
}

/// Returns true if the child graphs and bodies among these nodes have no races.
fn are_free_of_races_within(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match &node.kind {
        NodeKind::Child(child) => {
            are_free_of_races_within(child.nodes())
                && are_ordered(child.nodes(), &child.order().sorted(), child.order())
        }
        NodeKind::Conditional(conditional) => conditional.bodies().iter().all(is_free_of_races),
        _ => true,
    })
}

/// The paths of edges between nodes.
trait Paths {
    /// Returns true if a path leads from `a` to `b`, which comes later in the sequence.
    fn precedes(&self, a: usize, b: usize) -> bool;

    /// Returns true if such a path is found without much work. If it returns false, there may still
    /// be one.
    fn precedes_visibly(&self, a: usize, b: usize) -> bool;
}

impl Paths for NodeOrder {
    fn precedes(&self, a: usize, b: usize) -> bool {
        NodeOrder::precedes(self, a, b)
    }

    fn precedes_visibly(&self, a: usize, b: usize) -> bool {
        NodeOrder::precedes(self, a, b)
    }
}

/// The paths of a graph. They are computed only if edges and chains do not show one.
struct GraphPaths<'g> {
    graph: &'g Graph,
    edges: Edges,
    chains: Vec<usize>,
}

impl Paths for GraphPaths<'_> {
    fn precedes(&self, a: usize, b: usize) -> bool {
        self.precedes_visibly(a, b) || self.graph.order().precedes(a, b)
    }

    fn precedes_visibly(&self, a: usize, b: usize) -> bool {
        self.chains[a] == self.chains[b] || self.edges.contains(a, b)
    }
}

/// Returns true if all conflicting nodes are ordered. `sequence` contains the nodes in a
/// topological order.
fn are_ordered(nodes: &[Node], sequence: &[usize], paths: &impl Paths) -> bool {
    let mut memories = ByMemory::<Accesses>::default();
    sequence.iter().all(|node| {
        accesses(&nodes[*node]).all(|touch| {
            let memory = memories.entry(touch.region.memory()).or_default();
            memory
                .split(touch.region.range())
                .all(|part| part.add(*node, touch.access, paths))
        })
    })
}

/// Returns the accesses of a node that an edge may have to order.
fn accesses(node: &Node) -> impl Iterator<Item = MemoryAccess<'_>> {
    let waits_are_accesses = !matches!(node.kind, NodeKind::Words(_));
    node.kind
        .touches()
        .filter(move |touch| waits_are_accesses || touch.access.writes())
}

/// The edges between nodes, sorted by the later node.
struct Edges(Vec<(usize, usize)>);

impl Edges {
    fn new(edges: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut edges: Vec<_> = edges.map(|(from, to)| (to, from)).collect();
        edges.sort_unstable();
        Self(edges)
    }

    fn contains(&self, from: usize, to: usize) -> bool {
        self.0.binary_search(&(to, from)).is_ok()
    }

    /// Returns the predecessors of a node.
    fn before(&self, to: usize) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|(node, _)| *node < to);
        self.0[first..]
            .iter()
            .take_while(move |(node, _)| *node == to)
            .map(|(_, from)| *from)
    }

    /// Returns the number of a chain for each node. An edge leads from each node of a chain to the
    /// next one.
    fn chains(&self, sequence: &[usize]) -> Vec<usize> {
        let mut chains = vec![0; sequence.len()];
        let mut last: Vec<usize> = Vec::new();
        for node in sequence {
            let chain = self
                .before(*node)
                .map(|from| (chains[from], from))
                .find(|(chain, from)| last[*chain] == *from);
            let chain = chain.map_or(last.len(), |(chain, _)| chain);
            chains[*node] = chain;
            if chain == last.len() {
                last.push(*node);
            } else {
                last[chain] = *node;
            }
        }

        chains
    }
}

/// The accesses to one allocation that a later access may have to follow: disjoint ranges by their
/// first byte.
#[derive(Default)]
struct Accesses(BTreeMap<usize, AccessedRange>);

/// A range of bytes and its recent accesses.
#[derive(Clone, Default)]
struct AccessedRange {
    end: usize,
    /// The last node that writes the range.
    writer: Option<usize>,
    /// The nodes that read the range after the last write.
    readers: Vec<usize>,
}

impl Accesses {
    /// Returns the ranges that make up `bytes`, after splitting ranges that extend beyond them.
    fn split(&mut self, bytes: Range<usize>) -> impl Iterator<Item = &mut AccessedRange> {
        self.cut(bytes.start);
        self.cut(bytes.end);
        let mut gaps = Vec::new();
        let mut at = bytes.start;
        for (start, part) in self.0.range(bytes.clone()) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = part.end;
        }

        if at < bytes.end {
            gaps.push(at..bytes.end);
        }

        for gap in gaps {
            self.0.insert(
                gap.start,
                AccessedRange {
                    end: gap.end,
                    ..AccessedRange::default()
                },
            );
        }

        self.0.range_mut(bytes).map(|(_, part)| part)
    }

    /// Splits the range that contains the bytes before and after `at`.
    fn cut(&mut self, at: usize) {
        let Some((_, part)) = self.0.range_mut(..at).next_back() else {
            return;
        };
        if part.end > at {
            let tail = part.clone();
            part.end = at;
            self.0.insert(at, tail);
        }
    }
}

impl AccessedRange {
    /// Adds an access of a node. Returns true if the accesses that it must follow are ordered
    /// before it.
    fn add(&mut self, node: usize, access: Access, paths: &impl Paths) -> bool {
        // A node may access the range twice, for example as source and target. That is not a race.
        let follows = |earlier: usize| earlier == node || paths.precedes(earlier, node);
        if !self.writer.is_none_or(follows) {
            return false;
        }

        if access.writes() {
            let all = self.readers.drain(..).all(follows);
            self.writer = Some(node);
            return all;
        }

        match self.readers.last_mut() {
            // A node that follows this reader follows the earlier one as well, so one entry is
            // enough. Only cheap answers are used, because a longer list is correct too.
            Some(last) if *last == node || paths.precedes_visibly(*last, node) => *last = node,
            _ => self.readers.push(node),
        }

        true
    }
}

/// Returns the first bytes that both access and at least one writes, with the region of the first.
pub(crate) fn conflict<'a>(
    mut first: impl Iterator<Item = MemoryAccess<'a>>,
    second: impl Iterator<Item = MemoryAccess<'a>> + Clone,
) -> Option<(&'a Region, Range<usize>)> {
    first.find_map(|ours| {
        let meets = |theirs: &MemoryAccess<'_>| {
            hazard(ours.access, theirs.access).is_some() && ours.region.overlaps(theirs.region)
        };
        let theirs = second.clone().find(meets)?;
        let a = ours.region.range();
        let b = theirs.region.range();
        Some((ours.region, a.start.max(b.start)..a.end.min(b.end)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths from lower to higher indices, except from one node.
    struct AllBut(Option<usize>);

    impl Paths for AllBut {
        fn precedes(&self, a: usize, b: usize) -> bool {
            a < b && self.0 != Some(a)
        }

        fn precedes_visibly(&self, _: usize, _: usize) -> bool {
            false
        }
    }

    #[test]
    fn ranges_are_split_where_accesses_begin_and_end() {
        let mut accesses = Accesses::default();
        for (node, bytes, access) in [
            (0, 0..16, Access::Write),
            (1, 4..8, Access::Write),
            (2, 6..32, Access::Read),
        ] {
            assert!(
                accesses
                    .split(bytes)
                    .all(|part| part.add(node, access, &AllBut(None)))
            );
        }

        // Node 3 meets the writers 0 and 1 and the reader 2, and must come after all of them.
        for missing in 0..3 {
            let mut copy = Accesses(accesses.0.clone());
            let mut parts = copy.split(0..32);
            assert!(
                !parts.all(|part| part.add(3, Access::Write, &AllBut(Some(missing)))),
                "without {missing}"
            );
        }

        let ends: Vec<_> = accesses
            .0
            .iter()
            .map(|(start, part)| (*start, part.end))
            .collect();
        assert_eq!(ends, [(0, 4), (4, 6), (6, 8), (8, 16), (16, 32)]);
    }

    #[test]
    fn chains_follow_edges() {
        // 0 -> 2 -> 4 and 1 -> 3, with 2 -> 3.
        let edges = Edges::new([(0, 2), (2, 4), (1, 3), (2, 3)].into_iter());
        let chains = edges.chains(&[0, 1, 2, 3, 4]);
        assert_eq!(chains[0], chains[2]);
        assert!(edges.contains(2, 3) && !edges.contains(3, 2));
        for [a, b] in [[0, 1], [1, 4], [3, 4]] {
            assert_ne!(chains[a], chains[b], "{a} and {b}");
        }
    }
}
