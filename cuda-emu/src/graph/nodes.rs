//! Graphs under construction: nodes and edges.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::params::ExposedParams;
use crate::handle::{GraphId, NodeId, UserObjectId};
use crate::work::StreamWork;

/// A graph: its nodes and edges, in the order in which they were added.
#[derive(Default)]
pub(crate) struct GraphContent {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) edges: Vec<GraphEdge>,
    /// The node whose child or body it is.
    pub(crate) owner: Option<NodeId>,
    /// Whether it is the body of a conditional node, which allows fewer node types.
    pub(crate) body: bool,
    /// The conditions that were created for it.
    pub(crate) conditions: Vec<GraphCondition>,
    /// The objects of the program that it keeps alive, with one entry per reference.
    pub(crate) objects: Vec<UserObjectId>,
}

/// A condition of a graph.
#[derive(Clone)]
pub(crate) struct GraphCondition {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) cell: Arc<AtomicU32>,
    /// The value that every launch starts with, if any.
    pub(crate) default: Option<u32>,
    /// Whether a node reads it.
    pub(crate) used: bool,
}

/// An edge with its data.
#[derive(Clone, Copy)]
pub(crate) struct GraphEdge {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) data: EdgeData,
}

/// The source port, the destination port and the type of an edge. All zero is a full dependency.
pub(crate) type EdgeData = [u8; 3];

/// A node of one graph.
pub(crate) struct Node {
    pub(crate) graph: GraphId,
    pub(crate) content: NodeContent,
    /// The node that this one was cloned from.
    pub(crate) original: Option<NodeId>,
    /// The parameters that the program has received. The node runs a copy, so writes of the program
    /// have no effect.
    pub(crate) shown: Option<ExposedParams>,
    /// The launch attributes that the program has set.
    pub(crate) attributes: Attributes,
}

/// Launch attributes by number.
pub(crate) type Attributes = BTreeMap<c_int, CUlaunchAttributeValue>;

/// The content of a node.
#[derive(Clone)]
pub(crate) enum NodeContent {
    Work(StreamWork),
    /// A graph that belongs to the node.
    Child(GraphId),
    Conditional(ConditionalNode),
}

/// A conditional node: its condition and the graphs that belong to it.
#[derive(Clone)]
pub(crate) struct ConditionalNode {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<GraphId>,
    /// The handles of the bodies that the program has received.
    pub(crate) shown: Arc<[CUgraph]>,
}

impl NodeContent {
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Work(work) => work.node_type(),
            Self::Child(_) => CUgraphNodeType::GRAPH,
            Self::Conditional(_) => CUgraphNodeType::CONDITIONAL,
        }
    }

    /// Returns the graphs that belong to the node.
    pub(crate) fn graphs(&self) -> &[GraphId] {
        match self {
            Self::Work(_) => &[],
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
        }
    }

    /// Returns true if it is a conditional node.
    pub(crate) fn is_conditional(&self) -> bool {
        matches!(self, Self::Conditional(_))
    }

    /// Returns true if it allocates or frees memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Work(StreamWork::Alloc(_) | StreamWork::Free(_)))
    }

    /// Returns the label in messages and plots.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Work(work) => work.name(),
            Self::Child(_) => "a child graph",
            Self::Conditional(_) => "a conditional node",
        }
    }

    fn is_kernel(&self) -> bool {
        matches!(self, Self::Work(StreamWork::Kernel(_)))
    }
}

/// Returns an error for edge data that is not allowed between two nodes.
///
/// A programmatic edge joins two kernels, from port 1 or 2.
pub(crate) fn check_edge(from: &NodeContent, to: &NodeContent, data: EdgeData) -> Result {
    match data {
        [0, 0, 0] => Ok(()),
        [1 | 2, 0, 1] if from.is_kernel() && to.is_kernel() => Ok(()),
        _ => refuse(
            CUresult::INVALID_VALUE,
            format!("edge data {data:?} is not allowed between these nodes"),
        ),
    }
}
