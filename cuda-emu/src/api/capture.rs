//! Stream capture: beginning, ending and querying captures.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use warpwright_driver_sys::*;

use crate::api::edges::{edge_data, shown_edge};
use crate::api::export::exports;
use crate::api::stream::no_flags;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{EdgeData, GraphContent};
use crate::handle::{GraphId, NodeId, StreamId};
use crate::machine::Machine;
use crate::state::objects::{CaptureMember, CaptureState, StreamKind};
use crate::state::{DriverState, capture};

exports! {
    table {
        10010 cuStreamBeginCapture cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) => begin;
        10000 cuStreamEndCapture cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => end;
        10000 cuStreamIsCapturing cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) => is_capturing;
        11030 cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize) => info;
        10010 cuThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) => exchange_mode;
        12030 cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) => begin_to_graph;
        12030 cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize) => info_v3;
        12030 cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2(stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: CUstreamUpdateCaptureDependencies_flags) => update_dependencies_with_data;
        11030 cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies(stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: CUstreamUpdateCaptureDependencies_flags) => update_dependencies;
    }
    more {
        10000 cuStreamBeginCapture cuStreamBeginCapture(stream: CUstream) => begin_global;
        10010 cuStreamGetCaptureInfo cuStreamGetCaptureInfo(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64) => info_v1;
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

fn begin_global(m: &'static Machine, stream: CUstream) -> Result {
    begin(m, stream, CUstreamCaptureMode::GLOBAL)
}

fn begin(m: &'static Machine, stream: CUstream, mode: CUstreamCaptureMode) -> Result {
    let mut s = m.state();
    let stream = startable(&mut s, stream, mode)?;
    let graph = s.graphs.insert(GraphContent::default());
    start(&mut s, stream, graph, None, Vec::new(), mode);
    Ok(())
}

fn begin_to_graph(
    m: &'static Machine,
    stream: CUstream,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Result {
    let mut s = m.state();
    let stream = startable(&mut s, stream, mode)?;
    let graph = s.graphs.find(graph)?;
    let after = nodes_of(&s, graph, after.slice(count)?, edges)?;
    let busy = s.captures.values().any(|capture| capture.graph == graph);
    require(!busy, || "a stream captures into the graph already".into())?;
    let before = s.graphs[graph].nodes.len();
    start(&mut s, stream, graph, Some(before), after, mode);
    Ok(())
}

/// Returns the nodes that a caller lists as dependencies, with the data of their edges.
fn nodes_of(
    s: &DriverState,
    graph: GraphId,
    nodes: &[CUgraphNode],
    edges: In<CUgraphEdgeData>,
) -> Result<Vec<(NodeId, EdgeData)>> {
    let node = |(handle, data): (&CUgraphNode, EdgeData)| -> Result<(NodeId, EdgeData)> {
        let id = s.nodes.find(*handle)?;
        require(s.nodes[id].graph == graph, || {
            format!("{id:?} is a node of another graph")
        })?;
        Ok((id, data))
    };
    nodes
        .iter()
        .zip(edge_data(edges, nodes.len())?)
        .map(node)
        .collect()
}

/// Returns the stream, if a capture may begin on it.
fn startable(s: &mut DriverState, stream: CUstream, mode: CUstreamCaptureMode) -> Result<StreamId> {
    let id = s.stream(stream)?;
    require((0..=2).contains(&mode.0), || {
        format!("unknown capture mode {}", mode.0)
    })?;
    if s.streams[id].kind == StreamKind::Legacy {
        return refuse(
            CUresult::STREAM_CAPTURE_UNSUPPORTED,
            "the legacy stream cannot capture",
        );
    }

    if s.streams[id].capture.is_some() {
        return refuse(CUresult::ILLEGAL_STATE, "the stream captures already");
    }

    Ok(id)
}

/// Begins a capture into a graph.
///
/// `before` is the number of nodes that the graph has now, if the program provided it.
fn start(
    s: &mut DriverState,
    origin: StreamId,
    graph: GraphId,
    before: Option<usize>,
    after: Vec<(NodeId, EdgeData)>,
    mode: CUstreamCaptureMode,
) {
    let capture = NEXT.fetch_add(1, Relaxed);
    let thread = thread::current().id();
    s.captures.insert(
        capture,
        CaptureState {
            graph,
            before,
            origin,
            mode,
            thread,
            invalid: false,
        },
    );
    s.streams[origin].capture = Some(CaptureMember {
        capture,
        after,
        shown: Default::default(),
    });
}

fn end(m: &'static Machine, stream: CUstream, graph: Out<CUgraph>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    require(!graph.is_null(), || "the result pointer is NULL".into())?;
    let Some(member) = &s.streams[id].capture else {
        return refuse(CUresult::ILLEGAL_STATE, "the stream does not capture");
    };

    let number = member.capture;
    let last = member.after.clone();
    let capture = &s.captures[&number];
    if capture.origin != id {
        return refuse(
            CUresult::STREAM_CAPTURE_UNMATCHED,
            "the capture was begun on another stream",
        );
    }

    if capture.mode != CUstreamCaptureMode::RELAXED && capture.thread != thread::current().id() {
        return refuse(
            CUresult::STREAM_CAPTURE_WRONG_THREAD,
            "the capture was begun on another thread",
        );
    }

    let captured = capture.graph;
    let invalid = capture.invalid;
    let before = capture.before.unwrap_or(0);

    // From here on the capture ends even if it fails, so the result is NULL in that case.
    graph.set(CUgraph::NULL)?;
    if invalid {
        capture::discard(&mut s, number);
        return refuse(
            CUresult::STREAM_CAPTURE_INVALIDATED,
            "an earlier call made the capture invalid",
        );
    }

    if let Some(node) = unjoined(&s, captured, before, &last) {
        let name = s.nodes[node].content.name().to_string();
        capture::discard(&mut s, number);
        return refuse(
            CUresult::STREAM_CAPTURE_UNJOINED,
            format!(
                "the capturing stream never waited for a forked stream, whose work includes {name}"
            ),
        );
    }

    s.dissolve(number);
    s.captures.remove(&number);
    graph.set(captured.handle())
}

/// Returns a captured node from which no path of edges leads to the last nodes of the original
/// stream.
fn unjoined(
    s: &DriverState,
    graph: GraphId,
    before: usize,
    last: &[(NodeId, EdgeData)],
) -> Option<NodeId> {
    let graph = &s.graphs[graph];
    let mut open: Vec<NodeId> = last.iter().map(|(node, _)| *node).collect();
    let mut joined: HashSet<NodeId> = open.iter().copied().collect();
    while let Some(node) = open.pop() {
        for edge in graph.edges.iter().filter(|edge| edge.to == node) {
            if joined.insert(edge.from) {
                open.push(edge.from);
            }
        }
    }

    graph.nodes[before..]
        .iter()
        .copied()
        .find(|node| !joined.contains(node))
}

fn is_capturing(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    capture::refuse_implicit(&mut s, id)?;
    status.set(s.status(id))
}

fn info_v1(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
) -> Result {
    write_status(m, stream, status, id, Out::null()).map(drop)
}

/// Writes the capture status of a stream and its capture. Returns the stream if it captures.
fn write_status(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
) -> Result<Option<StreamId>> {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_implicit(&mut s, stream)?;
    let now = s.status(stream);
    status.set(now)?;
    if now != CUstreamCaptureStatus::ACTIVE {
        return Ok(None);
    }

    let member = s.member(stream)?;
    id.set_if(member.capture);
    graph.set_if(s.captures[&member.capture].graph.handle());
    Ok(Some(stream))
}

fn info(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    after: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Result {
    let Some(stream) = write_status(m, stream, status, id, graph)? else {
        return Ok(());
    };

    let mut s = m.state();
    if s.member(stream)?
        .after
        .iter()
        .any(|(_, data)| *data != [0; 3])
    {
        return refuse(
            CUresult::LOSSY_QUERY,
            "the dependencies have edge data, which this query would lose",
        );
    }

    show(&mut s, stream, after, Out::null(), count)
}

/// Writes the dependencies of a capturing stream.
///
/// The arrays belong to the driver and are valid until the next call on the stream, as the API
/// specifies.
fn show(
    s: &mut DriverState,
    stream: StreamId,
    after: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    let Some(member) = &mut s.streams[stream].capture else {
        return Ok(());
    };

    let dependencies = member.after.iter();
    member.shown = dependencies
        .map(|(node, data)| (node.handle(), shown_edge(*data)))
        .unzip();
    after.set_if(member.shown.0.as_ptr());
    edges.set_if(member.shown.1.as_ptr());
    count.set_if(member.shown.0.len());
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn info_v3(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    after: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    match write_status(m, stream, status, id, graph)? {
        Some(stream) => show(&mut m.state(), stream, after, edges, count),
        None => Ok(()),
    }
}

fn update_dependencies(
    m: &'static Machine,
    stream: CUstream,
    nodes: Out<CUgraphNode>,
    count: usize,
    flags: CUstreamUpdateCaptureDependencies_flags,
) -> Result {
    update_dependencies_with_data(m, stream, nodes, In::null(), count, flags)
}

fn update_dependencies_with_data(
    m: &'static Machine,
    stream: CUstream,
    nodes: Out<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    flags: CUstreamUpdateCaptureDependencies_flags,
) -> Result {
    let set = CUstreamUpdateCaptureDependencies_flags::SET;
    no_flags((flags - set).bits())?;
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let graph = s.captures[&s.member(stream)?.capture].graph;
    let nodes = nodes_of(&s, graph, nodes.slice(count)?, edges)?;
    let Some(member) = &mut s.streams[stream].capture else {
        return Ok(());
    };

    // Without SET, the nodes are added to the present dependencies.
    if flags.contains(set) {
        member.after.clear();
    }

    for node in nodes {
        if member.after.iter().all(|(known, _)| *known != node.0) {
            member.after.push(node);
        }
    }

    Ok(())
}

fn exchange_mode(_: &'static Machine, mode: Out<CUstreamCaptureMode>) -> Result {
    let new = mode.get()?;
    require((0..=2).contains(&new.0), || {
        format!("unknown capture mode {}", new.0)
    })?;
    mode.set(capture::MODE.replace(new))
}
