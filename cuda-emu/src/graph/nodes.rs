//! Graphs under construction: nodes and edges.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::params::ExposedParams;
use crate::handle::{GraphId, NodeId, UserObjectId};
use crate::work::Work;

/// A graph: its nodes and edges in the order in which they came.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) edges: Vec<Edge>,
    /// The node whose child or body it is.
    pub(crate) owner: Option<NodeId>,
    /// Whether it is the body of a conditional node, in which fewer types of node are allowed.
    pub(crate) body: bool,
    /// The conditions that were made for it.
    pub(crate) conditions: Vec<Condition>,
    /// The objects of the program that it keeps alive, each as often as it was given.
    pub(crate) objects: Vec<UserObjectId>,
}

/// A condition made for a graph.
#[derive(Clone)]
pub(crate) struct Condition {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) cell: Arc<AtomicU32>,
    /// The value that every launch begins with, if it does.
    pub(crate) default: Option<u32>,
    /// Whether a node reads it.
    pub(crate) used: bool,
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
    /// The launch attributes that the program has set.
    pub(crate) attributes: Attributes,
}

/// Values of launch attributes, by number.
pub(crate) type Attributes = BTreeMap<c_int, CUlaunchAttributeValue>;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Content {
    Work(Work),
    /// A graph that belongs to the node.
    Child(GraphId),
    Conditional(Conditional),
}

/// A conditional node: its condition, and the graphs that belong to it.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<GraphId>,
    /// Their handles, as the program was shown them.
    pub(crate) shown: Arc<[CUgraph]>,
}

impl Content {
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Work(work) => work.node_type(),
            Self::Child(_) => CUgraphNodeType::GRAPH,
            Self::Conditional(_) => CUgraphNodeType::CONDITIONAL,
        }
    }

    /// The graphs that belong to the node.
    pub(crate) fn graphs(&self) -> &[GraphId] {
        match self {
            Self::Work(_) => &[],
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
        }
    }

    /// Whether it is conditional.
    pub(crate) fn is_conditional(&self) -> bool {
        matches!(self, Self::Conditional(_))
    }

    /// Whether it allocates or frees memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Work(Work::Alloc(_) | Work::Free(_)))
    }

    /// The label in messages and pictures.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Work(work) => work.name(),
            Self::Child(_) => "a child graph",
            Self::Conditional(_) => "a conditional node",
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
        _ => refuse(
            CUresult::INVALID_VALUE,
            format!("an edge of data {data:?} between these nodes"),
        ),
    }
}
