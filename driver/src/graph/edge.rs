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

use driver_sys::CUgraphEdgeData;

use crate::device::Context;
use crate::graph::NodeId;

/// The kind of an edge, which determines the point that the later node waits for.
///
/// [`Recorder::pipeline`](crate::graph::Recorder::pipeline) adds programmatic edges automatically.
///
/// ```
/// # use warpwright_driver::prelude::*;
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
/// # use warpwright_driver::graph::Edge;
/// # use warpwright_driver::prelude::*;
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
