//! Executable graphs: instantiation and launch.

use std::ffi::c_char;
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Error, Result, require};
use crate::ffi::pointer::Out;
use crate::graph::draft::{Draft, Unfolding};
use crate::graph::launch::GraphLaunch;
use crate::graph::nodes::Content;
use crate::handle::{ExecId, NodeId, StreamId};
use crate::machine::Machine;
use crate::queue::Task;
use crate::state::objects::Exec;
use crate::state::{State, capture};

exports! {
    table {
        11040 cuGraphInstantiateWithFlags cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) => instantiate_with_flags;
        11010 cuGraphUpload cuGraphUpload(exec: CUgraphExec, stream: CUstream) => upload;
        10000 cuGraphLaunch cuGraphLaunch(exec: CUgraphExec, stream: CUstream) => launch;
        10000 cuGraphExecDestroy cuGraphExecDestroy(exec: CUgraphExec) => destroy;
        12000 cuGraphInstantiateWithParams cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) => instantiate_with_params;
        12000 cuGraphExecGetFlags cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) => get_flags;
    }
    more {
        10000 cuGraphInstantiate cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_bytes: usize) => instantiate_with_log;
        11000 cuGraphInstantiate cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_bytes: usize) => instantiate_with_log;
    }
}

/// Instantiates a graph; when it cannot be, the node to blame and what kind of fault it is.
fn make(
    m: &'static Machine,
    graph: CUgraph,
    flags: CUgraphInstantiate_flags,
) -> Result<CUgraphExec, (Error, CUgraphNode, CUgraphInstantiateResult)> {
    let plain = |error| (error, CUgraphNode::NULL, CUgraphInstantiateResult::ERROR);
    let mut s = m.state();
    let id = s.graphs.find(graph).map_err(plain)?;
    s.context().map_err(plain)?;
    capture::refuse_unsafe(&mut s).map_err(plain)?;
    let known = CUgraphInstantiate_flags::all().contains(flags);
    require(known, || format!("the flags {:#x} are unknown", flags.bits())).map_err(plain)?;
    if flags.contains(CUgraphInstantiate_flags::DEVICE_LAUNCH) {
        let error = Error::new(CUresult::NOT_SUPPORTED, "launches from a kernel are not emulated");
        return Err((error, CUgraphNode::NULL, CUgraphInstantiateResult::NODE_OPERATION_NOT_SUPPORTED));
    }
    let draft = s.draft(id);
    let unfolded = Unfolding::of(&draft);
    if let Some(step) = unfolded.topology.stuck() {
        let node = unfolded.of_node.iter().find(|(_, at)| **at == step).map(|(id, _)| *id);
        let error = Error::new(CUresult::INVALID_VALUE, "the edges of the graph form a cycle");
        let node = node.map_or(CUgraphNode::NULL, NodeId::handle);
        return Err((error, node, CUgraphInstantiateResult::INVALID_STRUCTURE));
    }
    let Unfolding { steps, topology, of_node } = unfolded;
    let (topology, steps) = (Arc::new(topology), Arc::new(steps));
    Ok(s.execs.insert(Exec { draft, flags, topology, steps, of_node, launches: 0, last: None }).handle())
}

fn instantiate_with_flags(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    flags: CUgraphInstantiate_flags,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    let upload = flags.contains(CUgraphInstantiate_flags::UPLOAD);
    require(!upload, || "UPLOAD needs cuGraphInstantiateWithParams".into())?;
    exec.set(make(m, graph, flags).map_err(|(error, ..)| error)?)
}

fn instantiate_with_params(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    let mut p = params.get()?;
    let made = make(m, graph, CUgraphInstantiate_flags::from_bits_retain(p.flags));
    (p.hErrNode_out, p.result_out) = match &made {
        Ok(_) => (CUgraphNode::NULL, CUgraphInstantiateResult::SUCCESS),
        Err((_, node, result)) => (*node, *result),
    };
    params.set(p)?;
    exec.set(made.map_err(|(error, ..)| error)?)
}

fn instantiate_with_log(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    log: Out<c_char>,
    log_bytes: usize,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    match make(m, graph, CUgraphInstantiate_flags::empty()) {
        Ok(made) => exec.set(made),
        Err((error, node, _)) => {
            error_node.set_if(node);
            log.set_text(&error.text, log_bytes);
            Err(error)
        }
    }
}

/// There is nothing to upload; the checks are those of a launch.
fn upload(m: &'static Machine, exec: CUgraphExec, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    s.execs.find(exec).map(drop)
}

fn launch(m: &'static Machine, exec: CUgraphExec, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let id = s.execs.find(exec)?;
    if s.streams[stream].capture.is_some() {
        return capture_launch(&mut s, id, stream);
    }
    capture::refuse_implicit(&mut s, stream)?;
    // Launches of one executable graph follow each other, in whichever streams they are.
    let queue = Arc::clone(&s.streams[stream].queue);
    let elsewhere = s.execs[id].last.clone().filter(|last| !last.is_in(&queue) && !last.is_done());
    if let Some(last) = elsewhere {
        s.enqueue(stream, Task::After(last))?;
    }
    let exec = &mut s.execs[id];
    exec.launches += 1;
    let run = GraphLaunch::new(m.device, &exec.topology, &exec.steps, exec.launches);
    let ticket = s.enqueue(stream, Task::Graph(run))?;
    s.execs[id].last = Some(ticket);
    Ok(())
}

/// A launch in a capture becomes a child graph.
fn capture_launch(s: &mut State, id: ExecId, stream: StreamId) -> Result {
    let Exec { steps, of_node, .. } = &s.execs[id];
    let (steps, of_node) = (Arc::clone(steps), of_node.clone());
    let draft = std::mem::replace(&mut s.execs[id].draft, Draft { nodes: Vec::new() });
    let child = s.graph_of(&draft, &|node| of_node.get(&node).map(|&step| steps[step].work.clone()));
    s.execs[id].draft = draft;
    capture::record_content(s, stream, Content::Child(child))
}

/// Destroying returns at once; a launch that is queued still runs.
fn destroy(m: &'static Machine, exec: CUgraphExec) -> Result {
    let mut s = m.state();
    let id = s.execs.find(exec)?;
    capture::refuse_unsafe(&mut s)?;
    s.execs.remove(id);
    Ok(())
}

fn get_flags(m: &'static Machine, exec: CUgraphExec, flags: Out<u64>) -> Result {
    let s = m.state();
    flags.set(s.execs[s.execs.find(exec)?].flags.bits())
}
