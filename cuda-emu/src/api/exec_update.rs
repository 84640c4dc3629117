//! In-place changes of executable graphs.

use std::ffi::c_uint;
use std::sync::{Arc, OnceLock};

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::node_content::{
    any_content, child_content, copy_content, fill_content, host_content, kernel_content,
    record_content, wait_content, words_content,
};
use crate::api::node_params::copy_of;
use crate::error::{Result, refuse, require};
use crate::ffi::kernel_node::{KernelNodeVersion, kernel_params};
use crate::ffi::pointer::{In, Out};
use crate::graph::difference::{GraphDifference, difference, unlike};
use crate::graph::draft::{DraftContent, Unfolding};
use crate::graph::nodes::NodeContent;
use crate::handle::{ExecId, GraphId, NodeId};
use crate::machine::Machine;
use crate::state::DriverState;
use crate::state::objects::Exec;
use crate::work::StreamWork;

exports! {
    table {
        12000 cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => set_kernel;
        10010 cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => set_kernel;
        12000 cuGraphExecUpdate cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) => update;
        10020 cuGraphExecUpdate cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult) => update_v1;
        11060 cuGraphNodeSetEnabled cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) => set_enabled;
        11060 cuGraphNodeGetEnabled cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) => get_enabled;
        10020 cuGraphExecMemcpyNodeSetParams cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) => set_copy;
        10020 cuGraphExecMemsetNodeSetParams cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) => set_fill;
        10020 cuGraphExecHostNodeSetParams cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS_v1) => set_host;
        11010 cuGraphExecChildGraphNodeSetParams cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) => set_child;
        11010 cuGraphExecEventRecordNodeSetEvent cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) => set_record;
        11010 cuGraphExecEventWaitNodeSetEvent cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) => set_wait;
        11070 cuGraphExecBatchMemOpNodeSetParams cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) => set_words;
        12020 cuGraphExecNodeSetParams cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) => set_any;
    }
    more {}
}

/// Returns the step of a node, which must still exist.
fn step_of(s: &DriverState, exec: CUgraphExec, node: CUgraphNode) -> Result<(ExecId, usize)> {
    let exec = s.execs.find(exec)?;
    let node = s.nodes.find(node)?;
    match s.execs[exec].of_node.get(&node) {
        Some(&step) => Ok((exec, step)),
        None => refuse(
            CUresult::INVALID_VALUE,
            "the executable graph was not instantiated from that node",
        ),
    }
}

/// Changes the work of a step for later launches. Launches in flight keep the old steps.
fn replace(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    content: impl FnOnce(&mut DriverState) -> Result<NodeContent>,
) -> Result {
    let mut s = m.state();
    let (id, step) = step_of(&s, exec, node)?;
    let work = match content(&mut s)? {
        NodeContent::Work(work) => work,
        // The graph was copied for this call only.
        NodeContent::Child(child) => {
            let changed = replace_child(&mut s, id, node, step, child);
            s.destroy_graph(child);
            return changed;
        }
        NodeContent::Conditional(_) => {
            return refuse(
                CUresult::INVALID_VALUE,
                "a conditional node cannot be changed",
            );
        }
    };
    let old = &s.execs[id].steps[step].work;
    let work = match (old, work) {
        (StreamWork::Kernel(old), StreamWork::Kernel(new))
            if old.cooperative || old.cluster.is_some() =>
        {
            StreamWork::Kernel(Arc::new(s.launched_as(copy_of(&new), old)?))
        }
        (_, work) => work,
    };
    let old = &s.execs[id].steps[step].work;
    if let Some((_, why)) = unlike(old, &work) {
        return refuse(CUresult::INVALID_VALUE, why);
    }

    change(&mut s.execs[id], step, work);
    Ok(())
}

/// Replaces the work in the steps of a child graph by that of another graph with the same shape.
fn replace_child(
    s: &mut DriverState,
    exec: ExecId,
    node: CUgraphNode,
    step: usize,
    child: GraphId,
) -> Result {
    let id = s.nodes.find(node)?;
    let new = s.draft(child);
    let drafts = s.execs[exec].draft.all();
    let old = drafts
        .iter()
        .flat_map(|draft| &draft.nodes)
        .find(|node| node.id == id);
    let Some(DraftContent::Child(old)) = old.map(|node| &node.content) else {
        return refuse(
            CUresult::INVALID_VALUE,
            "the node is not a child graph node",
        );
    };

    if let Some(GraphDifference { why, .. }) = difference(old, &new) {
        return refuse(CUresult::INVALID_VALUE, why);
    }

    // The first step of a child node is empty, and the steps of the child graph follow it.
    for (i, new) in Unfolding::of(&new).steps.into_iter().enumerate() {
        change(&mut s.execs[exec], step + 1 + i, new.work);
    }

    Ok(())
}

fn change(exec: &mut Exec, step: usize, work: StreamWork) {
    if exec.steps[step].work != work {
        let step = &mut Arc::make_mut(&mut exec.steps)[step];
        step.work = work;
        step.touched = OnceLock::new();
    }
}

fn set_kernel<P: KernelNodeVersion>(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<P>,
) -> Result {
    let params = kernel_params(params)?;
    replace(m, exec, node, |s| kernel_content(s, params))
}

fn set_copy(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMCPY3D_v2>,
    _context: CUcontext,
) -> Result {
    let copy = copy_content(m.device, params)?;
    replace(m, exec, node, |_| Ok(copy))
}

fn set_fill(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
    _context: CUcontext,
) -> Result {
    let fill = fill_content(m.device, params)?;
    replace(m, exec, node, |_| Ok(fill))
}

fn set_host(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_HOST_NODE_PARAMS_v1>,
) -> Result {
    let host = host_content(params)?;
    replace(m, exec, node, |_| Ok(host))
}

fn set_child(m: &'static Machine, exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Result {
    replace(m, exec, node, |s| child_content(s, CUgraph::NULL, child))
}

fn set_record(m: &'static Machine, exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Result {
    replace(m, exec, node, |s| record_content(s, event))
}

fn set_wait(m: &'static Machine, exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Result {
    replace(m, exec, node, |s| wait_content(s, event))
}

fn set_words(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1>,
) -> Result {
    let params = params.get()?;
    replace(m, exec, node, |s| words_content(s, &params))
}

fn set_any(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: Out<CUgraphNodeParams>,
) -> Result {
    let params = params.get()?;
    replace(m, exec, node, |s| any_content(s, None, &params))
}

fn set_enabled(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: c_uint,
) -> Result {
    let mut s = m.state();
    let (id, step) = switchable(&s, exec, node)?;
    let exec = &mut s.execs[id];
    let enabled = enabled != 0;
    if exec.steps[step].enabled != enabled {
        let step = &mut Arc::make_mut(&mut exec.steps)[step];
        step.enabled = enabled;
        // It was not compared with the steps that ran while it was disabled, so it is traced again.
        step.touched = OnceLock::new();
    }

    Ok(())
}

fn get_enabled(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: Out<c_uint>,
) -> Result {
    let s = m.state();
    let (id, step) = switchable(&s, exec, node)?;
    enabled.set(s.execs[id].steps[step].enabled.into())
}

/// Returns the step of a kernel, copy or fill node. No other node can be disabled.
fn switchable(s: &DriverState, exec: CUgraphExec, node: CUgraphNode) -> Result<(ExecId, usize)> {
    let (id, step) = step_of(s, exec, node)?;
    let kind = matches!(
        s.execs[id].steps[step].work,
        StreamWork::Kernel(_) | StreamWork::Copy(_) | StreamWork::Fill(_)
    );
    require(kind, || {
        "only kernel, memcpy and memset nodes can be disabled".into()
    })?;
    Ok((id, step))
}

fn update(
    m: &'static Machine,
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> Result {
    require(!info.is_null(), || "the result pointer is NULL".into())?;
    let found = update_exec(m, exec, graph)?;
    let node = |id: Option<NodeId>| id.map_or(CUgraphNode::NULL, NodeId::handle);
    let result = found
        .as_ref()
        .map_or(CUgraphExecUpdateResult::SUCCESS, |d| d.result);
    let (error, from) = found.as_ref().map_or((None, None), |d| (d.node, d.from));
    info.set(CUgraphExecUpdateResultInfo {
        result,
        errorNode: node(error),
        errorFromNode: node(from),
    })?;
    refuse_difference(found)
}

fn update_v1(
    m: &'static Machine,
    exec: CUgraphExec,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    result: Out<CUgraphExecUpdateResult>,
) -> Result {
    require(!result.is_null(), || "the result pointer is NULL".into())?;
    let found = update_exec(m, exec, graph)?;
    let node = found.as_ref().and_then(|d| d.node);
    error_node.set_if(node.map_or(CUgraphNode::NULL, NodeId::handle));
    result.set(
        found
            .as_ref()
            .map_or(CUgraphExecUpdateResult::SUCCESS, |d| d.result),
    )?;
    refuse_difference(found)
}

fn refuse_difference(found: Option<GraphDifference>) -> Result {
    match found {
        None => Ok(()),
        Some(GraphDifference { why, .. }) => refuse(CUresult::GRAPH_EXEC_UPDATE_FAILURE, why),
    }
}

/// Replaces the work of all steps by that of the graph's nodes, or none if the graphs differ.
fn update_exec(
    m: &'static Machine,
    exec: CUgraphExec,
    graph: CUgraph,
) -> Result<Option<GraphDifference>> {
    let mut s = m.state();
    let id = s.execs.find(exec)?;
    let new = s.draft(s.graphs.find(graph)?);
    if let Some(found) = difference(&s.execs[id].draft, &new) {
        return Ok(Some(found));
    }
    for (i, step) in Unfolding::of(&new).steps.into_iter().enumerate() {
        change(&mut s.execs[id], i, step.work);
    }

    let exec = &mut s.execs[id];
    exec.leaves = new.leaves();
    exec.takes = new.takes();
    exec.draft.defaults = new.defaults;
    Ok(None)
}
