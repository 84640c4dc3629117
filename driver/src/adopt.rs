//! What a capture made, as a graph of this crate.

use std::sync::Arc;

use driver_sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType};

use crate::graph::{Child, EdgeKind, NodeKind, Owner};
use crate::queue::Work;
use crate::{Context, Error, Graph};

/// A graph that was launched into a capture, and its node, if the driver told.
pub(crate) type Launched = (Option<CUgraphNode>, Child);

/// Makes a graph of what was captured: our work in the order of pushing, then what else the driver shows.
/// `graph` is what was there before.
pub(crate) fn adopt(
    mut graph: Graph,
    raw: CUgraph,
    pushed: Vec<(CUgraphNode, Work)>,
    launched: Vec<Launched>,
) -> Result<Graph, Error> {
    let context = &graph.context().clone();
    let _current = context.enter()?;
    let shown = nodes_of(context, raw)?;
    let mut placed: Vec<CUgraphNode> = graph.nodes().iter().map(|node| node.raw).collect();
    let known = placed.len();
    for (node, work) in pushed {
        if shown.contains(&node) && !placed.contains(&node) {
            graph.push_node(node, NodeKind::Work(work));
            placed.push(node);
        } else {
            // The driver shows no node of it, and still the graph may need what it names.
            graph.own([Arc::new(work) as Owner]);
        }
    }
    for (node, child) in launched {
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
    graph.push_edges(edges.filter(|(_, to, _)| *to >= known));
    Ok(graph)
}

fn nodes_of(context: &Context, graph: CUgraph) -> Result<Vec<CUgraphNode>, Error> {
    let mut count = 0;
    // SAFETY: without an array the call writes the number only.
    unsafe {
        cu_if_there!(
            context.driver(),
            cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count)
        )
    }?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: the array has room for that many.
        unsafe {
            cu_if_there!(
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
    let (null, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: without arrays the call writes the number only.
    unsafe {
        cu_if_there!(
            context.driver(),
            cuGraphGetEdges(graph, null, null, &mut count)
        )
    }?;
    let (mut from, mut to) = (
        vec![CUgraphNode::NULL; count],
        vec![CUgraphNode::NULL; count],
    );
    let mut data = vec![CUgraphEdgeData::zeroed(); count];
    if count > 0 {
        let (driver, from, to) = (context.driver(), from.as_mut_ptr(), to.as_mut_ptr());
        // Work that is not ours may have made programmatic edges, which the older call refuses to show.
        if let Some(get) = driver.api().cuGraphGetEdges_v2 {
            // SAFETY: the three arrays have room for that many.
            let code = unsafe { get(graph, from, to, data.as_mut_ptr(), &mut count) };
            driver.check("cuGraphGetEdges_v2", code)?;
        } else {
            // SAFETY: both arrays have room for that many.
            unsafe { cu_if_there!(driver, cuGraphGetEdges(graph, from, to, &mut count)) }?;
        }
    }
    let kinds = data.iter().map(EdgeKind::of);
    Ok(from
        .into_iter()
        .zip(to)
        .zip(kinds)
        .map(|((from, to), kind)| (from, to, kind))
        .collect())
}

/// What a node is that is not of our work.
fn kind_of(context: &Context, node: CUgraphNode) -> Result<NodeKind, Error> {
    let mut kind = CUgraphNodeType::EMPTY;
    // SAFETY: `kind` is ours to write; the node is of a graph that is alive.
    unsafe { cu_if_there!(context.driver(), cuGraphNodeGetType(node, &mut kind)) }?;
    Ok(match kind {
        CUgraphNodeType::EMPTY => NodeKind::Empty,
        other => NodeKind::Other(other),
    })
}
