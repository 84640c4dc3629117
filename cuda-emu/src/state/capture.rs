//! Stream capture: work that is enqueued in a stream becomes nodes of a graph.
//!
//! A capture consists of the stream that began it and of every stream that waited for one of its
//! events. Each of them knows the nodes on which its next node depends. A call that a capture does
//! not allow invalidates it. The capture then stays until `cuStreamEndCapture` reports that.

use std::cell::Cell;
use std::thread;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse, require};
use crate::graph::nodes::{NodeContent, check_edge};
use crate::handle::{ContextId, EventId, StreamId};
use crate::state::DriverState;
use crate::state::objects::{CaptureMember, CaptureState, Stream, StreamKind};
use crate::work::{GraphAllocation, StreamWork};

impl DriverState {
    pub(crate) fn invalidate(&mut self, captures: impl IntoIterator<Item = u64>) {
        for id in captures {
            if let Some(capture) = self.captures.get_mut(&id) {
                capture.invalid = true;
            }
        }
    }

    /// Returns the capture state of a stream whose capture is valid.
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

    /// Removes every stream from a capture.
    pub(crate) fn dissolve(&mut self, capture: u64) {
        for (_, stream) in self.streams.iter_mut() {
            stream.capture.take_if(|member| member.capture == capture);
        }
    }

    /// Returns the captures with streams for which `which` returns true.
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
pub(crate) fn record(s: &mut DriverState, stream: StreamId, work: StreamWork) -> Result {
    record_content(s, stream, NodeContent::Work(work))
}

/// Adds a node that depends on the previous nodes of the stream.
pub(crate) fn record_content(
    s: &mut DriverState,
    stream: StreamId,
    content: NodeContent,
) -> Result {
    let member = s.member(stream)?;
    let capture = member.capture;
    let after = member.after.clone();
    for &(from, data) in &after {
        check_edge(&s.nodes[from].content, &content, data)?;
    }

    let node = s.add_node(s.captures[&capture].graph, &after, content);
    if let Some(member) = &mut s.streams[stream].capture {
        member.after = vec![(node, [0; 3])];
    }

    Ok(())
}

/// Adds a node that allocates memory of a device. Returns the address.
pub(crate) fn record_alloc(
    s: &mut DriverState,
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
        StreamWork::Alloc(GraphAllocation {
            base,
            bytes,
            device,
        }),
    )?;
    Ok(base)
}

/// Adds a node that frees memory of a graph.
pub(crate) fn record_free(s: &mut DriverState, stream: StreamId, base: u64) -> Result {
    s.member(stream)?;
    let known = s
        .device
        .graph_memory
        .find(base)
        .is_some_and(|(at, _)| at == base);
    require(known, || {
        format!("0x{base:x} is not memory that a graph allocates")
    })?;
    record(s, stream, StreamWork::Free(base))
}

/// Records an event in a capturing stream. The event represents the last nodes of the stream.
pub(crate) fn record_event(s: &mut DriverState, stream: StreamId, event: EventId) -> Result {
    let member = s.member(stream)?;
    let captured = (member.capture, member.after.clone());
    s.events[event].captured = Some(captured);
    Ok(())
}

/// Waits for an event if the event or the stream belongs to a capture.
pub(crate) fn wait_event(s: &mut DriverState, stream: StreamId, event: EventId) -> Result {
    let own = s.streams[stream]
        .capture
        .as_ref()
        .map(|member| member.capture);

    // The order of the checks decides the error code when several apply.
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

/// Returns an error for work of the legacy stream while a blocking stream of its context captures.
pub(crate) fn refuse_implicit(s: &mut DriverState, stream: StreamId) -> Result {
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

/// Returns an error for a wait or a query of a stream that captures.
pub(crate) fn refuse_in_stream(s: &mut DriverState, stream: StreamId) -> Result {
    let Some(member) = &s.streams[stream].capture else {
        return Ok(());
    };
    let capture = member.capture;
    s.invalidate([capture]);
    refuse(CUresult::STREAM_CAPTURE_UNSUPPORTED, "the stream captures")
}

/// Returns an error for a wait for a context in which a stream captures.
pub(crate) fn refuse_in_context(s: &mut DriverState, context: ContextId) -> Result {
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

/// Returns an error for a call that may wait for the device implicitly, depending on the capture
/// modes of this thread and of the captures.
pub(crate) fn refuse_unsafe(s: &mut DriverState) -> Result {
    if s.captures.is_empty() {
        return Ok(());
    }

    let me = thread::current().id();
    let mode = MODE.get();

    // A capture of this thread forbids such calls unless it is relaxed. A capture of another thread
    // does so only if both modes are global.
    let forbids = |c: &CaptureState| match mode {
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

/// Returns an error for a query of an event that was last recorded in a capture.
pub(crate) fn refuse_captured_event(s: &mut DriverState, event: EventId) -> Result {
    let Some((capture, _)) = s.events[event].captured else {
        return Ok(());
    };
    s.invalidate([capture]);
    refuse(
        CUresult::CAPTURED_EVENT,
        "the event was last recorded in a capture",
    )
}

/// Ends the capture that a destroyed stream began.
///
/// A stream that only joined a capture leaves it. If the capture did not wait for its work, ending
/// the capture later returns an error.
pub(crate) fn leave(s: &mut DriverState, stream: StreamId) {
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

/// Ends a capture without returning a graph.
pub(crate) fn discard(s: &mut DriverState, capture: u64) {
    s.dissolve(capture);
    let Some(CaptureState { graph, before, .. }) = s.captures.remove(&capture) else {
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
