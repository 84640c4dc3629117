//! What orders nodes, and what would have to: the buffers that they touch.

use super::{Graph, Node, NodeId};
use crate::queue::{Hazard, hazard};
use crate::uses::{Touch, Use};
use crate::{Error, Region};

/// Two nodes that no edge orders and that touch the same bytes, one of them writing.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let (first, second) = (graph.fill(&[], &x, 1.0)?, graph.fill(&[], &x, 2.0)?);
/// let races = graph.races();
/// assert_eq!((races[0].first, races[0].second), (first, second));
/// graph.add_edge(first, second)?;
/// assert!(graph.races().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Race {
    /// One node.
    pub first: NodeId,
    /// The other.
    pub second: NodeId,
    /// The bytes that the first touches.
    pub region: Region,
}

impl Graph {
    /// What makes an edge needed: the buffers that both nodes touch, and how.
    ///
    /// # Errors
    /// A node of another graph.
    pub fn reasons(&self, from: NodeId, to: NodeId) -> Result<Vec<(Hazard, String)>, Error> {
        let (from, to) = (self.index_of(from)?, self.index_of(to)?);
        let mut reasons = Vec::new();
        for (_, a, earlier) in self.nodes[from].kind.touches() {
            for (_, b, later) in self.nodes[to].kind.touches() {
                let reason = hazard(earlier, later).filter(|_| a.overlaps(b));
                if let Some(hazard) = reason {
                    insert(&mut reasons, (hazard, a.name()));
                }
            }
        }
        Ok(reasons)
    }

    /// Pairs of nodes that no path of edges orders and that touch the same bytes, one of them writing: the edges that
    /// were forgotten. A recorded graph has none.
    pub fn races(&self) -> Vec<Race> {
        let order = self.order();
        let uses: Vec<Vec<Use>> = self.nodes.iter().map(Node::uses).collect();
        let mut races = Vec::new();
        for (b, later) in uses.iter().enumerate() {
            for (a, earlier) in uses[..b].iter().enumerate() {
                if order.precedes(a, b) || order.precedes(b, a) {
                    continue;
                }
                let (first, second) = (self.nodes[a].id, self.nodes[b].id);
                let met = conflict(earlier.iter().map(Use::touch), later.iter().map(Use::touch));
                races.extend(met.map(|region| Race { first, second, region: region.clone() }));
            }
        }
        races
    }
}

/// Puts an item in its place of a few that are in order, each once.
fn insert<T: Ord>(items: &mut Vec<T>, item: T) {
    if let Err(place) = items.binary_search(&item) {
        items.insert(place, item);
    }
}

/// The first bytes that both touch and one writes.
pub(crate) fn conflict<'a>(
    mut first: impl Iterator<Item = Touch<'a>>,
    second: impl Iterator<Item = Touch<'a>> + Clone,
) -> Option<&'a Region> {
    first.find_map(|(_, region, access)| {
        let meets =
            |(_, other, theirs): Touch<'_>| hazard(access, theirs).is_some() && region.overlaps(other);
        second.clone().any(meets).then_some(region)
    })
}
