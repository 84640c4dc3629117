//! Events that wait until the state that they belong to is published.

use tokio::sync::mpsc;

use super::metrics::{self, TokenTimes};
use super::request::GenerationEvent;

/// The events of a step, in order, and the metrics of its tokens.
///
/// Events are sent after the scheduler's status is updated. Whoever receives the end of a generation
/// then sees a status without it. Metrics wait too, because the device waits between two steps:
/// recording those of 256 sequences takes as long as a few of its kernels.
#[derive(Default)]
pub(super) struct Outbox {
    events: Vec<(mpsc::UnboundedSender<GenerationEvent>, GenerationEvent)>,
    times: Vec<TokenTimes>,
}

impl Outbox {
    /// Adds the metrics of the tokens that a sequence has got.
    pub(super) fn record(&mut self, times: TokenTimes) {
        self.times.push(times);
    }

    pub(super) fn push(
        &mut self,
        receiver: &mpsc::UnboundedSender<GenerationEvent>,
        event: GenerationEvent,
    ) {
        self.events.push((receiver.clone(), event));
    }

    /// Moves everything of another outbox behind that of this one.
    pub(super) fn append(&mut self, later: &mut Outbox) {
        self.events.append(&mut later.events);
        self.times.append(&mut later.times);
    }

    /// Records all metrics and sends all events.
    pub(super) fn send(&mut self) {
        metrics::tokens(&self.times);
        self.times.clear();
        for (receiver, event) in self.events.drain(..) {
            // A closed channel is a request that was cancelled. The next step removes it.
            let _ = receiver.send(event);
        }
    }
}
