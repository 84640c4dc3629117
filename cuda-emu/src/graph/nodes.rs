//! Graphs under construction: nodes and edges.

use warpwright_driver_sys::{CUgraphNodeType, CUresult};

use crate::error::{Result, refuse};
use crate::ffi::params::ExposedParams;
use crate::handle::{GraphId, NodeId};
use crate::work::Work;

/// A graph: its nodes and edges in the order in which they came.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) edges: Vec<Edge>,
    /// The child node that owns it.
    pub(crate) owner: Option<NodeId>,
}

/// An edge with its data.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) data: EdgeData,
}

/// From port, to port and type of an edge; all zero is a full dependency.
pub(crate) type EdgeData = [u8; 3];

/// A node of one graph.
pub(crate) struct Node {
    pub(crate) graph: GraphId,
    pub(crate) content: Content,
    /// The node that this one was cloned from.
    pub(crate) original: Option<NodeId>,
    /// The parameters as the program was shown them. The node runs its own copy: what a program writes there is lost.
    pub(crate) shown: Option<ExposedParams>,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Content {
    Work(Work),
    /// A graph that belongs to the node.
    Child(GraphId),
}

impl Content {
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Work(work) => work.node_type(),
            Self::Child(_) => CUgraphNodeType::GRAPH,
        }
    }

    /// The label in messages and pictures.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Work(work) => work.name(),
            Self::Child(_) => "a child graph",
        }
    }

    fn is_kernel(&self) -> bool {
        matches!(self, Self::Work(Work::Kernel(_)))
    }
}

/// Refuses edge data that an edge between two nodes cannot have: a programmatic edge joins two kernels, from port 1
/// or 2.
pub(crate) fn check_edge(from: &Content, to: &Content, data: EdgeData) -> Result {
    match data {
        [0, 0, 0] => Ok(()),
        [1 | 2, 0, 1] if from.is_kernel() && to.is_kernel() => Ok(()),
        _ => refuse(CUresult::INVALID_VALUE, format!("an edge of data {data:?} between these nodes")),
    }
}
