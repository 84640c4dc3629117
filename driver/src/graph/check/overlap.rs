//! Checks that the kernels of a programmatic edge may overlap, and that the driver made the edges.

use driver_sys::{CUgraphEdgeData, CUgraphNode};

use crate::error::Error;
use crate::graph::{Edge, EdgeKind, Graph, Node, NodeId, NodeKind};
use crate::stream::Work;

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

/// Compares the edges with those that the driver reports.
///
/// A bulk call with two kinds of edges was observed to give all edges the first kind. A full
/// edge in place of a programmatic one would only be slower, but the other way round it would
/// be a race.
pub(crate) fn expect_edges_as_told(graph: &Graph) -> Result<(), Error> {
    let driver = graph.context().driver();
    let Some(get) = driver
        .api()
        .cuGraphGetEdges_v2
        .filter(|_| graph.programmatic_edges() > 0)
    else {
        return Ok(());
    };

    let _current = graph.context().enter()?;
    let (raw_graph, _calls) = graph.raw.begin()?;

    // One more element than expected, so that an additional edge is noticed.
    let mut count = graph.edges.len() + 1;
    let mut from = vec![CUgraphNode::NULL; count];
    let mut to = vec![CUgraphNode::NULL; count];
    let mut data = vec![CUgraphEdgeData::zeroed(); count];

    // SAFETY: the three arrays have `count` elements. The reference keeps the graph alive, which is
    // locked.
    let code = unsafe {
        get(
            raw_graph,
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
    let raw = |node: NodeId| graph.nodes[node.index].raw.0 as usize;
    let is_reported = |e: &Edge| {
        reported
            .binary_search(&(raw(e.from), raw(e.to), e.kind))
            .is_ok()
    };
    let missing = graph.edges.iter().find(|e| !is_reported(e));
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
