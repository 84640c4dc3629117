//! Marks: moments that work reaches and for which other work waits.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::turns::Ready;
use crate::work::order::{Clock, Moment};

/// One record of an event: the moment at which a stream or a graph reaches it.
#[derive(Default)]
pub(crate) struct EventMark {
    at: Mutex<Option<Instant>>,
    reached: Condvar,
    /// The moment in its stream.
    moment: OnceLock<Arc<Moment>>,
}

impl EventMark {
    /// Returns the time at which it was reached.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the moment of its stream at which it is reached.
    pub(crate) fn happens(&self, moment: &Arc<Moment>) {
        let _ = self.moment.set(Arc::clone(moment));
    }

    /// Returns the moment of its stream at which it is reached, if it was enqueued in a stream.
    pub(crate) fn moment(&self) -> Option<&Moment> {
        self.moment.get().map(Arc::as_ref)
    }

    /// Orders `clock` after it.
    pub(crate) fn follow(&self, clock: &mut Clock) {
        if let Some(moment) = self.moment() {
            clock.join(moment.clock());
        }
    }

    /// Returns a function that tests whether it was reached.
    pub(crate) fn ready(self: &Arc<Self>) -> Ready {
        let mark = Arc::clone(self);
        Box::new(move || mark.at().is_some())
    }

    pub(crate) fn wait(&self) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while at.is_none() {
            at = self
                .reached
                .wait(at)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A pending mark, which is reached when this is dropped. Skipped work therefore reaches its marks
/// as well.
pub(crate) struct PendingMark(pub(crate) Arc<EventMark>);

impl Drop for PendingMark {
    fn drop(&mut self) {
        *self.0.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.reached.notify_all();
    }
}

/// The last record of an event, shared with the graphs that record it.
#[derive(Default)]
pub(crate) struct EventCell(Mutex<Option<Arc<EventMark>>>);

impl EventCell {
    pub(crate) fn last(&self) -> Option<Arc<EventMark>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Starts a new record, which is reached when the result is dropped.
    pub(crate) fn record(&self) -> PendingMark {
        let mark = Arc::<EventMark>::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&mark));
        PendingMark(mark)
    }
}
