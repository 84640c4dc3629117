//! What a stream was given and how far it has come, as numbers: the n-th piece of work is done when the stream has
//! reached n.
//!
//! Nothing that work needs is kept for each launch. A destructor asks instead how far each stream must come before
//! nothing can use what it releases (see `release`), and a stream finds out how far it has come by events that it
//! records only then: fences.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::ThreadId;

use driver_sys::{CUevent, CUevent_flags, CUgraphNode, CUresult, CUstream};

use crate::lock::{lock, read, write};
use crate::{Driver, DriverError};

/// The driver's stream and what it was given. It outlives the [`Stream`](crate::Stream) until it is idle.
pub(crate) struct Timeline {
    pub(crate) raw: CUstream,
    /// Its place in the tables of the context's [`StreamOrder`](crate::order::StreamOrder).
    pub(crate) slot: usize,
    /// Whether somebody else made it, who destroys it.
    pub(crate) borrowed: bool,
    /// Whether there is a [`Stream`](crate::Stream) of it.
    held: AtomicBool,
    /// Pieces of work known to be done.
    done: AtomicU64,
    /// Those of them that the host has waited for while no other stream counted. The tables hear of it when the last
    /// [`Stream`](crate::Stream) is dropped: until then the stream counts whatever was waited for, and the next stream
    /// begins after all of its work.
    waited: AtomicU64,
    state: Mutex<State>,
    /// Held by who waits for the stream on the host, and alone by who begins a capture: a wait would break it, and would
    /// end before the work. Taken before every other lock.
    waits: RwLock<()>,
}

/// Under the stream's lock: whether it captures, and the numbers.
#[derive(Default)]
pub(crate) struct State {
    /// Where captured work goes, while a capture has the stream.
    pub(crate) capture: Option<Arc<Captured>>,
    /// Pieces of work given.
    pub(crate) queued: u64,
    /// Events, each with the pieces of work before it, in order.
    fences: VecDeque<(u64, CUevent)>,
    /// Events to use again.
    spare: Vec<CUevent>,
}

/// What a capture has: its streams point to it while it lasts.
pub(crate) struct Captured {
    thread: ThreadId,
    /// What was launched into it and must outlive it.
    kept: Mutex<Vec<Kept>>,
    /// The streams that joined it.
    joined: Mutex<Vec<Arc<Timeline>>>,
}

/// What was launched into a capture, and its node, if the driver told.
pub(crate) type Kept = (Option<CUgraphNode>, Box<dyn Any + Send + Sync>);

/// A place in a stream: reached when so many pieces of work are done.
#[derive(Clone)]
pub(crate) struct Mark {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) queued: u64,
}

impl Captured {
    /// A capture of this thread.
    pub(crate) fn new() -> Arc<Self> {
        let thread = std::thread::current().id();
        Arc::new(Self {
            thread,
            kept: Mutex::default(),
            joined: Mutex::default(),
        })
    }

    /// Whether this thread captures.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    pub(crate) fn keep(&self, node: Option<CUgraphNode>, what: impl Any + Send + Sync) {
        lock(&self.kept).push((node, Box::new(what)));
    }

    pub(crate) fn take_kept(&self) -> Vec<Kept> {
        std::mem::take(&mut *lock(&self.kept))
    }

    pub(crate) fn join(&self, stream: &Arc<Timeline>) {
        lock(&self.joined).push(stream.clone());
    }

    pub(crate) fn take_joined(&self) -> Vec<Arc<Timeline>> {
        std::mem::take(&mut *lock(&self.joined))
    }
}

impl State {
    /// The event after what was given so far, if there is one.
    pub(crate) fn last_fence(&self) -> Option<CUevent> {
        self.fences
            .back()
            .filter(|(queued, _)| *queued == self.queued)
            .map(|(_, event)| *event)
    }
}

impl Timeline {
    /// A stream of which `done` pieces of work are counted as done.
    pub(crate) fn new(raw: CUstream, slot: usize, borrowed: bool, done: u64) -> Self {
        let state = Mutex::new(State {
            queued: done,
            ..State::default()
        });
        let (held, waits) = (AtomicBool::new(true), RwLock::default());
        let (done, waited) = (AtomicU64::new(done), AtomicU64::new(0));
        Self {
            raw,
            slot,
            borrowed,
            held,
            done,
            waited,
            state,
            waits,
        }
    }

    /// The right to give the stream work. Nothing that has a destructor of this crate may be dropped under it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The right to wait for the stream: until it is given back no capture begins.
    pub(crate) fn waiting(&self) -> RwLockReadGuard<'_, ()> {
        read(&self.waits)
    }

    /// Nobody waits for the stream, until this is given back.
    pub(crate) fn unwaited(&self) -> RwLockWriteGuard<'_, ()> {
        write(&self.waits)
    }

    /// The pieces of work given so far.
    pub(crate) fn queued(&self) -> u64 {
        self.lock().queued
    }

    /// Remembers that so many pieces of work are done. Without the lock: fences that are reached by this are found later.
    pub(crate) fn reached(&self, queued: u64) {
        self.done.fetch_max(queued, AcqRel);
    }

    /// The host, which has a share of the stream, has waited for so many pieces of work while no other stream counted.
    #[inline]
    pub(crate) fn was_waited_for(&self, queued: u64) {
        self.waited.fetch_max(queued, AcqRel);
    }

    /// The pieces of work that were waited for in that way.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Acquire)
    }

    /// Whether there is a [`Stream`](crate::Stream) of it.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Acquire)
    }

    /// The last [`Stream`](crate::Stream) of it is dropped.
    pub(crate) fn leave(&self) {
        self.held.store(false, Release);
    }

    /// Whether so many pieces of work are known to be done.
    pub(crate) fn has_reached(&self, queued: u64) -> bool {
        self.done() >= queued
    }

    /// The place after what was given so far; none if all of it is done. There is a fence if the caller can make one,
    /// having made the context current; while the stream captures, it is the one that the beginning of the capture left.
    pub(crate) fn mark(self: &Arc<Self>, fence: Option<Driver>) -> Option<Mark> {
        let mut state = self.lock();
        if self.done() == state.queued {
            return None;
        }
        if let Some(driver) = fence.filter(|_| state.capture.is_none()) {
            self.fence(&mut state, driver);
        }
        Some(Mark {
            timeline: self.clone(),
            queued: state.queued,
        })
    }

    /// Sees to a fence after what was given so far. Without one, where the driver refuses an event, the work counts as
    /// done when the stream is idle.
    pub(crate) fn fence(&self, state: &mut State, driver: Driver) {
        if self.done() == state.queued || state.last_fence().is_some() {
            return;
        }
        self.recycle(state);
        match state.spare.pop().map_or_else(|| new_event(driver), Ok) {
            // SAFETY: event and stream are alive and of one context, which the caller made current.
            Ok(event) => match unsafe { cu!(driver, cuEventRecord(event, self.raw)) } {
                Ok(()) => state.fences.push_back((state.queued, event)),
                Err(_) => state.spare.push(event),
            },
            Err(error) => tell!(warn, %error, "memory in use is released when the stream is idle"),
        }
    }

    /// Finds out how far the stream has come, unless it is given work now.
    pub(crate) fn poll(&self, driver: Driver) {
        if let Ok(mut state) = self.state.try_lock() {
            self.look(&mut state, driver);
        }
    }

    /// Finds out how far the stream has come. A stream that captures may not be asked.
    pub(crate) fn look(&self, state: &mut State, driver: Driver) {
        if state.capture.is_some() {
            return;
        }
        self.recycle(state);
        while let Some(&(queued, event)) = state.fences.front() {
            // SAFETY: the event is alive; a query changes nothing.
            if !says_done(unsafe { (driver.api().cuEventQuery)(event) }) {
                return;
            }
            self.reached(queued);
            self.recycle(state);
        }
        if self.done() < state.queued {
            // SAFETY: the stream is alive; a query changes nothing.
            if says_done(unsafe { (driver.api().cuStreamQuery)(self.raw) }) {
                self.reached(state.queued);
                self.recycle(state);
            }
        }
    }

    /// Whether everything given is known to be done, and nobody captures.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.capture.is_none() && self.done() == state.queued
    }

    #[inline]
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Acquire).max(self.waited())
    }

    /// Takes back the fences that are reached.
    fn recycle(&self, state: &mut State) {
        let done = self.done();
        while let Some(&(_, event)) = state.fences.front().filter(|(at, _)| *at <= done) {
            state.fences.pop_front();
            state.spare.push(event);
        }
    }

    /// The events, to be destroyed with the stream.
    pub(crate) fn take_events(&self) -> Vec<CUevent> {
        let mut state = self.lock();
        let mut events = std::mem::take(&mut state.spare);
        events.extend(state.fences.drain(..).map(|(_, event)| event));
        events
    }
}

impl Mark {
    pub(crate) fn is_reached(&self) -> bool {
        self.timeline.has_reached(self.queued)
    }

    /// Lets the other stream wait for this place: by the fence there, or where there is none on the host. A fence that
    /// was reached is gone, and nothing is left to wait for; a stream that captures may not be waited for.
    pub(crate) fn hold(&self, later: &Timeline, driver: Driver) -> Result<(), DriverError> {
        let state = self.timeline.lock();
        if self.is_reached() {
            return Ok(());
        }
        match state.fences.iter().find(|(at, _)| *at >= self.queued) {
            // SAFETY: stream and event are alive and of one context, which the caller made current.
            Some((_, event)) => unsafe { cu!(driver, cuStreamWaitEvent(later.raw, *event, 0)) },
            None if state.capture.is_some() => {
                driver.check("cuStreamSynchronize", CUresult::STREAM_CAPTURE_UNSUPPORTED)
            }
            // SAFETY: the stream is alive.
            None => unsafe { cu!(driver, cuStreamSynchronize(self.timeline.raw)) },
        }
    }
}

/// Whether an answer says that nothing of what was asked for runs: it is done, or the device is lost. Any other code
/// says nothing.
fn says_done(code: CUresult) -> bool {
    code == CUresult::SUCCESS || code.is_device_fault()
}

fn new_event(driver: Driver) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` is ours to write.
    unsafe {
        cu!(
            driver,
            cuEventCreate(&mut event, CUevent_flags::DISABLE_TIMING)
        )
    }?;
    Ok(event)
}
