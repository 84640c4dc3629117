//! Edges, and what they wait for.
//!
//! A programmatic edge lets a kernel start while the one before it still runs: once all blocks of the earlier one
//! have executed `griddepcontrol.launch_dependents` or ended. Its `griddepcontrol.wait` then waits for the end of the
//! earlier one, whose writes it sees from there on. A kernel that ended without waiting could end before the kernels
//! before it, and nothing after it could rely on those; hence a programmatic edge leads only to a kernel that waits,
//! and a path of edges of either kind means that its end comes after its beginning is done.

use driver_sys::{CUgraphEdgeData, CUgraphNode};

use super::{Graph, Node, NodeId, NodeKind};
use crate::queue::Work;
use crate::{Context, Error};

/// What an edge waits for. [`Recorder::pipeline`](crate::Recorder::pipeline) makes programmatic ones.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let copied = graph.copy(&[], &x, &y)?;
/// // Only kernels overlap.
/// assert!(graph.add_edge_of(EdgeKind::Programmatic, filled, copied).is_err());
/// graph.add_edge_of(EdgeKind::Full, filled, copied)?;
/// assert!(graph.edges().iter().all(|edge| !edge.kind.overlaps()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum EdgeKind {
    /// The end of the earlier node.
    Full,
    /// The earlier kernel's `griddepcontrol.launch_dependents`, in every block; its end is waited for in the later.
    Programmatic,
    /// The beginning of every block of the earlier kernel; its end is waited for in the later, as above.
    LaunchOrder,
}

/// An edge from the earlier node to the later.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let from = graph.fill(&[], &x, 1.0)?;
/// let to = graph.fill(&[from], &x, 2.0)?;
/// assert_eq!(graph.edges(), [Edge { from, to, kind: EdgeKind::Full }]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    /// The earlier node.
    pub from: NodeId,
    /// The later node.
    pub to: NodeId,
    /// What it waits for.
    pub kind: EdgeKind,
}

impl EdgeKind {
    /// `full`, `programmatic` or `launch order`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Programmatic => "programmatic",
            Self::LaunchOrder => "launch order",
        }
    }

    /// The kind that such an edge has on this device: full where it knows no other.
    pub(crate) fn on(self, context: &Context) -> Self {
        if context.device().has_programmatic_edges() {
            self
        } else {
            Self::Full
        }
    }

    /// Whether the later kernel starts while the earlier one still runs.
    pub fn overlaps(self) -> bool {
        self != Self::Full
    }

    /// The driver's record: all zero; or type 1, to port 0, from port 1 (all blocks have triggered or ended) or port 2
    /// (all blocks have begun).
    pub(crate) fn data(self) -> CUgraphEdgeData {
        let from_port = match self {
            Self::Full => 0,
            Self::Programmatic => 1,
            Self::LaunchOrder => 2,
        };
        CUgraphEdgeData {
            from_port,
            r#type: self.overlaps().into(),
            ..CUgraphEdgeData::zeroed()
        }
    }

    /// The kind of a record.
    pub(crate) fn of(data: &CUgraphEdgeData) -> Self {
        match (data.r#type, data.from_port) {
            (1, 2) => Self::LaunchOrder,
            (1, _) => Self::Programmatic,
            _ => Self::Full,
        }
    }
}

impl Edge {
    /// The numbers of its nodes.
    pub fn indices(&self) -> (usize, usize) {
        (self.from.index, self.to.index)
    }
}

/// Whether a kernel may follow this node by a programmatic edge.
pub(crate) fn can_overlap(earlier: &Node, later: &Work) -> bool {
    refusal(earlier, later).is_none()
}

/// Why no programmatic edge leads from this node to this work.
fn refusal(earlier: &Node, later: &Work) -> Option<&'static str> {
    match (&earlier.kind, later) {
        (NodeKind::Work(Work::Launch(_)), Work::Launch(launch)) if launch.function().waits() => {
            None
        }
        (NodeKind::Work(Work::Launch(_)), Work::Launch(_)) => Some(
            "the later kernel has no griddepcontrol.wait, so that nothing after it could rely on the earlier one; \
            wait in it, or use a full edge",
        ),
        _ => Some("only kernels overlap; use a full edge"),
    }
}

impl Graph {
    /// How many of the edges are programmatic, of either kind. None is on a device or a driver that has no such edges.
    pub fn programmatic_edges(&self) -> usize {
        self.edges.iter().filter(|e| e.kind.overlaps()).count()
    }

    /// Refuses programmatic edges that the kernels cannot have; `to` is the number that the later node has or gets.
    pub(crate) fn expect_overlap(
        &self,
        from: &[usize],
        to: usize,
        later: &Work,
    ) -> Result<(), Error> {
        expect_overlap(from.iter().map(|f| &self.nodes[*f]), to, later)
    }

    /// Compares the edges with what the driver tells of them: a bulk call with records of two kinds was seen to give
    /// all edges the first kind, and a full edge in place of a programmatic one would only be slow.
    pub(crate) fn expect_edges_as_told(&self) -> Result<(), Error> {
        let driver = self.context().driver();
        let Some(get) = driver
            .api()
            .cuGraphGetEdges_v2
            .filter(|_| self.programmatic_edges() > 0)
        else {
            return Ok(());
        };
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        // One more than there should be, so that one too many shows.
        let mut count = self.edges.len() + 1;
        let (mut from, mut to) = (
            vec![CUgraphNode::NULL; count],
            vec![CUgraphNode::NULL; count],
        );
        let mut data = vec![CUgraphEdgeData::zeroed(); count];
        // SAFETY: the three arrays have room for `count`; the graph is alive.
        let code = unsafe {
            get(
                graph,
                from.as_mut_ptr(),
                to.as_mut_ptr(),
                data.as_mut_ptr(),
                &mut count,
            )
        };
        driver.check("cuGraphGetEdges_v2", code)?;
        let mut reported: Vec<_> = (0..count.min(from.len()))
            .map(|i| (from[i].0 as usize, to[i].0 as usize, EdgeKind::of(&data[i])))
            .collect();
        reported.sort_unstable();
        let raw = |node: NodeId| self.nodes[node.index].raw.0 as usize;
        let is_reported = |e: &Edge| {
            reported
                .binary_search(&(raw(e.from), raw(e.to), e.kind))
                .is_ok()
        };
        let missing = self.edges.iter().find(|e| !is_reported(e));
        match missing {
            Some(edge) => {
                let (from, to) = edge.indices();
                Err(Error::EdgeKind {
                    from,
                    to,
                    wanted: edge.kind.name(),
                })
            }
            None => Ok(()),
        }
    }
}

/// Refuses programmatic edges from these nodes to work that is or becomes node `to`.
pub(crate) fn expect_overlap<'a>(
    from: impl IntoIterator<Item = &'a Node>,
    to: usize,
    later: &Work,
) -> Result<(), Error> {
    for node in from {
        if let Some(problem) = refusal(node, later) {
            let (from, from_name) = (node.id.index, node.name());
            let to_name = later.name().to_string();
            return Err(Error::Overlap {
                from,
                from_name,
                to,
                to_name,
                problem,
            });
        }
    }
    Ok(())
}
