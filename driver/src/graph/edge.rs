//! Edges, and the point of the earlier node that each kind waits for.
//!
//! A programmatic edge lets a kernel start while its predecessor still runs. It starts when all
//! blocks of the predecessor have executed `griddepcontrol.launch_dependents` or have ended. Its
//! `griddepcontrol.wait` then waits for the end of the predecessor and makes its writes visible.
//!
//! A kernel that ended without waiting could end before its predecessors, so no later node could
//! rely on them. Therefore a programmatic edge leads only to a kernel that waits. With this rule, a
//! path of edges of any kind means that the end of the path comes after everything at its beginning
//! is complete.

use driver_sys::{CUgraphEdgeData, CUgraphNode};

use super::{Graph, Node, NodeId, NodeKind};
use crate::queue::Work;
use crate::{Context, Error};

/// The kind of an edge, which determines the point that the later node waits for.
///
/// [`Recorder::pipeline`](crate::Recorder::pipeline) adds programmatic edges automatically.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
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
    /// The later node starts after the end of the earlier one.
    Full,
    /// The later kernel starts when every block of the earlier one has executed
    /// `griddepcontrol.launch_dependents` or has ended. It waits for the end itself.
    Programmatic,
    /// The later kernel starts when every block of the earlier one has begun. It waits for the end
    /// itself.
    LaunchOrder,
}

/// An edge from an earlier node to a later one.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// The kind of the edge.
    pub kind: EdgeKind,
}

impl EdgeKind {
    /// Returns `full`, `programmatic` or `launch order`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Programmatic => "programmatic",
            Self::LaunchOrder => "launch order",
        }
    }

    /// Returns the kind that such an edge has on this device, which is full if it does not support
    /// others.
    pub(crate) fn on(self, context: &Context) -> Self {
        if context.device().has_programmatic_edges() {
            self
        } else {
            Self::Full
        }
    }

    /// Returns true if the later kernel may start while the earlier one still runs.
    pub fn overlaps(self) -> bool {
        self != Self::Full
    }

    /// Returns the driver's edge data.
    ///
    /// A full edge is all zeros. Other edges have type 1 and lead to port 0. They start at port 1
    /// (all blocks have triggered or ended) or at port 2 (all blocks have begun).
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

    /// Returns the kind of an edge from the driver's edge data.
    pub(crate) fn from_data(data: &CUgraphEdgeData) -> Self {
        match (data.r#type, data.from_port) {
            (1, 2) => Self::LaunchOrder,
            (1, _) => Self::Programmatic,
            _ => Self::Full,
        }
    }
}

impl Edge {
    /// Returns the indices of the earlier and the later node.
    pub fn indices(&self) -> (usize, usize) {
        (self.from.index, self.to.index)
    }
}

/// Returns true if a programmatic edge from `earlier` to this work is possible.
pub(crate) fn can_overlap(earlier: &Node, later: &Work) -> bool {
    refusal(earlier, later).is_none()
}

/// Returns the reason why no programmatic edge from `earlier` to this work is possible.
fn refusal(earlier: &Node, later: &Work) -> Option<&'static str> {
    match (&earlier.kind, later) {
        (NodeKind::Work(Work::Launch(_)), Work::Launch(launch)) if launch.function().waits() => {
            None
        }
        (NodeKind::Work(Work::Launch(_)), Work::Launch(_)) => Some(
            "the later kernel has no griddepcontrol.wait, so that no node after it could rely on the earlier one; \
            wait in it, or use a full edge",
        ),
        _ => Some("only kernels overlap; use a full edge"),
    }
}

impl Graph {
    /// Returns the number of programmatic edges. It is 0 if the device or the driver does not
    /// support them.
    pub fn programmatic_edges(&self) -> usize {
        self.edges.iter().filter(|e| e.kind.overlaps()).count()
    }

    /// Checks that programmatic edges are possible. `to` is the index of the later node, which may
    /// not exist yet.
    pub(crate) fn expect_overlap(
        &self,
        from: &[usize],
        to: usize,
        later: &Work,
    ) -> Result<(), Error> {
        expect_overlap(from.iter().map(|f| &self.nodes[*f]), to, later)
    }

    /// Compares the edges with those that the driver reports.
    ///
    /// A bulk call with two kinds of edges was observed to give all edges the first kind. A full
    /// edge in place of a programmatic one would only be slower, but the other way round it would
    /// be a race.
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
        // One more element than expected, so that an additional edge is noticed.
        let mut count = self.edges.len() + 1;
        let mut from = vec![CUgraphNode::NULL; count];
        let mut to = vec![CUgraphNode::NULL; count];
        let mut data = vec![CUgraphEdgeData::zeroed(); count];
        // SAFETY: the three arrays have `count` elements. `self` keeps the graph alive, which is
        // locked.
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
            .map(|i| {
                (
                    from[i].0 as usize,
                    to[i].0 as usize,
                    EdgeKind::from_data(&data[i]),
                )
            })
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

/// Checks that programmatic edges from these nodes to node `to` are possible.
pub(crate) fn expect_overlap<'a>(
    from: impl IntoIterator<Item = &'a Node>,
    to: usize,
    later: &Work,
) -> Result<(), Error> {
    for node in from {
        if let Some(problem) = refusal(node, later) {
            let from = node.id.index;
            let from_name = node.name();
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
