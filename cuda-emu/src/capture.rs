//! Stream capture: work given to a stream becomes nodes of a graph.
//!
//! A capture has the stream that began it and every stream that waited for an event of it. Each of them knows the
//! nodes that its next node comes after. A call that the capture does not allow makes it invalid; it then stays until
//! `cuStreamEndCapture` reports that.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};

use warpwright_driver_sys::*;

use crate::context::Context;
use crate::event::Event;
use crate::ffi::{In, Out, Result, exports, refuse, require};
use crate::graph::{Content, Graph, Node};
use crate::handle::Id;
use crate::machine::Machine;
use crate::state::State;
use crate::stream::{Stream, StreamKind, no_flags};
use crate::work::Work;

/// A capture in progress.
pub(crate) struct Capture {
    pub(crate) graph: Id<Graph>,
    origin: Id<Stream>,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    invalid: bool,
}

/// The state of a stream that takes part in a capture.
pub(crate) struct CaptureMember {
    capture: u64,
    /// The nodes that the next node comes after.
    after: Vec<Id<Node>>,
    /// Their handles, as a caller was shown them.
    shown: Vec<CUgraphNode>,
}

exports! {
    required {
        10010 cuStreamBeginCapture cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) => begin;
        10000 cuStreamEndCapture cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => end;
        10000 cuStreamIsCapturing cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) => is_capturing;
        11030 cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize) => info;
        10010 cuThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) => exchange_mode;
    }
    optional {}
    more {
        10000 cuStreamBeginCapture cuStreamBeginCapture(stream: CUstream) => begin_global;
        12030 cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) => begin_to_graph;
        10010 cuStreamGetCaptureInfo cuStreamGetCaptureInfo(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64) => info_v1;
        12030 cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize) => info_v3;
        11030 cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies(stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: c_uint) => update_dependencies;
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}

impl State {
    fn invalidate(&mut self, captures: impl IntoIterator<Item = u64>) {
        for id in captures {
            if let Some(capture) = self.captures.get_mut(&id) {
                capture.invalid = true;
            }
        }
    }

    /// The capture of a stream that takes work, so not an invalid one.
    fn member(&self, stream: Id<Stream>) -> Result<&CaptureMember> {
        let Some(member) = &self.streams[stream].capture else {
            return refuse(CUresult::ILLEGAL_STATE, "the stream does not capture");
        };
        match self.captures.get(&member.capture) {
            Some(capture) if !capture.invalid => Ok(member),
            _ => refuse(CUresult::STREAM_CAPTURE_INVALIDATED, "an earlier call made the capture invalid"),
        }
    }

    /// Takes every stream out of a capture.
    fn dissolve(&mut self, capture: u64) {
        for (_, stream) in self.streams.iter_mut() {
            stream.capture.take_if(|member| member.capture == capture);
        }
    }

    /// The captures whose streams a condition picks.
    fn captures_of(&self, which: impl Fn(&Stream) -> bool) -> Vec<u64> {
        let streams = self.streams.iter().map(|(_, stream)| stream);
        streams.filter(|stream| which(stream)).filter_map(|s| s.capture.as_ref().map(|m| m.capture)).collect()
    }
}

/// Adds work of a capturing stream to its graph.
pub(crate) fn record(s: &mut State, stream: Id<Stream>, work: Work) -> Result {
    record_content(s, stream, Content::Work(work))
}

/// Adds a node after what the stream did before.
pub(crate) fn record_content(s: &mut State, stream: Id<Stream>, content: Content) -> Result {
    let member = s.member(stream)?;
    let after: Vec<_> = member.after.iter().map(|&node| (node, [0; 3])).collect();
    let graph = s.captures[&member.capture].graph;
    let node = s.add_node(graph, &after, content);
    if let Some(member) = &mut s.streams[stream].capture {
        member.after = vec![node];
    }
    Ok(())
}

/// Records an event in a capturing stream: it stands for the last nodes of the stream.
pub(crate) fn record_event(s: &mut State, stream: Id<Stream>, event: Id<Event>) -> Result {
    let member = s.member(stream)?;
    let captured = (member.capture, member.after.clone());
    s.events[event].captured = Some(captured);
    Ok(())
}

/// Waits for an event where the event or the stream belongs to a capture.
pub(crate) fn wait_event(s: &mut State, stream: Id<Stream>, event: Id<Event>) -> Result {
    let own = s.streams[stream].capture.as_ref().map(|member| member.capture);
    let Some((capture, nodes)) = s.events[event].captured.clone() else {
        s.invalidate(own);
        return refuse(CUresult::STREAM_CAPTURE_ISOLATION, "the event was recorded outside the capture");
    };
    if !s.captures.contains_key(&capture) {
        s.invalidate(own);
        return refuse(CUresult::CAPTURED_EVENT, "the capture that recorded the event has ended");
    }
    if own.is_some_and(|own| own != capture) {
        s.invalidate(own.into_iter().chain([capture]));
        return refuse(CUresult::STREAM_CAPTURE_MERGE, "stream and event belong to different captures");
    }
    if s.captures[&capture].invalid {
        return refuse(CUresult::STREAM_CAPTURE_INVALIDATED, "an earlier call made the capture invalid");
    }
    if s.streams[stream].kind == StreamKind::Legacy {
        s.invalidate([capture]);
        return refuse(CUresult::STREAM_CAPTURE_IMPLICIT, "the legacy stream cannot join a capture");
    }
    let join = || CaptureMember { capture, after: Vec::new(), shown: Vec::new() };
    let member = s.streams[stream].capture.get_or_insert_with(join);
    for node in nodes {
        if !member.after.contains(&node) {
            member.after.push(node);
        }
    }
    Ok(())
}

/// Refuses work of the legacy stream while a blocking stream of its context captures.
pub(crate) fn refuse_implicit(s: &mut State, stream: Id<Stream>) -> Result {
    let Stream { context, kind, .. } = s.streams[stream];
    if kind != StreamKind::Legacy {
        return Ok(());
    }
    let captures = s.captures_of(|other| other.context == context && other.kind == StreamKind::Blocking);
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(CUresult::STREAM_CAPTURE_IMPLICIT, "the legacy stream would wait for a stream that captures")
}

/// Refuses to wait for or to ask about a stream that captures.
pub(crate) fn refuse_in_stream(s: &mut State, stream: Id<Stream>) -> Result {
    let Some(member) = &s.streams[stream].capture else { return Ok(()) };
    let capture = member.capture;
    s.invalidate([capture]);
    refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "the stream captures")
}

/// Refuses to wait for a context in which a stream captures.
pub(crate) fn refuse_in_context(s: &mut State, context: Id<Context>) -> Result {
    let captures = s.captures_of(|stream| stream.context == context);
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "a stream of the context captures")
}

/// Refuses a call that may wait for the device without saying so, as the mode of this thread and of the captures ask.
pub(crate) fn refuse_unsafe(s: &mut State) -> Result {
    if s.captures.is_empty() {
        return Ok(());
    }
    let (me, mode) = (thread::current().id(), MODE.get());
    let forbids = |c: &Capture| match mode {
        CUstreamCaptureMode::RELAXED => false,
        _ if c.thread == me => c.mode != CUstreamCaptureMode::RELAXED,
        CUstreamCaptureMode::GLOBAL => c.mode == CUstreamCaptureMode::GLOBAL,
        _ => false,
    };
    let captures: Vec<u64> = s.captures.iter().filter(|(_, c)| forbids(c)).map(|(&id, _)| id).collect();
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "the call is not permitted while a stream captures")
}

/// Refuses to ask about an event that was last recorded in a capture.
pub(crate) fn refuse_captured_event(s: &mut State, event: Id<Event>) -> Result {
    let Some((capture, _)) = s.events[event].captured else { return Ok(()) };
    s.invalidate([capture]);
    refuse(CUresult::CAPTURED_EVENT, "the event was last recorded in a capture")
}

/// A stream that is destroyed makes its capture invalid; the one that began it ends it.
pub(crate) fn leave(s: &mut State, stream: Id<Stream>) {
    let Some(capture) = s.streams[stream].capture.as_ref().map(|member| member.capture) else { return };
    s.invalidate([capture]);
    if s.captures.get(&capture).is_some_and(|c| c.origin == stream) {
        discard(s, capture);
    }
}

/// Ends a capture without a graph.
fn discard(s: &mut State, capture: u64) {
    s.dissolve(capture);
    if let Some(capture) = s.captures.remove(&capture) {
        s.destroy_graph(capture.graph);
    }
}

fn begin_global(m: &'static Machine, stream: CUstream) -> Result {
    begin(m, stream, CUstreamCaptureMode::GLOBAL)
}

fn begin(m: &'static Machine, stream: CUstream, mode: CUstreamCaptureMode) -> Result {
    let mut s = m.state();
    let stream = startable(m, &mut s, stream, mode)?;
    let graph = s.graphs.insert(Graph::default());
    start(&mut s, stream, graph, Vec::new(), mode);
    Ok(())
}

fn begin_to_graph(
    m: &'static Machine,
    stream: CUstream,
    graph: CUgraph,
    after: In<CUgraphNode>,
    _edges: In<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Result {
    let mut s = m.state();
    let stream = startable(m, &mut s, stream, mode)?;
    let graph = s.graphs.find(graph)?;
    let after = nodes_of(&s, graph, after.slice(count)?)?;
    start(&mut s, stream, graph, after, mode);
    Ok(())
}

fn nodes_of(s: &State, graph: Id<Graph>, nodes: &[CUgraphNode]) -> Result<Vec<Id<Node>>> {
    let node = |handle: &CUgraphNode| -> Result<Id<Node>> {
        let id = s.nodes.find(*handle)?;
        require(s.nodes[id].graph == graph, || format!("{id:?} is a node of another graph"))?;
        Ok(id)
    };
    nodes.iter().map(node).collect()
}

/// A stream on which a capture may begin.
fn startable(
    m: &'static Machine,
    s: &mut State,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> Result<Id<Stream>> {
    let id = s.stream(m, stream)?;
    require((0..=2).contains(&mode.0), || format!("there is no capture mode {}", mode.0))?;
    if s.streams[id].kind == StreamKind::Legacy {
        return refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot capture");
    }
    if s.streams[id].capture.is_some() {
        return refuse(CUresult::ILLEGAL_STATE, "the stream captures already");
    }
    Ok(id)
}

fn start(
    s: &mut State,
    origin: Id<Stream>,
    graph: Id<Graph>,
    after: Vec<Id<Node>>,
    mode: CUstreamCaptureMode,
) {
    let capture = NEXT.fetch_add(1, Relaxed);
    s.captures
        .insert(capture, Capture { graph, origin, mode, thread: thread::current().id(), invalid: false });
    s.streams[origin].capture = Some(CaptureMember { capture, after, shown: Vec::new() });
}

fn end(m: &'static Machine, stream: CUstream, graph: Out<CUgraph>) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    require(!graph.is_null(), || "the result pointer is NULL".into())?;
    let Some(member) = &s.streams[id].capture else {
        return refuse(CUresult::ILLEGAL_STATE, "the stream does not capture");
    };
    let (number, last) = (member.capture, member.after.clone());
    let capture = &s.captures[&number];
    if capture.origin != id {
        return refuse(CUresult::STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream");
    }
    if capture.mode != CUstreamCaptureMode::RELAXED && capture.thread != thread::current().id() {
        return refuse(CUresult::STREAM_CAPTURE_WRONG_THREAD, "the capture was begun on another thread");
    }
    let (made, invalid) = (capture.graph, capture.invalid);
    graph.set(CUgraph::NULL)?;
    if invalid {
        discard(&mut s, number);
        return refuse(CUresult::STREAM_CAPTURE_INVALIDATED, "an earlier call made the capture invalid");
    }
    if let Some(node) = unjoined(&s, made, &last) {
        let name = s.node_name(node);
        discard(&mut s, number);
        return refuse(
            CUresult::STREAM_CAPTURE_UNJOINED,
            format!("the stream that captures never waited for a fork, whose work includes {name}"),
        );
    }
    s.dissolve(number);
    s.captures.remove(&number);
    graph.set(made.handle())
}

/// A node that no path of edges leads from to where the first stream ended.
fn unjoined(s: &State, graph: Id<Graph>, last: &[Id<Node>]) -> Option<Id<Node>> {
    let graph = &s.graphs[graph];
    let mut joined: HashSet<Id<Node>> = last.iter().copied().collect();
    let mut open = last.to_vec();
    while let Some(node) = open.pop() {
        for edge in graph.edges.iter().filter(|edge| edge.to == node) {
            if joined.insert(edge.from) {
                open.push(edge.from);
            }
        }
    }
    graph.nodes.iter().copied().find(|node| !joined.contains(node))
}

impl State {
    fn node_name(&self, id: Id<Node>) -> String {
        match &self.nodes[id].content {
            Content::Work(work) => work.name().to_string(),
            Content::Child(_) => "a child graph".to_string(),
        }
    }

    fn status(&self, stream: Id<Stream>) -> CUstreamCaptureStatus {
        match &self.streams[stream].capture {
            None => CUstreamCaptureStatus::NONE,
            Some(_) if self.member(stream).is_ok() => CUstreamCaptureStatus::ACTIVE,
            Some(_) => CUstreamCaptureStatus::INVALIDATED,
        }
    }
}

fn is_capturing(m: &'static Machine, stream: CUstream, status: Out<CUstreamCaptureStatus>) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    refuse_implicit(&mut s, id)?;
    status.set(s.status(id))
}

fn info_v1(
    m: &'static Machine,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
) -> Result {
    info(m, stream, status, id, Out::null(), Out::null(), Out::null())
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
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    refuse_implicit(&mut s, stream)?;
    let now = s.status(stream);
    status.set(now)?;
    if now != CUstreamCaptureStatus::ACTIVE {
        return Ok(());
    }
    let State { streams, captures, .. } = &mut *s;
    let Some(member) = &mut streams[stream].capture else { return Ok(()) };
    id.set_if(member.capture);
    graph.set_if(captures[&member.capture].graph.handle());
    member.shown = member.after.iter().map(|node| node.handle()).collect();
    // The array is the driver's and valid until the next call on the stream, as the API says.
    after.set_if(member.shown.as_ptr());
    count.set_if(member.shown.len());
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
    edges.set_if(std::ptr::null());
    info(m, stream, status, id, graph, after, count)
}

/// Flag of an update: replace the dependencies instead of adding to them.
const SET: c_uint = 1;

fn update_dependencies(
    m: &'static Machine,
    stream: CUstream,
    nodes: Out<CUgraphNode>,
    count: usize,
    flags: c_uint,
) -> Result {
    no_flags(flags & !SET)?;
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    let graph = s.captures[&s.member(stream)?.capture].graph;
    let nodes = nodes_of(&s, graph, nodes.slice(count)?)?;
    let Some(member) = &mut s.streams[stream].capture else { return Ok(()) };
    if flags & SET != 0 {
        member.after.clear();
    }
    for node in nodes {
        if !member.after.contains(&node) {
            member.after.push(node);
        }
    }
    Ok(())
}

fn exchange_mode(_: &'static Machine, mode: Out<CUstreamCaptureMode>) -> Result {
    let new = mode.get()?;
    require((0..=2).contains(&new.0), || format!("there is no capture mode {}", new.0))?;
    mode.set(MODE.replace(new))
}
