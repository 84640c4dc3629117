//! The server-sent events of replies, which a writer makes from the events of the replies.

use futures_util::{Stream, StreamExt, stream};

use super::sse::SseEvent;
use crate::reply::ReplyEvent;

/// Writes server-sent events for the events of replies.
pub trait StreamWriter {
    /// Returns the server-sent events for an event of a reply.
    fn write(&mut self, event: ReplyEvent) -> Vec<SseEvent>;

    /// Returns the server-sent events for the end of all replies. An end that comes too early is an
    /// error.
    fn close(&mut self) -> Vec<SseEvent>;

    /// Returns true if the stream has ended, although further events of replies may arrive.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Returns the server-sent events of replies, up to the last one that the writer has. Dropping the
/// stream drops the replies, which cancels them.
pub fn written<S, W>(events: S, writer: W) -> impl Stream<Item = SseEvent> + Send + 'static
where
    S: Stream<Item = ReplyEvent> + Send + Unpin + 'static,
    W: StreamWriter + Send + 'static,
{
    // There are no events of replies any more after the writer was closed.
    let state = (Some(events), writer);
    let groups = stream::unfold(state, |(events, mut writer)| async move {
        if writer.is_closed() {
            return None;
        }
        let mut events = events?;
        let (events, group) = match events.next().await {
            Some(event) => (Some(events), writer.write(event)),
            None => (None, writer.close()),
        };
        Some((stream::iter(group), (events, writer)))
    });
    groups.flatten()
}
