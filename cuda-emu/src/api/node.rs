//! Nodes of graphs under construction: adding and destroying them.

use std::ffi::c_uint;

use warpwright_driver_sys::*;

use crate::api::edges::edge_data;
use crate::api::export::exports;
use crate::api::node_content::{
    alloc_content, any_content, child_content, copy_content, fill_content, free_content,
    host_content, kernel_content, record_content, wait_content, words_content,
};
use crate::error::{Result, require};
use crate::ffi::kernel_node::{KernelNodeVersion, kernel_params};
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{EdgeData, GraphCondition, NodeContent, check_edge};
use crate::handle::{GraphId, NodeId};
use crate::machine::Machine;
use crate::state::DriverState;
use crate::work::StreamWork;

exports! {
    table {
        12000 cuGraphAddKernelNode cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => add_kernel;
        10000 cuGraphAddKernelNode cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => add_kernel;
        10000 cuGraphAddMemcpyNode cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) => add_copy;
        10000 cuGraphAddMemsetNode cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) => add_fill;
        10000 cuGraphAddEmptyNode cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) => add_empty;
        10000 cuGraphAddHostNode cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1) => add_host;
        10000 cuGraphAddChildGraphNode cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) => add_child;
        11010 cuGraphAddEventRecordNode cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_record;
        11010 cuGraphAddEventWaitNode cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_wait;
        11040 cuGraphAddMemAllocNode cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1) => add_alloc;
        11040 cuGraphAddMemFreeNode cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, address: CUdeviceptr) => add_free;
        11070 cuGraphAddBatchMemOpNode cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) => add_words;
        12030 cuGraphAddNode cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams) => add_any;
        12020 cuGraphAddNode cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) => add_any_plain;
        12030 cuGraphConditionalHandleCreate cuGraphConditionalHandleCreate(handle: *mut CUgraphConditionalHandle, graph: CUgraph, context: CUcontext, default: c_uint, flags: CUgraphConditional_flags) => create_condition;
        10000 cuGraphDestroyNode cuGraphDestroyNode(node: CUgraphNode) => destroy_node;
    }
    more {}
}

/// The position of a new node: the arguments that every function that adds a node begins with.
struct NewNode<'a> {
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    edges: In<'a, CUgraphEdgeData>,
    count: usize,
}

impl NewNode<'_> {
    /// Adds the node that `content` returns, after all checks.
    fn add(
        self,
        m: &'static Machine,
        content: impl FnOnce(&mut DriverState) -> Result<NodeContent>,
    ) -> Result {
        let mut s = m.state();
        let graph = s.graphs.find(self.graph)?;
        require(!self.node.is_null(), || "the result pointer is NULL".into())?;
        let after = dependencies(&s, graph, self.after, self.edges, self.count)?;
        let content = content(&mut s)?;
        check_body(&s, graph, &content)?;
        for &(from, data) in &after {
            check_edge(&s.nodes[from].content, &content, data)?;
        }

        self.node.set(s.add_node(graph, &after, content).handle())
    }
}

/// Returns an error for content that the body of a conditional node cannot have.
fn check_body(s: &DriverState, graph: GraphId, content: &NodeContent) -> Result {
    use CUgraphNodeType as T;
    let kind = content.node_type();
    let plain = matches!(
        kind,
        T::KERNEL | T::EMPTY | T::GRAPH | T::MEMSET | T::MEMCPY | T::CONDITIONAL
    );
    let together =
        matches!(content, NodeContent::Work(StreamWork::Kernel(kernel)) if kernel.cooperative);
    require(!s.graphs[graph].body || plain && !together, || {
        format!("the body of a conditional node cannot have a node of type {kind:?}")
    })
}

/// Returns a position with full dependencies.
fn plain<'a>(
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    count: usize,
) -> NewNode<'a> {
    NewNode {
        node,
        graph,
        after,
        edges: In::null(),
        count,
    }
}

fn add_kernel<P: KernelNodeVersion>(
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

/// Returns an error if the context of a copy or fill node does not exist or has failed. NULL is the
/// current one.
fn check_context(s: &DriverState, context: CUcontext) -> Result {
    let id = if context.is_null() {
        s.current()?
    } else {
        s.contexts.find(context)?
    };
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
    plain(node, graph, after, count).add(m, |_| Ok(NodeContent::Work(StreamWork::Empty)))
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

/// Adds a node that allocates memory, and writes the address.
fn add_alloc(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS_v1>,
) -> Result {
    let mut p = params.get()?;
    let mut made = 0;
    plain(node, graph, after, count).add(m, |s| {
        let content = alloc_content(s, &p)?;
        made = address_of(&content);
        Ok(content)
    })?;
    p.dptr = made;
    params.set(p)
}

/// Returns the address of the memory that a node allocates.
fn address_of(content: &NodeContent) -> u64 {
    if let NodeContent::Work(StreamWork::Alloc(made)) = content {
        made.base
    } else {
        0
    }
}

fn add_free(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    address: CUdeviceptr,
) -> Result {
    plain(node, graph, after, count).add(m, |s| free_content(s, address))
}

fn add_words(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1>,
) -> Result {
    let params = params.get()?;
    plain(node, graph, after, count).add(m, |s| words_content(s, &params))
}

fn create_condition(
    m: &'static Machine,
    handle: Out<CUgraphConditionalHandle>,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: CUgraphConditional_flags,
) -> Result {
    let assign = CUgraphConditional_flags::ASSIGN_DEFAULT;
    require(assign.contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })?;
    require(!handle.is_null(), || "the result pointer is NULL".into())?;
    let mut s = m.state();
    let graph = s.graphs.find(graph)?;
    check_context(&s, context)?;
    let (made, cell) = m.device.conditions.create(default);
    let default = flags.contains(assign).then_some(default);
    s.graphs[graph].conditions.push(GraphCondition {
        handle: made,
        cell,
        default,
        used: false,
    });
    handle.set(made)
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
    let mut p = params.get()?;
    let mut made = None;
    NewNode {
        node,
        graph,
        after,
        edges,
        count,
    }
    .add(m, |s| {
        let content = any_content(s, Some(graph), &p)?;
        made = Some(content.clone());
        Ok(content)
    })?;

    // The driver returns the bodies of a conditional node, or the address of memory, in the
    // parameters.
    match &made {
        Some(NodeContent::Conditional(made)) => p.params[2] = made.shown.as_ptr() as u64,
        Some(NodeContent::Work(StreamWork::Alloc(made))) => p.params[14] = made.base,
        _ => return Ok(()),
    }

    params.set(p)
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

fn destroy_node(m: &'static Machine, node: CUgraphNode) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let graph = s.nodes[id].graph;
    require(!s.has_node(graph, NodeContent::is_memory), || {
        "nodes of a graph that allocates or frees memory cannot be removed".into()
    })?;

    // A condition whose node is gone counts as unused, so the graph cannot be instantiated. Driver
    // 580 on an H100 does the same.
    if let NodeContent::Conditional(conditional) = &s.nodes[id].content {
        let handle = conditional.handle;
        for condition in &mut s.graphs[graph].conditions {
            if condition.handle == handle {
                condition.used = false;
            }
        }
    }

    let graph = &mut s.graphs[graph];
    graph.nodes.retain(|&other| other != id);
    graph.edges.retain(|e| e.from != id && e.to != id);
    s.remove_node(id);
    Ok(())
}

/// Returns the nodes that a caller lists as dependencies, with their edge data. Each must be a
/// different node of this graph.
fn dependencies(
    s: &DriverState,
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
        require(s.nodes[id].graph == graph, || {
            format!("the dependency {id:?} is a node of another graph")
        })?;
        require(found.iter().all(|(other, _)| *other != id), || {
            format!("the dependency {id:?} repeats")
        })?;
        found.push((id, data));
    }

    Ok(found)
}
