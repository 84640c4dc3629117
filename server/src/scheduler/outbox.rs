//! Events that wait until the state that they belong to is published.

use tokio::sync::mpsc;

use super::request::GenerationEvent;

/// The events of a step, in order.
///
/// They are sent after the scheduler's status is updated. Whoever receives the end of a generation
/// then sees a status without it.
#[derive(Default)]
pub(super) struct Outbox {
    events: Vec<(mpsc::UnboundedSender<GenerationEvent>, GenerationEvent)>,
}

impl Outbox {
    pub(super) fn push(
        &mut self,
        receiver: &mpsc::UnboundedSender<GenerationEvent>,
        event: GenerationEvent,
    ) {
        self.events.push((receiver.clone(), event));
    }

    /// Moves all events of another outbox behind those of this one.
    pub(super) fn append(&mut self, later: &mut Outbox) {
        self.events.append(&mut later.events);
    }

    /// Sends all events.
    pub(super) fn send(&mut self) {
        for (receiver, event) in self.events.drain(..) {
            // A closed channel is a request that was cancelled. The next step removes it.
            let _ = receiver.send(event);
        }
    }
}
