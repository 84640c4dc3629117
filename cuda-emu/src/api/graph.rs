//! Graphs under construction: creating, destroying, cloning and printing them.

use std::ffi::{c_char, c_uint};

use warpwright_driver_sys::*;

use crate::api::dot;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{GraphContent, NodeContent};
use crate::machine::Machine;
use crate::state::capture;

exports! {
    table {
        10000 cuGraphCreate cuGraphCreate(graph: *mut CUgraph, flags: c_uint) => create;
        10000 cuGraphDestroy cuGraphDestroy(graph: CUgraph) => destroy;
        10000 cuGraphClone cuGraphClone(clone: *mut CUgraph, original: CUgraph) => clone_graph;
        11030 cuGraphDebugDotPrint cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: CUgraphDebugDot_flags) => print_dot;
        10000 cuGraphNodeFindInClone cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) => find_in_clone;
    }
    more {}
}

fn create(m: &'static Machine, graph: Out<CUgraph>, flags: c_uint) -> Result {
    require(flags == 0 && !graph.is_null(), || {
        format!("flags {flags}, or the result pointer is NULL")
    })?;
    graph.set(m.state().graphs.insert(GraphContent::default()).handle())
}

fn destroy(m: &'static Machine, graph: CUgraph) -> Result {
    let mut s = m.state();
    let id = s.graphs.find(graph)?;
    capture::refuse_unsafe(&mut s)?;
    require(s.graphs[id].owner.is_none(), || {
        "the graph belongs to a child node".into()
    })?;
    require(s.captures.values().all(|c| c.graph != id), || {
        "the graph belongs to a capture".into()
    })?;
    s.destroy_graph(id);
    Ok(())
}

fn clone_graph(m: &'static Machine, clone: Out<CUgraph>, original: CUgraph) -> Result {
    let mut s = m.state();
    let id = s.graphs.find(original)?;
    require(!clone.is_null(), || "the result pointer is NULL".into())?;
    let fixed = |content: &NodeContent| content.is_conditional() || content.is_memory();
    require(!s.has_node(id, fixed), || {
        "a graph with conditional nodes, or nodes that allocate or free memory, cannot be cloned"
            .into()
    })?;
    clone.set(s.copy_graph(id).handle())
}

fn find_in_clone(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    original: CUgraphNode,
    clone: CUgraph,
) -> Result {
    let s = m.state();
    let original = s.nodes.find(original)?;
    let clone = s.graphs.find(clone)?;
    let found = s.graphs[clone]
        .nodes
        .iter()
        .find(|&&id| s.nodes[id].original == Some(original));
    match found {
        Some(found) => node.set(found.handle()),
        None => refuse(
            CUresult::INVALID_VALUE,
            "the graph has no copy of that node",
        ),
    }
}

fn print_dot(
    m: &'static Machine,
    graph: CUgraph,
    path: In<c_char>,
    flags: CUgraphDebugDot_flags,
) -> Result {
    let s = m.state();
    let text = dot::print(&s, s.graphs.find(graph)?, flags);
    let path = path.text()?;
    std::fs::write(path, text)
        .or_else(|error| refuse(CUresult::OPERATING_SYSTEM, format!("{path}: {error}")))
}
