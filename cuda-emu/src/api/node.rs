//! Nodes of graphs under construction.

use warpwright_driver_sys::*;

use crate::api::edges::edge_data;
use crate::api::export::exports;
use crate::api::node_content::{
    any_content, child_content, copy_content, fill_content, host_content, kernel_content, record_content,
    wait_content,
};
use crate::error::{Result, refuse, require};
use crate::ffi::kernel_node::{KernelNode, kernel_params};
use crate::ffi::params::ExposedParams;
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{Content, EdgeData, check_edge};
use crate::handle::{GraphId, NodeId};
use crate::machine::Machine;
use crate::state::State;
use crate::work::Work;

exports! {
    table {
        12000 cuGraphAddKernelNode cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => add_kernel;
        10000 cuGraphAddMemcpyNode cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) => add_copy;
        10000 cuGraphAddMemsetNode cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) => add_fill;
        10000 cuGraphAddEmptyNode cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) => add_empty;
        10000 cuGraphAddHostNode cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1) => add_host;
        10000 cuGraphAddChildGraphNode cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) => add_child;
        11010 cuGraphAddEventRecordNode cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_record;
        11010 cuGraphAddEventWaitNode cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_wait;
        10000 cuGraphNodeGetType cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) => get_type;
        12000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2) => get_kernel;
        12000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => set_kernel;
        12030 cuGraphAddNode cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams) => add_any;
        10000 cuGraphAddKernelNode cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => add_kernel;
        10000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) => get_kernel;
        10000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => set_kernel;
        12020 cuGraphAddNode cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) => add_any_plain;
        12020 cuGraphNodeSetParams cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) => set_any;
        10000 cuGraphMemcpyNodeSetParams cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2) => set_copy;
        10000 cuGraphMemsetNodeSetParams cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1) => set_fill;
        10000 cuGraphDestroyNode cuGraphDestroyNode(node: CUgraphNode) => destroy_node;
        10000 cuGraphChildGraphNodeGetGraph cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) => get_child;
    }
    more {}
}

/// Where a node goes: the arguments that every adder begins with.
struct NewNode<'a> {
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    edges: In<'a, CUgraphEdgeData>,
    count: usize,
}

impl NewNode<'_> {
    /// Adds the node that `content` makes, once everything about it is checked.
    fn add(self, m: &'static Machine, content: impl FnOnce(&mut State) -> Result<Content>) -> Result {
        let mut s = m.state();
        let graph = s.graphs.find(self.graph)?;
        require(!self.node.is_null(), || "the result pointer is NULL".into())?;
        let after = dependencies(&s, graph, self.after, self.edges, self.count)?;
        let content = content(&mut s)?;
        for &(from, data) in &after {
            check_edge(&s.nodes[from].content, &content, data)?;
        }
        self.node.set(s.add_node(graph, &after, content).handle())
    }
}

/// A position with full dependencies.
fn plain<'a>(
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    count: usize,
) -> NewNode<'a> {
    NewNode { node, graph, after, edges: In::null(), count }
}

fn add_kernel<P: KernelNode>(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<P>,
) -> Result {
    let params = kernel_params(params)?;
    plain(node, graph, after, count).add(m, |s| kernel_content(s, params))
}

/// The context of a copy or fill node must be one; NULL is the current one.
fn check_context(s: &State, context: CUcontext) -> Result {
    let id = if context.is_null() { s.current()? } else { s.contexts.find(context)? };
    Ok(s.contexts[id].sticky.check()?)
}

fn add_copy(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMCPY3D_v2>,
    context: CUcontext,
) -> Result {
    let copy = copy_content(m.device, params)?;
    plain(node, graph, after, count).add(m, |s| {
        check_context(s, context)?;
        Ok(copy)
    })
}

fn add_fill(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
    context: CUcontext,
) -> Result {
    let fill = fill_content(m.device, params)?;
    plain(node, graph, after, count).add(m, |s| {
        check_context(s, context)?;
        Ok(fill)
    })
}

fn add_empty(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
) -> Result {
    plain(node, graph, after, count).add(m, |_| Ok(Content::Work(Work::Empty)))
}

fn add_host(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS_v1>,
) -> Result {
    let callback = host_content(params)?;
    plain(node, graph, after, count).add(m, |_| Ok(callback))
}

fn add_child(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> Result {
    plain(node, graph, after, count).add(m, |s| child_content(s, graph, child))
}

fn add_record(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Result {
    plain(node, graph, after, count).add(m, |s| record_content(s, event))
}

fn add_wait(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Result {
    plain(node, graph, after, count).add(m, |s| wait_content(s, event))
}

fn add_any(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Result {
    let params = params.get()?;
    NewNode { node, graph, after, edges, count }.add(m, |s| any_content(s, Some(graph), &params))
}

fn add_any_plain(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Result {
    add_any(m, node, graph, after, In::null(), count, params)
}

/// Changes what a node does, but not its type.
fn replace(
    m: &'static Machine,
    node: CUgraphNode,
    content: impl FnOnce(&mut State) -> Result<Content>,
) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let content = content(&mut s)?;
    let same = content.node_type() == s.nodes[id].content.node_type();
    require(same, || "the parameters are of another type than the node".into())?;
    let node = &mut s.nodes[id];
    node.content = content;
    node.shown = None;
    Ok(())
}

fn set_kernel<P: KernelNode>(m: &'static Machine, node: CUgraphNode, params: In<P>) -> Result {
    let params = kernel_params(params)?;
    replace(m, node, |s| kernel_content(s, params))
}

fn set_copy(m: &'static Machine, node: CUgraphNode, params: In<CUDA_MEMCPY3D_v2>) -> Result {
    let copy = copy_content(m.device, params)?;
    replace(m, node, |_| Ok(copy))
}

fn set_fill(m: &'static Machine, node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS_v1>) -> Result {
    let fill = fill_content(m.device, params)?;
    replace(m, node, |_| Ok(fill))
}

fn set_any(m: &'static Machine, node: CUgraphNode, params: Out<CUgraphNodeParams>) -> Result {
    let params = params.get()?;
    replace(m, node, |s| any_content(s, None, &params))
}

fn get_kernel<P: KernelNode>(m: &'static Machine, node: CUgraphNode, params: Out<P>) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let node = &mut s.nodes[id];
    let Content::Work(Work::Kernel(kernel)) = &node.content else {
        return refuse(CUresult::INVALID_VALUE, "the node is no kernel node");
    };
    let shown = node.shown.get_or_insert_with(|| ExposedParams::new(&kernel.params, &kernel.function.params));
    params.set(P::filled(kernel.function.handle(), kernel.geometry, shown))
}

fn get_type(m: &'static Machine, node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Result {
    let s = m.state();
    kind.set(s.nodes[s.nodes.find(node)?].content.node_type())
}

fn get_child(m: &'static Machine, node: CUgraphNode, graph: Out<CUgraph>) -> Result {
    let s = m.state();
    match s.nodes[s.nodes.find(node)?].content {
        Content::Child(child) => graph.set(child.handle()),
        Content::Work(_) => refuse(CUresult::INVALID_VALUE, "the node is no child graph node"),
    }
}

fn destroy_node(m: &'static Machine, node: CUgraphNode) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let graph = s.nodes[id].graph;
    let graph = &mut s.graphs[graph];
    graph.nodes.retain(|&other| other != id);
    graph.edges.retain(|e| e.from != id && e.to != id);
    s.remove_node(id);
    Ok(())
}

/// The nodes that a caller lists as dependencies, with their edge data: of this graph, each once.
fn dependencies(
    s: &State,
    graph: GraphId,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<(NodeId, EdgeData)>> {
    let handles = after.slice(count)?;
    let datas = edge_data(edges, count)?;
    let mut found = Vec::with_capacity(count);
    for (&handle, data) in handles.iter().zip(datas) {
        let id = s.nodes.find(handle)?;
        require(s.nodes[id].graph == graph, || format!("the dependency {id:?} is a node of another graph"))?;
        require(found.iter().all(|(other, _)| *other != id), || format!("the dependency {id:?} repeats"))?;
        found.push((id, data));
    }
    Ok(found)
}
