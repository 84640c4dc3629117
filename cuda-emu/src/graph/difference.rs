//! Checks whether one graph can replace another in an executable graph.

use warpwright_driver_sys::CUgraphExecUpdateResult;

use crate::graph::draft::{Draft, DraftConditional, DraftContent, DraftNode};
use crate::handle::NodeId;
use crate::work::StreamWork;
use crate::work::copy::Location;

/// The reason why a graph does not fit an executable graph: the result code and up to two nodes.
pub(crate) struct GraphDifference {
    pub(crate) result: CUgraphExecUpdateResult,
    pub(crate) node: Option<NodeId>,
    pub(crate) from: Option<NodeId>,
    pub(crate) why: &'static str,
}

/// Pairs the nodes of two graphs in order and returns the first difference that prevents an update.
pub(crate) fn difference(old: &Draft, new: &Draft) -> Option<GraphDifference> {
    if old.nodes.len() != new.nodes.len() {
        return Some(GraphDifference {
            result: CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED,
            node: None,
            from: None,
            why: "the number of nodes differs",
        });
    }
    let mut pairs = old.nodes.iter().zip(&new.nodes);
    pairs.find_map(|(a, b)| edges_differ(new, a, b).or_else(|| content_differs(a, b)))
}

fn edges_differ(new: &Draft, a: &DraftNode, b: &DraftNode) -> Option<GraphDifference> {
    if a.after == b.after {
        return None;
    }

    let changed = b
        .after
        .iter()
        .enumerate()
        .find(|(i, edge)| a.after.get(*i) != Some(*edge));
    let from = changed.map(|(_, &(from, _))| new.nodes[from].id);
    Some(GraphDifference {
        result: CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED,
        node: Some(b.id),
        from,
        why: "the dependencies of a node differ",
    })
}

fn content_differs(a: &DraftNode, b: &DraftNode) -> Option<GraphDifference> {
    let (result, why) = match (&a.content, &b.content) {
        (DraftContent::Work(a), DraftContent::Work(work)) => unlike(a, work)?,
        (DraftContent::Child(a), DraftContent::Child(child)) => return difference(a, child),
        (DraftContent::Conditional(a), DraftContent::Conditional(new)) => {
            return bodies_differ(b.id, a, new);
        }
        _ => (
            CUgraphExecUpdateResult::ERROR_NODE_TYPE_CHANGED,
            "the type of a node differs",
        ),
    };
    Some(GraphDifference {
        result,
        node: Some(b.id),
        from: None,
        why,
    })
}

fn bodies_differ(
    node: NodeId,
    old: &DraftConditional,
    new: &DraftConditional,
) -> Option<GraphDifference> {
    if (old.kind, old.bodies.len()) != (new.kind, new.bodies.len()) {
        return Some(GraphDifference {
            result: CUgraphExecUpdateResult::ERROR_PARAMETERS_CHANGED,
            node: Some(node),
            from: None,
            why: "the kind or the bodies of a conditional node differ",
        });
    }
    old.bodies
        .iter()
        .zip(&new.bodies)
        .find_map(|(old, new)| difference(old, new))
}

/// Returns the reason why one piece of work cannot replace another, or `None` if it can.
pub(crate) fn unlike(
    old: &StreamWork,
    new: &StreamWork,
) -> Option<(CUgraphExecUpdateResult, &'static str)> {
    use CUgraphExecUpdateResult as R;
    let side = |place: &Location| matches!(place, Location::Device(_));
    match (old, new) {
        (StreamWork::Kernel(a), StreamWork::Kernel(b))
            if a.function.context != b.function.context =>
        {
            Some((
                R::ERROR_UNSUPPORTED_FUNCTION_CHANGE,
                "the function belongs to another context",
            ))
        }
        (StreamWork::Kernel(a), StreamWork::Kernel(b)) if a.cooperative != b.cooperative => Some((
            R::ERROR_ATTRIBUTES_CHANGED,
            "only one of the two launches is cooperative",
        )),
        (StreamWork::Kernel(a), StreamWork::Kernel(b)) if a.cluster != b.cluster => Some((
            R::ERROR_ATTRIBUTES_CHANGED,
            "the clusters of the two launches differ",
        )),
        (StreamWork::Alloc(a), StreamWork::Alloc(b))
            if (a.bytes, a.device) != (b.bytes, b.device) =>
        {
            Some((R::ERROR_PARAMETERS_CHANGED, "the memory allocated differs"))
        }
        // Addresses and sizes of a copy may change, but not the kind of memory on either side.
        (StreamWork::Copy(a), StreamWork::Copy(b))
            if (side(&a.to.place), side(&a.from.place))
                != (side(&b.to.place), side(&b.from.place)) =>
        {
            Some((
                R::ERROR_PARAMETERS_CHANGED,
                "the copy is between other kinds of memory",
            ))
        }
        _ if old.node_type() != new.node_type() => Some((
            R::ERROR_NODE_TYPE_CHANGED,
            "the parameters have another type than the node",
        )),
        _ => None,
    }
}
