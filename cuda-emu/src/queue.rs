//! The queue of a stream: work in order, done by a thread of its own while the calls that gave it return.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_driver_sys::CUresult;

use crate::exec::GraphLaunch;
use crate::ffi::Error;
use crate::machine::Machine;
use crate::work::Work;

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
}

/// Work of one stream in order.
pub(crate) struct Queue {
    machine: &'static Machine,
    sticky: Arc<Sticky>,
    lane: Mutex<QueueState>,
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

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a host function of the program.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Runs a host function of the program.
pub(crate) fn host_function(call: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    call();
    IN_HOST_FUNCTION.set(false);
}

impl Queue {
    pub(crate) fn new(machine: &'static Machine, sticky: Arc<Sticky>) -> Arc<Self> {
        let (lane, wake, progress) = (Mutex::default(), Condvar::new(), Condvar::new());
        Arc::new(Self { machine, sticky, lane, wake, progress })
    }

    /// Adds a task at the end.
    pub(crate) fn push(self: &Arc<Self>, task: Task) -> Ticket {
        let mut lane = self.lane();
        lane.tasks.push_back(task);
        lane.pushed += 1;
        if lane.working {
            self.wake.notify_one();
        } else {
            lane.working = true;
            let queue = Arc::clone(self);
            std::thread::spawn(move || queue.work());
        }
        Ticket { queue: Arc::clone(self), place: lane.pushed }
    }

    /// The work given so far.
    pub(crate) fn last(self: &Arc<Self>) -> Ticket {
        Ticket { queue: Arc::clone(self), place: self.lane().pushed }
    }

    fn lane(&self) -> MutexGuard<'_, QueueState> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.perform(task)));
            if outcome.is_err() {
                self.machine.finding("the emulator panicked while it ran work of a stream".into());
                self.sticky.set(CUresult::UNKNOWN);
            }
            self.lane().done += 1;
            self.progress.notify_all();
        }
    }

    fn next(&self) -> Option<Task> {
        let mut lane = self.lane();
        loop {
            if let Some(task) = lane.tasks.pop_front() {
                return Some(task);
            }
            let (woken, timeout) = self.wake.wait_timeout(lane, IDLE).unwrap_or_else(PoisonError::into_inner);
            lane = woken;
            if timeout.timed_out() && lane.tasks.is_empty() {
                lane.working = false;
                return None;
            }
        }
    }

    /// After a fault nothing runs any more, but everything still ends, so that nobody waits for ever.
    fn perform(&self, task: Task) {
        if self.sticky.check().is_err() {
            return;
        }
        let outcome = match task {
            Task::Run(work) => work.run(self.machine, None).map(drop),
            Task::Graph(run) => run.perform(self.machine),
            Task::Free(address) => self.machine.memory.free(address).map_err(Error::from),
            Task::After(ticket) => {
                ticket.wait();
                Ok(())
            }
            Task::AfterMark(mark) => {
                mark.wait();
                Ok(())
            }
            Task::Mark(reach) => {
                drop(reach);
                Ok(())
            }
        };
        if let Err(Error { code, text }) = outcome {
            self.machine.finding(text);
            self.sticky.set(code);
        }
    }
}

impl Ticket {
    pub(crate) fn is_done(&self) -> bool {
        self.queue.lane().done >= self.place
    }

    /// Waits until the work up to here has ended.
    pub(crate) fn wait(&self) {
        let mut lane = self.queue.lane();
        while lane.done < self.place {
            lane = self.queue.progress.wait(lane).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether this is a place in `queue`.
    pub(crate) fn is_in(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

/// One record of an event: the moment at which a stream or a graph came to it.
#[derive(Default)]
pub(crate) struct Mark {
    at: Mutex<Option<Instant>>,
    reached: Condvar,
}

impl Mark {
    /// When it was reached.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait(&self) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while at.is_none() {
            at = self.reached.wait(at).unwrap_or_else(PoisonError::into_inner);
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
