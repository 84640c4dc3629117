//! Stream capture: work given to a stream becomes nodes of a graph.
//!
//! A capture has the stream that began it and every stream that waited for an event of it. Each of them knows the
//! nodes that its next node comes after. A call that the capture does not allow makes it invalid; it then stays until
//! `cuStreamEndCapture` reports that.

use std::cell::Cell;
use std::thread;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse, require};
use crate::graph::nodes::{Content, check_edge};
use crate::handle::{ContextId, EventId, StreamId};
use crate::state::State;
use crate::state::objects::{Capture, CaptureMember, Stream, StreamKind};
use crate::work::{GraphAllocation, Work};

impl State {
    pub(crate) fn invalidate(&mut self, captures: impl IntoIterator<Item = u64>) {
        for id in captures {
            if let Some(capture) = self.captures.get_mut(&id) {
                capture.invalid = true;
            }
        }
    }

    /// The capture of a stream that takes work, so not an invalid one.
    pub(crate) fn member(&self, stream: StreamId) -> Result<&CaptureMember> {
        let Some(member) = &self.streams[stream].capture else {
            return refuse(CUresult::ILLEGAL_STATE, "the stream does not capture");
        };
        match self.captures.get(&member.capture) {
            Some(capture) if !capture.invalid => Ok(member),
            _ => refuse(
                CUresult::STREAM_CAPTURE_INVALIDATED,
                "an earlier call made the capture invalid",
            ),
        }
    }

    /// Takes every stream out of a capture.
    pub(crate) fn dissolve(&mut self, capture: u64) {
        for (_, stream) in self.streams.iter_mut() {
            stream.capture.take_if(|member| member.capture == capture);
        }
    }

    /// The captures whose streams a condition picks.
    pub(crate) fn captures_of(&self, which: impl Fn(&Stream) -> bool) -> Vec<u64> {
        let streams = self.streams.iter().map(|(_, stream)| stream);
        streams
            .filter(|stream| which(stream))
            .filter_map(|s| s.capture.as_ref().map(|m| m.capture))
            .collect()
    }

    pub(crate) fn status(&self, stream: StreamId) -> CUstreamCaptureStatus {
        match &self.streams[stream].capture {
            None => CUstreamCaptureStatus::NONE,
            Some(_) if self.member(stream).is_ok() => CUstreamCaptureStatus::ACTIVE,
            Some(_) => CUstreamCaptureStatus::INVALIDATED,
        }
    }
}

/// Adds work of a capturing stream to its graph.
pub(crate) fn record(s: &mut State, stream: StreamId, work: Work) -> Result {
    record_content(s, stream, Content::Work(work))
}

/// Adds a node after what the stream did before.
pub(crate) fn record_content(s: &mut State, stream: StreamId, content: Content) -> Result {
    let member = s.member(stream)?;
    let (capture, after) = (member.capture, member.after.clone());
    for &(from, data) in &after {
        check_edge(&s.nodes[from].content, &content, data)?;
    }
    let node = s.add_node(s.captures[&capture].graph, &after, content);
    if let Some(member) = &mut s.streams[stream].capture {
        member.after = vec![(node, [0; 3])];
    }
    Ok(())
}

/// Adds a node that allocates memory of a device. Gives its address.
pub(crate) fn record_alloc(
    s: &mut State,
    stream: StreamId,
    device: u32,
    bytes: u64,
) -> Result<u64> {
    s.member(stream)?;
    let base = s
        .device
        .graph_memory
        .reserve(&s.device.memory, device, bytes)?;
    record(
        s,
        stream,
        Work::Alloc(GraphAllocation {
            base,
            bytes,
            device,
        }),
    )?;
    Ok(base)
}

/// Adds a node that frees memory which a graph allocates.
pub(crate) fn record_free(s: &mut State, stream: StreamId, base: u64) -> Result {
    s.member(stream)?;
    let known = s
        .device
        .graph_memory
        .find(base)
        .is_some_and(|(at, _)| at == base);
    require(known, || {
        format!("0x{base:x} is no memory that a graph allocates")
    })?;
    record(s, stream, Work::Free(base))
}

/// Records an event in a capturing stream: it stands for the last nodes of the stream.
pub(crate) fn record_event(s: &mut State, stream: StreamId, event: EventId) -> Result {
    let member = s.member(stream)?;
    let captured = (member.capture, member.after.clone());
    s.events[event].captured = Some(captured);
    Ok(())
}

/// Waits for an event where the event or the stream belongs to a capture.
pub(crate) fn wait_event(s: &mut State, stream: StreamId, event: EventId) -> Result {
    let own = s.streams[stream]
        .capture
        .as_ref()
        .map(|member| member.capture);
    let Some((capture, nodes)) = s.events[event].captured.clone() else {
        s.invalidate(own);
        return refuse(
            CUresult::STREAM_CAPTURE_ISOLATION,
            "the event was recorded outside the capture",
        );
    };
    if !s.captures.contains_key(&capture) {
        s.invalidate(own);
        return refuse(
            CUresult::CAPTURED_EVENT,
            "the capture that recorded the event has ended",
        );
    }
    if own.is_some_and(|own| own != capture) {
        s.invalidate(own.into_iter().chain([capture]));
        return refuse(
            CUresult::STREAM_CAPTURE_MERGE,
            "stream and event belong to different captures",
        );
    }
    if s.captures[&capture].invalid {
        return refuse(
            CUresult::STREAM_CAPTURE_INVALIDATED,
            "an earlier call made the capture invalid",
        );
    }
    if s.streams[stream].kind == StreamKind::Legacy {
        s.invalidate([capture]);
        return refuse(
            CUresult::STREAM_CAPTURE_IMPLICIT,
            "the legacy stream cannot join a capture",
        );
    }
    let join = || CaptureMember {
        capture,
        after: Vec::new(),
        shown: Default::default(),
    };
    let member = s.streams[stream].capture.get_or_insert_with(join);
    for node in nodes {
        if member.after.iter().all(|(known, _)| *known != node.0) {
            member.after.push(node);
        }
    }
    Ok(())
}

/// Refuses work of the legacy stream while a blocking stream of its context captures.
pub(crate) fn refuse_implicit(s: &mut State, stream: StreamId) -> Result {
    let Stream { context, kind, .. } = s.streams[stream];
    if kind != StreamKind::Legacy {
        return Ok(());
    }
    let captures =
        s.captures_of(|other| other.context == context && other.kind == StreamKind::Blocking);
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(
        CUresult::STREAM_CAPTURE_IMPLICIT,
        "the legacy stream would wait for a stream that captures",
    )
}

/// Refuses to wait for or to ask about a stream that captures.
pub(crate) fn refuse_in_stream(s: &mut State, stream: StreamId) -> Result {
    let Some(member) = &s.streams[stream].capture else {
        return Ok(());
    };
    let capture = member.capture;
    s.invalidate([capture]);
    refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "the stream captures")
}

/// Refuses to wait for a context in which a stream captures.
pub(crate) fn refuse_in_context(s: &mut State, context: ContextId) -> Result {
    let captures = s.captures_of(|stream| stream.context == context);
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(
        CUresult::STREAM_CAPTURE_UNSUPPORTED,
        "a stream of the context captures",
    )
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
    let captures: Vec<u64> = s
        .captures
        .iter()
        .filter(|(_, c)| forbids(c))
        .map(|(&id, _)| id)
        .collect();
    if captures.is_empty() {
        return Ok(());
    }
    s.invalidate(captures);
    refuse(
        CUresult::STREAM_CAPTURE_UNSUPPORTED,
        "the call is not permitted while a stream captures",
    )
}

/// Refuses to ask about an event that was last recorded in a capture.
pub(crate) fn refuse_captured_event(s: &mut State, event: EventId) -> Result {
    let Some((capture, _)) = s.events[event].captured else {
        return Ok(());
    };
    s.invalidate([capture]);
    refuse(
        CUresult::CAPTURED_EVENT,
        "the event was last recorded in a capture",
    )
}

/// A stream that is destroyed ends the capture that it began. One that joined leaves, and what it was not waited for
/// makes the capture unjoined.
pub(crate) fn leave(s: &mut State, stream: StreamId) {
    let Some(capture) = s.streams[stream]
        .capture
        .as_ref()
        .map(|member| member.capture)
    else {
        return;
    };
    if s.captures.get(&capture).is_some_and(|c| c.origin == stream) {
        discard(s, capture);
    }
}

/// Ends a capture without a graph.
pub(crate) fn discard(s: &mut State, capture: u64) {
    s.dissolve(capture);
    let Some(Capture { graph, before, .. }) = s.captures.remove(&capture) else {
        return;
    };
    match before {
        None => s.destroy_graph(graph),
        Some(before) => {
            for node in s.graphs[graph].nodes.split_off(before) {
                s.graphs[graph]
                    .edges
                    .retain(|e| e.from != node && e.to != node);
                s.remove_node(node);
            }
        }
    }
}

thread_local! {
    pub(crate) static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}
