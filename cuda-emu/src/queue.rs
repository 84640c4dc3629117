//! The queue of a stream: work in order, done by a thread of its own while the calls that gave it return.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpwright_driver_sys::CUresult;

use crate::device::Device;
use crate::error::Error;
use crate::ffi::host::StreamCallback;
use crate::graph::launch::GraphLaunch;
use crate::work::Work;
use crate::work::mark::{Mark, Reach};

/// A worker with nothing to do ends after this long; the next push starts another.
const IDLE: Duration = Duration::from_secs(2);

/// The sticky error of a context: once a kernel failed, everything fails with its code.
#[derive(Debug, Default)]
pub(crate) struct Sticky(AtomicU32);

impl Sticky {
    /// The error, if there is one.
    pub(crate) fn check(&self) -> Result<(), CUresult> {
        CUresult(self.0.load(Relaxed)).ok()
    }

    /// Keeps the first error.
    pub(crate) fn set(&self, code: CUresult) {
        let _ = self.0.compare_exchange(0, code.0, Relaxed, Relaxed);
    }
}

/// What a queue holds.
pub(crate) enum Task {
    Run(Work),
    Graph(GraphLaunch),
    /// Frees memory in stream order.
    Free(u64),
    /// Waits for work of another queue.
    After(Ticket),
    /// Waits for an event.
    AfterMark(Arc<Mark>),
    /// Records an event.
    Mark(Reach),
    /// Calls a function of the program, also after an error.
    Callback(StreamCallback),
}

/// Work of one stream in order.
pub(crate) struct Queue {
    device: &'static Device,
    sticky: Arc<Sticky>,
    state: Mutex<QueueState>,
    wake: Condvar,
    progress: Condvar,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<Task>,
    pushed: u64,
    done: u64,
    working: bool,
}

/// A place in a queue: the work up to it.
#[derive(Clone)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    place: u64,
}

impl Queue {
    pub(crate) fn new(device: &'static Device, sticky: Arc<Sticky>) -> Arc<Self> {
        let (state, wake, progress) = (Mutex::default(), Condvar::new(), Condvar::new());
        Arc::new(Self { device, sticky, state, wake, progress })
    }

    /// Adds a task at the end.
    pub(crate) fn push(self: &Arc<Self>, task: Task) -> Ticket {
        let mut state = self.state();
        state.tasks.push_back(task);
        state.pushed += 1;
        if state.working {
            self.wake.notify_one();
        } else {
            state.working = true;
            let queue = Arc::clone(self);
            std::thread::spawn(move || queue.work());
        }
        Ticket { queue: Arc::clone(self), place: state.pushed }
    }

    /// The work given so far.
    pub(crate) fn last(self: &Arc<Self>) -> Ticket {
        Ticket { queue: Arc::clone(self), place: self.state().pushed }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            let reached = match task {
                Task::Mark(reach) => Some(reach),
                task => {
                    self.perform_or_fault(task);
                    None
                }
            };
            let mut state = self.state();
            state.done += 1;
            // Under the lock: if this was the last task, whoever sees the event reached sees the stream idle, and the
            // other way round.
            drop(reached);
            drop(state);
            self.progress.notify_all();
        }
    }

    fn perform_or_fault(&self, task: Task) {
        if catch_unwind(AssertUnwindSafe(|| self.perform(task))).is_err() {
            self.device.log.finding("the emulator panicked while it ran work of a stream".into());
            self.sticky.set(CUresult::UNKNOWN);
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            let (woken, timeout) =
                self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.tasks.is_empty() {
                state.working = false;
                return None;
            }
        }
    }

    /// After a fault nothing runs any more, but everything still ends, so that nobody waits for ever.
    fn perform(&self, task: Task) {
        if let Err(code) = self.sticky.check() {
            if let Task::Callback(callback) = task {
                callback.call(code);
            }
            return;
        }
        let outcome = match task {
            Task::Run(work) => work.run(self.device, None).map(drop),
            Task::Graph(launch) => launch.perform(self.device),
            Task::Free(address) => self.device.free(address).map_err(Error::from),
            Task::After(ticket) => {
                ticket.wait();
                Ok(())
            }
            Task::AfterMark(mark) => {
                mark.wait();
                Ok(())
            }
            Task::Callback(callback) => {
                callback.call(CUresult::SUCCESS);
                Ok(())
            }
            // An event is reached when its task counts as done.
            Task::Mark(_) => Ok(()),
        };
        if let Err(Error { code, text }) = outcome {
            self.device.log.finding(text);
            self.sticky.set(code);
        }
    }
}

impl Ticket {
    pub(crate) fn is_done(&self) -> bool {
        self.queue.state().done >= self.place
    }

    /// Waits until the work up to here has ended.
    pub(crate) fn wait(&self) {
        let mut state = self.queue.state();
        while state.done < self.place {
            state = self.queue.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether this is a place in `queue`.
    pub(crate) fn is_in(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}
