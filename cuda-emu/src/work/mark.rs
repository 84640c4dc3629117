//! Marks: moments that work reaches and other work waits for.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::turns::Ready;
use crate::work::order::{Clock, Moment};

/// One record of an event: the moment at which a stream or a graph came to it.
#[derive(Default)]
pub(crate) struct Mark {
    at: Mutex<Option<Instant>>,
    reached: Condvar,
    /// What has ended when it is reached.
    moment: OnceLock<Arc<Moment>>,
}

impl Mark {
    /// When it was reached.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is reached at this moment of its stream.
    pub(crate) fn happens(&self, moment: &Arc<Moment>) {
        let _ = self.moment.set(Arc::clone(moment));
    }

    /// The moment of its stream at which it is reached, if that was given to a stream.
    pub(crate) fn moment(&self) -> Option<&Moment> {
        self.moment.get().map(Arc::as_ref)
    }

    /// Comes after it.
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

/// Reaches its mark when it is dropped, so that skipped work reaches its marks as well.
pub(crate) struct Reach(pub(crate) Arc<Mark>);

impl Drop for Reach {
    fn drop(&mut self) {
        *self.0.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.reached.notify_all();
    }
}

/// The last record of an event, shared with the graphs that record it.
#[derive(Default)]
pub(crate) struct EventCell(Mutex<Option<Arc<Mark>>>);

impl EventCell {
    pub(crate) fn last(&self) -> Option<Arc<Mark>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A new record, reached when the result is dropped.
    pub(crate) fn record(&self) -> Reach {
        let mark = Arc::<Mark>::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&mark));
        Reach(mark)
    }
}
