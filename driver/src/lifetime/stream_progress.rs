//! Progress counters of a stream: the operations that were queued, and those known to be complete.
//!
//! Operations are numbered from 1. Operation `n` is complete once the stream has reached `n`.
//!
//! A launch does not record which objects it uses. Instead, the destructor of an object asks how
//! far each stream must come before no queued work can use the object (see
//! [`deferred_free`](crate::lifetime::deferred_free)). Only then does the stream record a fence: an
//! event after everything queued so far. Launches stay cheap this way, because destructors are much
//! rarer than launches.
//!
//! Locks are taken in this order, so that no two threads wait for each other: `waits`, the
//! [`CaptureGate`](crate::lifetime::capture_gate::CaptureGate), the context's list of streams,
//! `state`, the lock of an event, and the tables of
//! [`StreamOrder`](crate::lifetime::stream_order::StreamOrder).

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::ThreadId;

use driver_sys::{CUevent, CUevent_flags, CUgraphNode, CUresult, CUstream};

use crate::error::DriverError;
use crate::lifetime::driver::Driver;
use crate::lifetime::unpoisoned_lock::{lock, read, write};

/// A stream of the driver and its progress.
///
/// It outlives the last [`Stream`](crate::stream::Stream) handle until the stream is idle.
pub(crate) struct StreamProgress {
    pub(crate) raw: CUstream,
    /// The index in the tables of the context's
    /// [`StreamOrder`](crate::lifetime::stream_order::StreamOrder).
    pub(crate) slot: usize,
    pub(crate) origin: StreamOrigin,
    /// Whether a [`Stream`](crate::stream::Stream) handle exists.
    has_handle: AtomicBool,
    /// The number of operations known to be complete.
    done: AtomicU64,
    /// The number of operations that the host has waited for while no other stream counted.
    ///
    /// The tables are not updated for such a wait, because that would need their lock. They learn
    /// of it when the last [`Stream`](crate::stream::Stream) handle is dropped. That is early
    /// enough: a stream with a handle counts in any case, and the next stream begins after all of
    /// its work.
    waited: AtomicU64,
    state: Mutex<StreamState>,
    /// Shared by threads that wait for the stream on the host, and exclusive to a thread that
    /// begins a capture.
    ///
    /// A host wait on a capturing stream would invalidate the capture and return before the work is
    /// complete. This lock is taken before every other lock.
    waits: RwLock<()>,
}

/// The origin of a stream, which determines whether it is destroyed here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamOrigin {
    /// Created by this crate, which destroys it.
    Here,
    /// Created elsewhere. It is not destroyed, and other code may queue work in it or capture it.
    Elsewhere,
}

/// The part of a [`StreamProgress`] that is guarded by the stream's lock.
#[derive(Default)]
pub(crate) struct StreamState {
    /// The capture that has the stream, if any. It receives the work queued meanwhile.
    pub(crate) capture: Option<Arc<CapturedStreams>>,
    /// The number of operations queued.
    pub(crate) queued: u64,
    /// Recorded fences in order, each with the number of operations before it.
    fences: VecDeque<Fence>,
    /// Events that can be recorded again.
    spare: Vec<CUevent>,
}

/// An event that was recorded after `queued` operations.
#[derive(Clone, Copy)]
struct Fence {
    queued: u64,
    event: CUevent,
}

/// A capture in progress. The streams that take part in it share it.
pub(crate) struct CapturedStreams {
    thread: ThreadId,
    /// Objects that were launched into the capture and must outlive it.
    kept: Mutex<Vec<KeptObject>>,
    /// The streams that joined the capture.
    joined: Mutex<Vec<Arc<StreamProgress>>>,
}

/// An object that was launched into a capture, and its node if the driver reported one.
pub(crate) struct KeptObject {
    pub(crate) node: Option<CUgraphNode>,
    pub(crate) object: Box<dyn Any + Send + Sync>,
}

/// A point in a stream, which is reached when `queued` operations are complete.
#[derive(Clone)]
pub(crate) struct ProgressMark {
    pub(crate) progress: Arc<StreamProgress>,
    pub(crate) queued: u64,
}

impl CapturedStreams {
    /// Returns a new capture that belongs to the current thread.
    pub(crate) fn new() -> Arc<Self> {
        let thread = std::thread::current().id();
        Arc::new(Self {
            thread,
            kept: Mutex::default(),
            joined: Mutex::default(),
        })
    }

    /// Returns true if the current thread is the one that captures.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    pub(crate) fn keep(&self, node: Option<CUgraphNode>, what: impl Any + Send + Sync) {
        let object = Box::new(what);
        lock(&self.kept).push(KeptObject { node, object });
    }

    pub(crate) fn take_kept(&self) -> Vec<KeptObject> {
        std::mem::take(&mut *lock(&self.kept))
    }

    pub(crate) fn join(&self, stream: &Arc<StreamProgress>) {
        lock(&self.joined).push(stream.clone());
    }

    pub(crate) fn take_joined(&self) -> Vec<Arc<StreamProgress>> {
        std::mem::take(&mut *lock(&self.joined))
    }
}

impl StreamState {
    /// Returns the fence after everything queued so far, if it was recorded.
    pub(crate) fn last_fence(&self) -> Option<CUevent> {
        self.fences
            .back()
            .filter(|fence| fence.queued == self.queued)
            .map(|fence| fence.event)
    }
}

impl StreamProgress {
    /// Returns the `StreamProgress` of a stream whose first `done` operations count as complete.
    pub(crate) fn new(raw: CUstream, slot: usize, origin: StreamOrigin, done: u64) -> Self {
        let state = Mutex::new(StreamState {
            queued: done,
            ..StreamState::default()
        });
        let has_handle = AtomicBool::new(true);
        let waits = RwLock::default();
        let done = AtomicU64::new(done);
        let waited = AtomicU64::new(0);
        Self {
            raw,
            slot,
            origin,
            has_handle,
            done,
            waited,
            state,
            waits,
        }
    }

    /// Locks the stream for queueing work.
    ///
    /// No object with a destructor of this crate may be dropped while the guard lives, because such
    /// a destructor may take the same lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// Returns the right to wait for the stream on the host. No capture begins while the guard
    /// lives.
    pub(crate) fn waiting(&self) -> RwLockReadGuard<'_, ()> {
        read(&self.waits)
    }

    /// Blocks until no thread waits for the stream, and keeps others from waiting while the guard
    /// lives.
    pub(crate) fn unwaited(&self) -> RwLockWriteGuard<'_, ()> {
        write(&self.waits)
    }

    /// Returns the number of operations queued so far.
    pub(crate) fn queued(&self) -> u64 {
        self.lock().queued
    }

    /// Records that `queued` operations are complete.
    ///
    /// This takes no lock, so reached fences stay in the list until the next call that holds the
    /// lock.
    pub(crate) fn reached(&self, queued: u64) {
        self.done.fetch_max(queued, AcqRel);
    }

    /// Records that the host has waited for `queued` operations while no other stream counted.
    ///
    /// The caller must have a [`Stream`](crate::stream::Stream) handle of this stream.
    #[inline]
    pub(crate) fn was_waited_for(&self, queued: u64) {
        self.waited.fetch_max(queued, AcqRel);
    }

    /// Returns the number of operations passed to [`was_waited_for`](Self::was_waited_for).
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Acquire)
    }

    /// Returns true if a [`Stream`](crate::stream::Stream) handle exists.
    #[inline]
    pub(crate) fn has_handle(&self) -> bool {
        self.has_handle.load(Acquire)
    }

    /// Records that the last [`Stream`](crate::stream::Stream) handle was dropped.
    pub(crate) fn leave(&self) {
        self.has_handle.store(false, Release);
    }

    /// Returns true if `queued` operations are known to be complete.
    pub(crate) fn has_reached(&self, queued: u64) -> bool {
        self.done() >= queued
    }

    /// Returns the point after everything queued so far, or `None` if all of it is complete.
    ///
    /// With `fence`, the caller has made the context current and a fence is recorded there. While
    /// the stream captures, no event can be recorded, because it would become part of the capture.
    /// The fence that was recorded when the capture began serves instead.
    pub(crate) fn mark(self: &Arc<Self>, fence: Option<Driver>) -> Option<ProgressMark> {
        let mut state = self.lock();
        if self.done() == state.queued {
            return None;
        }
        if let Some(driver) = fence.filter(|_| state.capture.is_none()) {
            self.fence(&mut state, driver);
        }

        Some(ProgressMark {
            progress: self.clone(),
            queued: state.queued,
        })
    }

    /// Records a fence after everything queued so far, unless there is one.
    ///
    /// If the driver cannot create or record an event, the work counts as complete only once the
    /// whole stream is idle.
    pub(crate) fn fence(&self, state: &mut StreamState, driver: Driver) {
        if self.done() == state.queued || state.last_fence().is_some() {
            return;
        }
        self.recycle(state);
        match state.spare.pop().map_or_else(|| new_event(driver), Ok) {
            // SAFETY: the `StreamProgress` owns both the event and its place in the context's list
            // of streams, so both are alive and of one context. The caller made that context
            // current.
            Ok(event) => match unsafe { cu!(driver, cuEventRecord(event, self.raw)) } {
                Ok(()) => state.fences.push_back(Fence {
                    queued: state.queued,
                    event,
                }),
                Err(_) => state.spare.push(event),
            },
            Err(error) => {
                log_event!(warn, %error, "memory in use is released when the stream is idle")
            }
        }
    }

    /// Updates the progress of the stream, unless another thread queues work at the moment.
    pub(crate) fn poll(&self, driver: Driver) {
        if let Ok(mut state) = self.state.try_lock() {
            self.look(&mut state, driver);
        }
    }

    /// Updates the progress of the stream by asking the driver.
    ///
    /// Does nothing while the stream captures, because the query would invalidate the capture.
    pub(crate) fn look(&self, state: &mut StreamState, driver: Driver) {
        if state.capture.is_some() {
            return;
        }

        self.recycle(state);

        // Fences are reached in the order of recording, so the first open one ends the search. The
        // stream itself is asked only if no fence is open. A busy stream with a fence in front
        // costs one query.
        while let Some(&Fence { queued, event }) = state.fences.front() {
            // SAFETY: the `StreamProgress` owns the event. A query changes nothing.
            if !says_done(unsafe { (driver.api().cuEventQuery)(event) }) {
                return;
            }
            self.reached(queued);
            self.recycle(state);
        }

        if self.done() < state.queued {
            // SAFETY: the stream is destroyed only after its `StreamProgress` has left the
            // context's list. A query changes nothing.
            if says_done(unsafe { (driver.api().cuStreamQuery)(self.raw) }) {
                self.reached(state.queued);
                self.recycle(state);
            }
        }
    }

    /// Returns true if everything queued is known to be complete and no capture has the stream.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.capture.is_none() && self.done() == state.queued
    }

    #[inline]
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Acquire).max(self.waited())
    }

    /// Moves fences that were reached to the spare events.
    fn recycle(&self, state: &mut StreamState) {
        let done = self.done();
        while state
            .fences
            .front()
            .is_some_and(|fence| fence.queued <= done)
        {
            state
                .spare
                .extend(state.fences.pop_front().map(|fence| fence.event));
        }
    }

    /// Removes and returns all events, which the caller destroys with the stream.
    pub(crate) fn take_events(&self) -> Vec<CUevent> {
        let mut state = self.lock();
        let mut events = std::mem::take(&mut state.spare);
        events.extend(state.fences.drain(..).map(|fence| fence.event));
        events
    }
}

impl ProgressMark {
    pub(crate) fn is_reached(&self) -> bool {
        self.progress.has_reached(self.queued)
    }

    /// Makes `later` wait for this point.
    ///
    /// The wait is a fence if one was recorded at or after the point, and a host wait otherwise. A
    /// fence that was reached is gone, but then there is nothing left to wait for.
    ///
    /// # Errors
    /// Returns an error if a host wait is needed while the stream captures, or if the driver cannot
    /// wait.
    pub(crate) fn wait_in(
        &self,
        later: &StreamProgress,
        driver: Driver,
    ) -> Result<(), DriverError> {
        // The lock keeps fences from being recycled between the search and the wait.
        let state = self.progress.lock();
        if self.is_reached() {
            return Ok(());
        }
        match state
            .fences
            .iter()
            .find(|fence| fence.queued >= self.queued)
        {
            // SAFETY: each `StreamProgress` owns the stream and the event, which are of one
            // context. The caller made that context current.
            Some(fence) => unsafe { cu!(driver, cuStreamWaitEvent(later.raw, fence.event, 0)) },
            None if state.capture.is_some() => {
                driver.check("cuStreamSynchronize", CUresult::STREAM_CAPTURE_UNSUPPORTED)
            }
            // SAFETY: the mark shares the `StreamProgress`, so the stream is alive. It does not
            // capture.
            None => unsafe { cu!(driver, cuStreamSynchronize(self.progress.raw)) },
        }
    }
}

/// Returns true if a query shows that the work no longer runs, because it is complete or the device
/// is lost.
///
/// Any other code does not show this. For example, an invalid handle does not mean idle.
fn says_done(code: CUresult) -> bool {
    code == CUresult::SUCCESS || code.is_device_fault()
}

fn new_event(driver: Driver) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` is a local variable that the driver may write.
    unsafe {
        cu!(
            driver,
            cuEventCreate(&mut event, CUevent_flags::DISABLE_TIMING)
        )
    }?;
    Ok(event)
}
