//! Tracks whether streams or threads of the program are active, for kernels that wait for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::turns::Ready;

/// A stream that may end the wait of a kernel in another stream.
pub(crate) trait ActiveStream: Send + Sync {
    /// The number of the stream.
    fn number(&self) -> u32;

    /// Returns true if the stream has work that can run.
    fn may_run(&self) -> bool;
}

/// The streams and the waiting threads of a program, and a count of changes.
#[derive(Default)]
pub(crate) struct Activity {
    changes: AtomicU64,
    state: Mutex<ActivityState>,
}

#[derive(Default)]
struct ActivityState {
    streams: Vec<Weak<dyn ActiveStream>>,
    /// The threads of the program that wait, each with a function that tests whether the wait has
    /// ended.
    waiting: BTreeMap<u64, Ready>,
    next: u64,
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream.
    pub(crate) fn add<S: ActiveStream + 'static>(&self, stream: &Arc<S>) {
        let mut state = self.state();
        state.streams.retain(|stream| stream.strong_count() > 0);
        let stream: Weak<S> = Arc::downgrade(stream);
        state.streams.push(stream);
    }

    /// Returns the number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Returns true if a stream other than the one with this number may run, now or later, without
    /// it.
    pub(crate) fn another_stream_may_run(&self, number: u32) -> bool {
        let state = self.state();
        let streams = state.streams.iter().filter_map(Weak::upgrade);
        streams
            .filter(|stream| stream.number() != number)
            .any(|stream| stream.may_run())
    }

    /// Returns the number of threads of the program whose waits have not ended.
    pub(crate) fn waiting_threads(&self) -> usize {
        self.state()
            .waiting
            .values()
            .filter(|ready| !ready())
            .count()
    }

    /// Records that memory may have been written.
    ///
    /// The caller must call it after the write and before the writer is seen to be idle.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// Records that a thread of the program waits until `ready` returns true.
    ///
    /// The wait ends when the result is dropped.
    pub(crate) fn program_waits(&self, ready: Ready) -> ThreadWaits<'_> {
        self.changed();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, ready);
        ThreadWaits {
            activity: self,
            number,
        }
    }
}

/// A wait of a thread of the program, until this is dropped.
pub(crate) struct ThreadWaits<'a> {
    activity: &'a Activity,
    number: u64,
}

impl Drop for ThreadWaits<'_> {
    fn drop(&mut self) {
        self.activity.state().waiting.remove(&self.number);
    }
}
