//! The events of a stream, which a writer makes from the parts of a reply.

use std::collections::VecDeque;

use futures_util::{Stream, stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::sse::SseEvent;
use crate::reply::ReplyEvent;

/// Returns the events that `write` makes from the events of a reply. It is called with `None` once
/// at the end, when no further event can arrive. Dropping the stream drops the channel, which
/// cancels the reply.
pub fn written<W: Send + 'static>(
    events: UnboundedReceiver<ReplyEvent>,
    writer: W,
    write: fn(&mut W, Option<ReplyEvent>) -> Vec<SseEvent>,
) -> impl Stream<Item = SseEvent> + Send + 'static {
    let state = WrittenState {
        events: Some(events),
        writer,
        ready: VecDeque::new(),
    };
    stream::unfold(state, move |mut state| async move {
        loop {
            if let Some(event) = state.ready.pop_front() {
                return Some((event, state));
            }
            let next = state.events.as_mut()?.recv().await;
            if next.is_none() {
                state.events = None;
            }
            state.ready.extend(write(&mut state.writer, next));
        }
    })
}

struct WrittenState<W> {
    /// The events of the reply, or `None` after the last one.
    events: Option<UnboundedReceiver<ReplyEvent>>,
    writer: W,
    /// The events that are written and not yet sent.
    ready: VecDeque<SseEvent>,
}
