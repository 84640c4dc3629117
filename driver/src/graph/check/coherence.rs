//! Checks that kernels do not read stale values through `ld.global.nc`.
//!
//! Such loads use the non-coherent path through the L1 cache of a multiprocessor. That cache is
//! invalidated when a kernel starts and at no other time: neither fences nor `griddepcontrol.wait`
//! affect these loads. Therefore the memory must not be written while the kernel runs.
//!
//! Behind a full edge, a kernel starts when its predecessors have ended and sees their writes.
//! Behind a programmatic edge, it starts while they still run. A cache line that any kernel on the
//! multiprocessor has read before the write then keeps the old value.

use crate::error::{Error, Stale};
use crate::graph::check::writers::Writers;
use crate::graph::{Edge, EdgeKind, Node};
use crate::ordering::Use;
use crate::ordering::memory_accesses::MemoryAccess;
use crate::stream::Work;

impl Writers {
    pub(crate) fn new(nodes: &[Node]) -> Self {
        let mut writers = Self::default();
        for node in nodes {
            for touch in node.kind.touches() {
                writers.add(node.id.index, touch);
            }
        }
        writers
    }
}

/// The nodes and edges of a graph, and the nodes that write each memory.
#[derive(Clone, Copy)]
pub(crate) struct WrittenGraph<'g> {
    pub(crate) nodes: &'g [Node],
    pub(crate) edges: &'g [Edge],
    pub(crate) writers: &'g Writers,
}

/// Checks work that becomes node `to` behind the edges `into`.
///
/// # Errors
/// Returns [`Error::Stale`] if the work reads memory with `ld.global.nc` that an overlapping node
/// may still write.
pub(crate) fn expect_coherent(
    graph: WrittenGraph<'_>,
    into: &[(usize, EdgeKind)],
    to: usize,
    later: &Work,
) -> Result<(), Error> {
    // Kernels read mostly weights and tables this way, which no node writes. Most work ends here,
    // before the expensive walk over the edges.
    let is_written = |touch: &MemoryAccess<'_>| {
        !graph.writers.of_memory(touch.region).is_empty() && later.reads_noncoherent(touch.name)
    };
    let reads: Vec<Use> = later
        .touches()
        .filter(is_written)
        .map(|touch| later.use_of(touch))
        .collect();
    if reads.is_empty() {
        return Ok(());
    }

    let running = running(graph.nodes.len() + 1, graph.edges, into);
    for read in &reads {
        for writer in graph.writers.of_memory(&read.region) {
            if !running[*writer] {
                continue;
            }
            let node = &graph.nodes[*writer];
            let conflicts =
                |write: &Use| write.access.writes() && write.region.overlaps(&read.region);
            if let Some(write) = node.uses().into_iter().find(conflicts) {
                return Err(stale(node, &write, to, later, read));
            }
        }
    }

    Ok(())
}

/// Checks every node of a graph as [`expect_coherent`] does.
pub(crate) fn expect_all_coherent(nodes: &[Node], edges: &[Edge]) -> Result<(), Error> {
    let graph = WrittenGraph {
        nodes,
        edges,
        writers: &Writers::new(nodes),
    };
    for node in nodes {
        let crate::graph::NodeKind::Work(work) = &node.kind else {
            continue;
        };
        let into: Vec<_> = edges
            .iter()
            .filter(|e| e.to == node.id)
            .map(|e| (e.from.index, e.kind))
            .collect();
        expect_coherent(graph, &into, node.id.index, work)?;
    }
    Ok(())
}

/// Returns the nodes that may still run when a node with these incoming edges starts.
///
/// These are the nodes from which every path to it consists of programmatic edges. A full edge
/// waits for the end of its first node, and therefore for the end of all nodes before that.
fn running(nodes: usize, edges: &[Edge], into: &[(usize, EdgeKind)]) -> Vec<bool> {
    let mut before: Vec<Vec<(usize, EdgeKind)>> = vec![Vec::new(); nodes];
    for edge in edges {
        let (from, to) = edge.indices();
        before[to].push((from, edge.kind));
    }

    // A walk against the edges. `path` is full as soon as one edge of the path is, because `Full`
    // is the smallest kind. Each node is visited at most once for each of the two lists.
    let mut running = vec![false; nodes];
    let mut ended = vec![false; nodes];
    let mut open = into.to_vec();
    while let Some((node, path)) = open.pop() {
        let seen = if path.overlaps() {
            &mut running
        } else {
            &mut ended
        };
        if !std::mem::replace(&mut seen[node], true) {
            open.extend(
                before[node]
                    .iter()
                    .map(|&(from, kind)| (from, kind.min(path))),
            );
        }
    }

    for (running, ended) in running.iter_mut().zip(ended) {
        *running &= !ended;
    }

    running
}

fn stale(from: &Node, write: &Use, to: usize, later: &Work, read: &Use) -> Error {
    let a = write.region.range();
    let b = read.region.range();
    Error::from(Box::new(Stale {
        from: from.id.index,
        from_name: from.name(),
        written: write.name,
        to,
        to_name: later.name().to_string(),
        read: read.name,
        buffer: read.region.name(),
        bytes: a.start.max(b.start)..a.end.min(b.end),
    }))
}
