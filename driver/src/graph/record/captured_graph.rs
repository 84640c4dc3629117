//! Turns the driver's graph of a capture into a [`Graph`].

use std::sync::Arc;

use driver_sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType};

use crate::device::Context;
use crate::error::Error;
use crate::graph::raw_graph::Owner;
use crate::graph::{Child, EdgeKind, Graph, NodeKind};
use crate::stream::Work;

/// A graph that was launched into a capture, and its node if the driver reported one.
pub(crate) struct LaunchedChild {
    pub(crate) node: Option<CUgraphNode>,
    pub(crate) child: Child,
}

/// An operation that was pushed into a capture, and its node, which is null if the driver reported
/// none.
#[derive(Debug)]
pub(crate) struct PushedWork {
    pub(crate) node: CUgraphNode,
    pub(crate) work: Work,
}

/// Adds the nodes and edges of a captured graph to `graph`.
///
/// The operations of this crate come first, in the order of pushing. Nodes of other code follow.
pub(crate) fn adopt(
    mut graph: Graph,
    raw: CUgraph,
    pushed: Vec<PushedWork>,
    launched: Vec<LaunchedChild>,
) -> Result<Graph, Error> {
    let context = &graph.context().clone();
    let _current = context.enter()?;
    let shown = nodes_of(context, raw)?;
    let mut placed: Vec<CUgraphNode> = graph.nodes().iter().map(|node| node.raw).collect();
    let known = placed.len();
    for PushedWork { node, work } in pushed {
        if shown.contains(&node) && !placed.contains(&node) {
            graph.push_node(node, NodeKind::Work(work));
            placed.push(node);
        } else {
            // The node of this operation is unknown, for example because a copy of 0 bytes has
            // none, or because the driver did not report it. The graph may still use the objects
            // of the operation, so it keeps them.
            graph.own([Arc::new(work) as Owner]);
        }
    }

    for LaunchedChild { node, child } in launched {
        match node.filter(|node| shown.contains(node) && !placed.contains(node)) {
            Some(node) => {
                graph.push_node(node, NodeKind::Child(child));
                placed.push(node);
            }
            None => graph.own([Arc::new(child) as Owner]),
        }
    }

    for node in shown {
        if !placed.contains(&node) {
            graph.push_node(node, kind_of(context, node)?);
            placed.push(node);
        }
    }

    let index = |node: CUgraphNode| placed.iter().position(|p| *p == node);
    let edges = edges_of(context, raw)?;
    let edges = edges
        .into_iter()
        .filter_map(|(a, b, kind)| Some((index(a)?, index(b)?, kind)));

    // Edges between nodes that existed before the capture are known already.
    graph.push_edges(edges.filter(|(_, to, _)| *to >= known));
    Ok(graph)
}

fn nodes_of(context: &Context, graph: CUgraph) -> Result<Vec<CUgraphNode>, Error> {
    let mut count = 0;

    // SAFETY: without an array the call writes only the count. The caller owns the graph.
    unsafe {
        cu_optional!(
            context.driver(),
            cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count)
        )
    }?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: the array has `count` elements. The caller owns the graph.
        unsafe {
            cu_optional!(
                context.driver(),
                cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)
            )
        }?;
    }

    Ok(nodes)
}

fn edges_of(
    context: &Context,
    graph: CUgraph,
) -> Result<Vec<(CUgraphNode, CUgraphNode, EdgeKind)>, Error> {
    let null = std::ptr::null_mut();
    let mut count = 0;

    // SAFETY: without arrays the call writes only the count. The caller owns the graph.
    unsafe {
        cu_optional!(
            context.driver(),
            cuGraphGetEdges(graph, null, null, &mut count)
        )
    }?;
    let mut from = vec![CUgraphNode::NULL; count];
    let mut to = vec![CUgraphNode::NULL; count];
    let mut data = vec![CUgraphEdgeData::zeroed(); count];
    if count > 0 {
        let driver = context.driver();
        let from = from.as_mut_ptr();
        let to = to.as_mut_ptr();

        // Other code may have created programmatic edges, and the older call returns an error for
        // them.
        if let Some(get) = driver.api().cuGraphGetEdges_v2 {
            // SAFETY: the three arrays have `count` elements each.
            let code = unsafe { get(graph, from, to, data.as_mut_ptr(), &mut count) };
            driver.check("cuGraphGetEdges_v2", code)?;
        } else {
            // SAFETY: both arrays have `count` elements.
            unsafe { cu_optional!(driver, cuGraphGetEdges(graph, from, to, &mut count)) }?;
        }
    }

    let kinds = data.iter().map(EdgeKind::from_data);
    Ok(from
        .into_iter()
        .zip(to)
        .zip(kinds)
        .map(|((from, to), kind)| (from, to, kind))
        .collect())
}

/// Returns the kind of a node that this crate did not add.
fn kind_of(context: &Context, node: CUgraphNode) -> Result<NodeKind, Error> {
    let mut kind = CUgraphNodeType::EMPTY;
    // SAFETY: `kind` is a local variable that the driver may write. The graph of the node is alive.
    unsafe { cu_optional!(context.driver(), cuGraphNodeGetType(node, &mut kind)) }?;
    Ok(match kind {
        CUgraphNodeType::EMPTY => NodeKind::Empty,
        other => NodeKind::Other(other),
    })
}
