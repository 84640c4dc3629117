//! Coherence: what a kernel reads by `ld.global.nc`, no kernel writes that may still run when it starts.
//!
//! Such loads are for memory that nobody writes while the kernel is there. A multiprocessor keeps what they brought in
//! its first-level cache, which is emptied when a kernel starts and by nothing else: no fence reaches these loads, nor
//! does `griddepcontrol.wait`. By a full edge a kernel starts when those before it have ended, and finds what they
//! wrote. By a programmatic edge it starts while they run, and a line that anybody on its multiprocessor reads before
//! they write it stays as it was.

use super::by_memory::ByMemory;
use super::{Edge, EdgeKind, Node};
use crate::error::Stale;
use crate::queue::Work;
use crate::uses::{Touch, Use};
use crate::{Error, Region};

/// The nodes that write, by memory. Only looked up, never walked.
#[derive(Clone, Default)]
pub(crate) struct Writers(ByMemory<Vec<usize>>);

impl Writers {
    pub(crate) fn of(nodes: &[Node]) -> Self {
        let mut writers = Self::default();
        for node in nodes {
            node.kind
                .touches()
                .for_each(|touch| writers.add(node.id.index, touch));
        }
        writers
    }

    pub(crate) fn add(&mut self, node: usize, (_, region, access): Touch<'_>) {
        if access.writes() {
            self.0.entry(region.memory()).or_default().push(node);
        }
    }

    /// Those that write this memory.
    fn of_memory(&self, region: &Region) -> &[usize] {
        self.0.get(&region.memory()).map_or(&[], Vec::as_slice)
    }
}

/// Refuses work that becomes node `to`, after these nodes, if it reads what may still be written.
pub(crate) fn expect_coherent(
    (nodes, edges, writers): (&[Node], &[Edge], &Writers),
    into: &[(usize, EdgeKind)],
    to: usize,
    later: &Work,
) -> Result<(), Error> {
    // Weights and tables are read so, and nobody writes them: most work ends here.
    let is_written = |(name, region, _): &Touch<'_>| {
        !writers.of_memory(region).is_empty() && later.reads_noncoherent(name)
    };
    let reads: Vec<Use> = later
        .touches()
        .filter(is_written)
        .map(|touch| later.use_of(touch))
        .collect();
    if reads.is_empty() {
        return Ok(());
    }
    let running = running(nodes.len() + 1, edges, into);
    for read in &reads {
        let writer = writers
            .of_memory(&read.region)
            .iter()
            .filter(|n| running[**n])
            .find_map(|n| {
                let writes = |u: &Use| u.access.writes() && u.region.overlaps(&read.region);
                Some((&nodes[*n], nodes[*n].uses().into_iter().find(writes)?))
            });
        if let Some((node, write)) = writer {
            return Err(stale(
                (node.id.index, node.name(), &write),
                (to, later.name().to_string(), read),
            ));
        }
    }
    Ok(())
}

/// The same for each node of a graph.
pub(crate) fn expect_all_coherent(nodes: &[Node], edges: &[Edge]) -> Result<(), Error> {
    let writers = Writers::of(nodes);
    nodes.iter().try_for_each(|node| {
        let super::NodeKind::Work(work) = &node.kind else {
            return Ok(());
        };
        let into = edges
            .iter()
            .filter(|e| e.to == node.id)
            .map(|e| (e.from.index, e.kind));
        expect_coherent(
            (nodes, edges, &writers),
            &into.collect::<Vec<_>>(),
            node.id.index,
            work,
        )
    })
}

/// The nodes that may still run when a node with these incoming edges starts: those from which every path to it has
/// only programmatic edges. A full edge waits for the end of its first node, and so for the ends of all before it.
fn running(nodes: usize, edges: &[Edge], into: &[(usize, EdgeKind)]) -> Vec<bool> {
    let mut before: Vec<Vec<(usize, EdgeKind)>> = vec![Vec::new(); nodes];
    for edge in edges {
        let (from, to) = edge.indices();
        before[to].push((from, edge.kind));
    }
    let [mut running, mut ended] = [vec![false; nodes], vec![false; nodes]];
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
    running
        .iter_mut()
        .zip(ended)
        .for_each(|(running, ended)| *running &= !ended);
    running
}

fn stale(
    (from, from_name, write): (usize, String, &Use),
    (to, to_name, read): (usize, String, &Use),
) -> Error {
    let (a, b) = (write.region.range(), read.region.range());
    Error::from(Box::new(Stale {
        from,
        from_name,
        written: write.name,
        to,
        to_name,
        read: read.name,
        buffer: read.region.name(),
        bytes: a.start.max(b.start)..a.end.min(b.end),
    }))
}
