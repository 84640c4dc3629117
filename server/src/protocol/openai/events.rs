//! Streams of server-sent events.

use futures_util::{Stream, StreamExt, stream};

use super::head::StreamState;
use crate::protocol::shared::SseEvent;
use crate::reply::ReplyEvent;

/// Writes server-sent events for the events of replies.
pub trait StreamWriter {
    /// Returns the state of the stream.
    fn state(&self) -> StreamState;

    /// Returns the server-sent events for an event of a reply.
    fn write(&mut self, event: ReplyEvent) -> Vec<SseEvent>;

    /// Returns the server-sent events for the end of all replies. An end that comes too early is an
    /// error.
    fn close(&mut self) -> Vec<SseEvent>;
}

/// Returns the server-sent events of replies, up to the last one that the writer has. Dropping the
/// stream drops the replies, which cancels them.
pub(super) fn written<S, W>(events: S, writer: W) -> impl Stream<Item = SseEvent> + Send + 'static
where
    S: Stream<Item = ReplyEvent> + Send + Unpin + 'static,
    W: StreamWriter + Send + 'static,
{
    let groups = stream::unfold((events, writer), |(mut events, mut writer)| async move {
        match writer.state() {
            StreamState::Closed => None,
            StreamState::Open => {
                let group = match events.next().await {
                    Some(event) => writer.write(event),
                    None => writer.close(),
                };
                Some((stream::iter(group), (events, writer)))
            }
        }
    });
    groups.flatten()
}
