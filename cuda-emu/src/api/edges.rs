//! Edges of graphs, and queries about nodes and edges.

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{EdgeData, GraphEdge, NodeContent, check_edge};
use crate::handle::NodeId;
use crate::machine::Machine;
use crate::state::DriverState;

exports! {
    table {
        10000 cuGraphAddDependencies cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) => add_edges;
        10000 cuGraphGetNodes cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => get_nodes;
        10000 cuGraphGetEdges cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) => get_edges;
        12030 cuGraphAddDependencies cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) => add_edges_with_data;
        12030 cuGraphGetEdges cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_edges_with_data;
        10000 cuGraphRemoveDependencies cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) => remove_edges;
        12030 cuGraphRemoveDependencies cuGraphRemoveDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) => remove_edges_with_data;
        10000 cuGraphGetRootNodes cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => get_roots;
        10000 cuGraphNodeGetDependencies cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => get_before;
        12030 cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_before_with_data;
        10000 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => get_after;
        12030 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_after_with_data;
    }
    more {}
}

/// Returns the data of `count` edges. NULL means full dependencies.
pub(crate) fn edge_data(edges: In<CUgraphEdgeData>, count: usize) -> Result<Vec<EdgeData>> {
    if edges.is_null() {
        return Ok(vec![[0; 3]; count]);
    }
    let plain = |e: &CUgraphEdgeData| {
        require(e.reserved == [0; 5], || {
            "reserved bytes of an edge are not zero".into()
        })?;
        Ok([e.from_port, e.to_port, e.r#type])
    };
    edges.slice(count)?.iter().map(plain).collect()
}

/// Returns the pairs of nodes that a caller lists as edges.
fn pairs(
    s: &DriverState,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result<Vec<(NodeId, NodeId)>> {
    let graph = s.graphs.find(graph)?;
    let node = |handle: &CUgraphNode| -> Result<NodeId> {
        let id = s.nodes.find(*handle)?;
        require(s.nodes[id].graph == graph, || {
            format!("{id:?} is a node of another graph")
        })?;
        Ok(id)
    };
    let ends = from.slice(count)?.iter().zip(to.slice(count)?);
    ends.map(|(from, to)| Ok((node(from)?, node(to)?)))
        .collect()
}

fn add_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result {
    add_edges_with_data(m, graph, from, to, In::null(), count)
}

/// Adds all edges or none. An edge that creates a cycle is found when the graph is instantiated.
fn add_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Result {
    let mut s = m.state();
    let pairs = pairs(&s, graph, from, to, count)?;
    let datas = edge_data(edges, count)?;
    let id = s.graphs.find(graph)?;

    // Edges are added to a copy, so that an error leaves the graph unchanged.
    let mut all = s.graphs[id].edges.clone();
    for (&(from, to), data) in pairs.iter().zip(datas) {
        require(from != to, || {
            format!("the node {from:?} cannot depend on itself")
        })?;
        let known = all.iter().any(|e| (e.from, e.to) == (from, to));
        require(!known, || {
            format!("the edge from {from:?} to {to:?} exists already")
        })?;
        check_edge(&s.nodes[from].content, &s.nodes[to].content, data)?;
        all.push(GraphEdge { from, to, data });
    }

    s.graphs[id].edges = all;
    Ok(())
}

fn remove_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result {
    let mut s = m.state();
    let pairs = pairs(&s, graph, from, to, count)?;
    let id = s.graphs.find(graph)?;
    require(!s.has_node(id, NodeContent::is_memory), || {
        "edges of a graph that allocates or frees memory cannot be removed".into()
    })?;
    let edges = &mut s.graphs[id].edges;
    for pair in &pairs {
        require(edges.iter().any(|e| (e.from, e.to) == *pair), || {
            format!("the edge {pair:?} does not exist")
        })?;
    }

    edges.retain(|e| !pairs.contains(&(e.from, e.to)));
    Ok(())
}

fn remove_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    _edges: In<CUgraphEdgeData>,
    count: usize,
) -> Result {
    remove_edges(m, graph, from, to, count)
}

/// Writes a list as the driver does.
///
/// Without an array it writes the length. Otherwise it writes as much as fits and fills the rest
/// with NULL.
fn write_list(items: &[CUgraphNode], nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    require(!count.is_null(), || "the count pointer is NULL".into())?;
    if nodes.is_null() {
        return count.set(items.len());
    }

    let room = count.get()?;
    nodes.set_all(
        items
            .iter()
            .copied()
            .chain(std::iter::repeat(CUgraphNode::NULL))
            .take(room),
    );
    count.set(items.len().min(room))
}

fn handles(ids: impl Iterator<Item = NodeId>) -> Vec<CUgraphNode> {
    ids.map(NodeId::handle).collect()
}

fn get_nodes(
    m: &'static Machine,
    graph: CUgraph,
    nodes: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let graph = &s.graphs[s.graphs.find(graph)?];
    write_list(&handles(graph.nodes.iter().copied()), nodes, count)
}

fn get_roots(
    m: &'static Machine,
    graph: CUgraph,
    nodes: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let graph = &s.graphs[s.graphs.find(graph)?];
    let root = |id: &NodeId| graph.edges.iter().all(|e| e.to != *id);
    write_list(
        &handles(graph.nodes.iter().copied().filter(root)),
        nodes,
        count,
    )
}

/// One end of each edge: the array to write, and a function that selects the end.
type Ends<'a> = (Out<'a, CUgraphNode>, fn(&GraphEdge) -> NodeId);

/// Writes edges as lists of their ends. Returns an error if edge data would be lost.
fn write_edges(
    edges: &[&GraphEdge],
    lists: &[Ends],
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    require(!count.is_null(), || "the count pointer is NULL".into())?;
    if lists.iter().any(|(list, _)| list.is_null()) {
        return count.set(edges.len());
    }

    // A query for the count alone, above, loses nothing.
    if data.is_null() && edges.iter().any(|e| e.data != [0; 3]) {
        return refuse(
            CUresult::LOSSY_QUERY,
            "the graph has edge data, which this query would lose",
        );
    }

    let room = count.get()?;
    for (list, end) in lists {
        let ends = edges.iter().map(|e| end(e).handle());
        list.set_all(ends.chain(std::iter::repeat(CUgraphNode::NULL)).take(room));
    }

    if !data.is_null() {
        data.set_all(edges.iter().map(|e| shown_edge(e.data)).take(room));
    }

    count.set(edges.len().min(room))
}

/// Returns edge data as the structure of the API.
pub(crate) fn shown_edge([from_port, to_port, r#type]: EdgeData) -> CUgraphEdgeData {
    CUgraphEdgeData {
        from_port,
        to_port,
        r#type,
        reserved: [0; 5],
    }
}

fn get_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    get_edges_with_data(m, graph, from, to, Out::null(), count)
}

fn get_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    require(from.is_null() == to.is_null(), || {
        "one of the two arrays is NULL".into()
    })?;
    require(data.is_null() || !from.is_null(), || {
        "edge data is requested without the edges".into()
    })?;
    let s = m.state();
    let edges: Vec<&GraphEdge> = s.graphs[s.graphs.find(graph)?].edges.iter().collect();
    write_edges(&edges, &[(from, |e| e.from), (to, |e| e.to)], data, count)
}

fn get_before(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    get_before_with_data(m, node, nodes, Out::null(), count)
}

fn get_before_with_data(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let id = s.nodes.find(node)?;
    let edges: Vec<&GraphEdge> = s.graphs[s.nodes[id].graph]
        .edges
        .iter()
        .filter(|e| e.to == id)
        .collect();
    write_edges(&edges, &[(nodes, |e| e.from)], data, count)
}

fn get_after(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    get_after_with_data(m, node, nodes, Out::null(), count)
}

fn get_after_with_data(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let id = s.nodes.find(node)?;
    let edges: Vec<&GraphEdge> = s.graphs[s.nodes[id].graph]
        .edges
        .iter()
        .filter(|e| e.from == id)
        .collect();
    write_edges(&edges, &[(nodes, |e| e.to)], data, count)
}
