//! Executable graphs: instantiation and launch.

use std::ffi::c_char;
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Error, Result, refuse, require};
use crate::ffi::pointer::Out;
use crate::graph::draft::{Draft, GraphPart, Unfolding};
use crate::graph::launch::GraphLaunch;
use crate::graph::nodes::NodeContent;
use crate::handle::{ExecId, GraphId, NodeId, StreamId};
use crate::machine::Machine;
use crate::queue::Task;
use crate::state::objects::{AllocationKind, AllocationRecord, Exec};
use crate::state::{DriverState, capture};
use crate::work::{GraphAllocation, StreamWork};

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

/// Instantiates a graph.
///
/// # Errors
/// Returns the error with the responsible node and the result code.
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
    require(known, || {
        format!("the flags {:#x} are unknown", flags.bits())
    })
    .map_err(plain)?;
    if flags.contains(CUgraphInstantiate_flags::DEVICE_LAUNCH) {
        let error = Error::new(
            CUresult::NOT_SUPPORTED,
            "launches from a kernel are not emulated",
        );
        return Err((
            error,
            CUgraphNode::NULL,
            CUgraphInstantiateResult::NODE_OPERATION_NOT_SUPPORTED,
        ));
    }

    once(&s, id).map_err(plain)?;
    unused_condition(&s, id).map_err(|e| {
        (
            e,
            CUgraphNode::NULL,
            CUgraphInstantiateResult::CONDITIONAL_HANDLE_UNUSED,
        )
    })?;
    let draft = s.draft(id);
    let unfolded = Unfolding::of(&draft);

    // A step that no walk along the edges reaches is on a cycle, or depends on one.
    let stuck = |part: &GraphPart| Some(part.first + part.topology.stuck()?);
    if let Some(step) = unfolded.parts.iter().find_map(stuck) {
        let node = unfolded
            .of_node
            .iter()
            .find(|(_, at)| **at == step)
            .map(|(id, _)| *id);
        let error = Error::new(
            CUresult::INVALID_VALUE,
            "the edges of the graph form a cycle",
        );
        let node = node.map_or(CUgraphNode::NULL, NodeId::handle);
        return Err((error, node, CUgraphInstantiateResult::INVALID_STRUCTURE));
    }

    Ok(insert(&mut s, id, draft, flags, unfolded).handle())
}

/// Returns an error for a second executable graph, if the graph has conditional nodes or memory
/// nodes.
fn once(s: &DriverState, graph: GraphId) -> Result {
    let alone = |content: &NodeContent| content.is_conditional() || content.is_memory();
    let again = s.execs.iter().any(|(_, exec)| exec.graph == graph) && s.has_node(graph, alone);
    require(!again, || {
        "a graph with conditional nodes, or nodes that allocate or free memory, is instantiated already"
            .into()
    })
}

/// Returns an error if no node reads a condition of the graph.
fn unused_condition(s: &DriverState, graph: GraphId) -> Result {
    let unused = s.graphs[graph]
        .conditions
        .iter()
        .find(|condition| !condition.used);
    unused.map_or(Ok(()), |c| {
        refuse(
            CUresult::INVALID_VALUE,
            format!("no conditional node has the condition {:#x}", c.handle),
        )
    })
}

fn insert(
    s: &mut DriverState,
    graph: GraphId,
    draft: Draft,
    flags: CUgraphInstantiate_flags,
    unfolded: Unfolding,
) -> ExecId {
    let Unfolding {
        steps,
        parts,
        of_node,
    } = unfolded;
    let objects = s.graphs[graph].objects.clone();
    for &object in &objects {
        s.retain_object(object, 1);
    }

    s.execs.insert(Exec {
        graph,
        leaves: draft.leaves(),
        takes: draft.takes(),
        draft,
        flags,
        parts: Arc::new(parts),
        steps: Arc::new(steps),
        of_node,
        objects,
        launches: 0,
        last: None,
    })
}

fn instantiate_with_flags(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    flags: CUgraphInstantiate_flags,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    let upload = flags.contains(CUgraphInstantiate_flags::UPLOAD);
    require(!upload, || {
        "UPLOAD needs cuGraphInstantiateWithParams".into()
    })?;
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
    let made = make(
        m,
        graph,
        CUgraphInstantiate_flags::from_bits_retain(p.flags),
    );
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

/// Does nothing after the checks of a launch, because there is nothing to upload.
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
    for step in s.execs[id].steps.iter() {
        if let StreamWork::Kernel(kernel) = &step.work {
            s.refuse_injected(&kernel.function.kernel.name)?;
        }
    }

    // Launches of one executable graph are ordered, even in different streams.
    let queue = Arc::clone(&s.streams[stream].queue);
    let elsewhere = s.execs[id]
        .last
        .clone()
        .filter(|last| !last.is_in(&queue) && (m.device.order.is_on() || !last.is_done()));
    if let Some(last) = elsewhere {
        s.enqueue(stream, Task::After(last))?;
    }

    memory_of_launch(&mut s, id, stream)?;
    let exec = &mut s.execs[id];
    exec.launches += 1;
    let defaults = exec
        .draft
        .all()
        .into_iter()
        .flat_map(|draft| draft.defaults.clone())
        .collect();
    let run = GraphLaunch::new(m.device, &exec.parts, &exec.steps, defaults, exec.launches);
    let ticket = s.enqueue(stream, Task::Graph(run))?;
    s.execs[id].last = Some(ticket);
    Ok(())
}

/// Records the memory that a launch leaves allocated.
///
/// The memory of the last launch must have been freed, unless the graph was instantiated with
/// AUTO_FREE_ON_LAUNCH, which frees it now.
fn memory_of_launch(s: &mut DriverState, id: ExecId, stream: StreamId) -> Result {
    let leaves = s.execs[id].leaves.clone();
    let takes = s.execs[id].takes.clone();
    let auto = s.execs[id]
        .flags
        .contains(CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH);
    let left = |s: &DriverState, made: &GraphAllocation| s.allocations.contains_key(&made.base);
    require(auto || !leaves.iter().any(|made| left(s, made)), || {
        "memory that the last launch allocated was not freed; AUTO_FREE_ON_LAUNCH would free it"
            .into()
    })?;
    for base in takes {
        s.forget(base)?;
    }

    let context = s.streams[stream].context;
    for made in leaves {
        // With AUTO_FREE_ON_LAUNCH the memory of the last launch is freed in stream order, before
        // this launch allocates the same address again.
        if s.allocations.remove(&made.base).is_some() {
            s.enqueue(stream, Task::Free(made.base))?;
        }
        let allocation = AllocationRecord {
            context,
            kind: AllocationKind::Graph,
            bytes: made.bytes,
        };
        s.allocations.insert(made.base, allocation);
    }

    Ok(())
}

/// Records a launch in a capture, as a child graph.
fn capture_launch(s: &mut DriverState, id: ExecId, stream: StreamId) -> Result {
    let draft = &s.execs[id].draft;
    let memory = draft
        .works()
        .any(|work| matches!(work, StreamWork::Alloc(_) | StreamWork::Free(_)));
    require(!memory && !draft.is_conditional(), || {
        "a graph with conditional nodes, or nodes that allocate or free memory, cannot be a child"
            .into()
    })?;
    let Exec { steps, of_node, .. } = &s.execs[id];
    let steps = Arc::clone(steps);
    let of_node = of_node.clone();

    // The draft is taken out for a moment, because the new graph is inserted into the same state.
    let draft = std::mem::take(&mut s.execs[id].draft);
    let child = s.graph_of(&draft, &|node| {
        of_node.get(&node).map(|&step| steps[step].work.clone())
    });
    s.execs[id].draft = draft;
    capture::record_content(s, stream, NodeContent::Child(child))
}

/// Destroys an executable graph immediately. A launch that is queued still runs.
fn destroy(m: &'static Machine, exec: CUgraphExec) -> Result {
    let mut s = m.state();
    let id = s.execs.find(exec)?;
    capture::refuse_unsafe(&mut s)?;
    let Some(exec) = s.execs.remove(id) else {
        return Ok(());
    };

    // The objects of the program must live until the last launch has ended, which the call must not
    // wait for.
    if !exec.objects.is_empty() {
        std::thread::spawn(move || {
            if let Some(last) = exec.last {
                last.wait();
            }
            let mut s = m.state();
            for object in exec.objects {
                s.release_object(object, 1);
            }
        });
    }

    Ok(())
}

fn get_flags(m: &'static Machine, exec: CUgraphExec, flags: Out<u64>) -> Result {
    let s = m.state();
    flags.set(s.execs[s.execs.find(exec)?].flags.bits())
}
