//! The queue of a stream: work in order, which a separate thread performs while calls return.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptx_emu::Accesses;
use warpwright_driver_sys::CUresult;

use crate::activity::ActiveStream;
use crate::crew::OwnThread;
use crate::device::EmulatedDevice;
use crate::error::{Error, Result};
use crate::ffi::host::StreamCallback;
use crate::graph::compare::compare_streams;
use crate::graph::launch::{GraphLaunch, LaunchPlace};
use crate::report::Details;
use crate::turns::Ready;
use crate::work::mark::{EventMark, PendingMark};
use crate::work::order::{Clock, Moment};
use crate::work::{StreamWork, WorkSite};

/// The time after which an idle worker ends. The next push starts another one.
const IDLE: Duration = Duration::from_secs(2);

/// The sticky error of a context: after a kernel has failed, everything fails with its code.
#[derive(Debug, Default)]
pub(crate) struct Sticky(AtomicU32);

impl Sticky {
    /// Returns the error, if there is one.
    pub(crate) fn check(&self) -> Result<(), CUresult> {
        CUresult(self.0.load(Relaxed)).ok()
    }

    /// Stores the error, unless there is one already.
    pub(crate) fn set(&self, code: CUresult) {
        let _ = self.0.compare_exchange(0, code.0, Relaxed, Relaxed);
    }
}

/// An entry of a queue.
pub(crate) enum Task {
    Run(StreamWork),
    Graph(GraphLaunch),
    /// Frees memory in stream order.
    Free(u64),
    /// Waits for work of another queue.
    After(Ticket),
    /// Waits for an event.
    AfterMark(Arc<EventMark>),
    /// Records an event.
    Mark(PendingMark),
    /// Calls a function of the program, even after an error.
    Callback(StreamCallback),
}

/// The work of one stream, in order.
pub(crate) struct WorkQueue {
    device: &'static EmulatedDevice,
    sticky: Arc<Sticky>,
    /// The number of the stream.
    number: u32,
    /// The name of the stream in reports.
    name: String,
    state: Mutex<QueueState>,
    /// A copy of the count in the state, for readers that must not lock it.
    done: AtomicU64,
    wake: Condvar,
    progress: Condvar,
    /// A function that tests whether the queue can continue, while it waits for another stream.
    blocked: Mutex<Option<Ready>>,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<(Task, Arc<Moment>)>,
    /// The vector clock of the last task, and its moment.
    clock: Clock,
    last: Arc<Moment>,
    pushed: u64,
    done: u64,
    working: bool,
}

/// A position in a queue, which represents all work up to it.
#[derive(Clone)]
pub(crate) struct Ticket {
    queue: Arc<WorkQueue>,
    place: u64,
    moment: Arc<Moment>,
}

impl ActiveStream for WorkQueue {
    fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if the queue runs something, or can do so without another stream or the
    /// program.
    fn may_run(&self) -> bool {
        let state = self.state();
        let blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        state.done < state.pushed && blocked.as_ref().is_none_or(|ready| ready())
    }
}

impl WorkQueue {
    /// Returns a queue for a stream of this kind.
    pub(crate) fn new(
        device: &'static EmulatedDevice,
        sticky: Arc<Sticky>,
        kind: &str,
    ) -> Arc<Self> {
        let number = device.order.queue();
        let queue = Arc::new(Self {
            device,
            sticky,
            number,
            name: format!("{kind} {number}"),
            done: AtomicU64::new(0),
            state: Mutex::default(),
            wake: Condvar::new(),
            progress: Condvar::new(),
            blocked: Mutex::default(),
        });
        device.activity.add(&queue);
        queue
    }

    /// Returns the name of the stream in reports.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds a task at the end. Starts a worker thread if none is running.
    pub(crate) fn push(self: &Arc<Self>, task: Task) -> Ticket {
        let mut state = self.state();

        // The clock advances under the lock of the queue, so that the numbers of work follow its
        // order.
        task.follow(&mut state.clock);
        state.last = self.device.order.give(self.number, &mut state.clock);
        task.happens(&state.last);
        let moment = Arc::clone(&state.last);
        if state.done == state.pushed {
            self.device.turns.comes(self.number);
        }

        state.tasks.push_back((task, Arc::clone(&moment)));
        state.pushed += 1;
        if state.working {
            self.wake.notify_one();
        } else {
            state.working = true;
            let queue = Arc::clone(self);
            std::thread::spawn(move || {
                let _own = OwnThread::register();
                queue.work();
            });
        }

        Ticket {
            queue: Arc::clone(self),
            place: state.pushed,
            moment,
        }
    }

    /// Returns the position after all work so far.
    pub(crate) fn last(self: &Arc<Self>) -> Ticket {
        let state = self.state();
        Ticket {
            queue: Arc::clone(self),
            place: state.pushed,
            moment: Arc::clone(&state.last),
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some((task, moment)) = self.next() {
            let reached = match task {
                Task::Mark(reach) => Some(reach),
                task => {
                    self.in_turn(task, &moment);
                    None
                }
            };
            self.device.order.ended(&moment);
            self.device.activity.changed();
            let mut state = self.state();
            state.done += 1;
            self.done.store(state.done, Release);
            if state.done == state.pushed {
                self.device.turns.leaves(self.number);
            }

            // The event must be reached under the lock. After the last task, a thread that sees the
            // event reached then also sees the stream idle, and vice versa.
            drop(reached);
            drop(state);
            self.progress.notify_all();
        }
    }

    /// Performs a task when the scheduler selects this queue. A task that waits for something else
    /// runs without being selected.
    fn in_turn(&self, task: Task, moment: &Arc<Moment>) {
        match task.waits() {
            Some(ready) => self.device.turns.waits(self.number, ready),
            None => self.device.turns.take(self.number),
        }
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = task.blocked();
        self.perform_or_fault(task, moment);
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.device.turns.give(self.number);
    }

    fn perform_or_fault(&self, task: Task, moment: &Arc<Moment>) {
        if catch_unwind(AssertUnwindSafe(|| self.perform(task, moment))).is_err() {
            let text = "the emulator panicked while it ran work of a stream".into();
            self.device.finding(text, &Details::default());
            self.sticky.set(CUresult::UNKNOWN);
        }
    }

    fn next(&self) -> Option<(Task, Arc<Moment>)> {
        let mut state = self.state();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }

            let (woken, timeout) = self
                .wake
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.tasks.is_empty() {
                state.working = false;
                return None;
            }
        }
    }

    /// Performs a task. After a fault, tasks have no effect but still complete, so that no thread
    /// waits forever.
    fn perform(&self, task: Task, moment: &Arc<Moment>) {
        if let Err(code) = self.sticky.check() {
            if let Task::Callback(callback) = task {
                callback.call(code);
            }
            return;
        }
        let outcome = match task {
            Task::Run(work) => self.run(&work, moment),
            Task::Graph(launch) => launch.perform(
                self.device,
                LaunchPlace {
                    stream: self.place(),
                    queue: self.number,
                    moment,
                },
            ),
            Task::Free(address) => self.free(address, moment),
            Task::After(ticket) => {
                ticket.reached();
                Ok(())
            }
            Task::AfterMark(mark) => {
                mark.wait();
                Ok(())
            }
            Task::Callback(callback) => {
                self.device.order.learn(moment);
                callback.call(CUresult::SUCCESS);
                Ok(())
            }
            // An event is reached when its task counts as done.
            Task::Mark(_) => Ok(()),
        };
        if let Err(Error {
            code,
            text,
            details,
        }) = outcome
        {
            self.device.finding(text, &details);
            self.sticky.set(code);
        }
    }

    /// Returns the name of the stream if all work is traced.
    fn place(&self) -> Option<&str> {
        self.device.order.is_on().then_some(&self.name)
    }

    fn run(&self, work: &StreamWork, moment: &Arc<Moment>) -> Result {
        if matches!(work, StreamWork::Host(_)) {
            self.device.order.learn(moment);
        }

        let site = WorkSite {
            traced: self.place(),
            queue: self.number,
            siblings: false,
        };
        if let Some(touched) = work.run(self.device, site)? {
            self.compare(work.name(), moment, touched);
        }

        Ok(())
    }

    fn compare(&self, name: &str, moment: &Arc<Moment>, touched: Accesses) {
        compare_streams(self.device, moment, (name, &self.name), Arc::new(touched));
    }

    /// Frees memory. Work of another stream that uses it without an order may find it gone.
    fn free(&self, address: u64, moment: &Arc<Moment>) -> Result {
        if let Some(whole) = self.place().and_then(|_| self.device.memory.find(address)) {
            let writes = [(whole.base, whole.bytes)];
            self.compare(
                "free",
                moment,
                Accesses::from_host(&self.device.memory, "free", &[], &writes),
            );
        }
        Ok(self.device.free(address)?)
    }
}

impl Task {
    /// Orders the clock of the queue after the work that the task waits for.
    fn follow(&self, clock: &mut Clock) {
        match self {
            Self::After(ticket) => clock.join(ticket.moment.clock()),
            Self::AfterMark(mark) => mark.follow(clock),
            Self::Graph(launch) => launch.follow(clock),
            Self::Run(StreamWork::Words(words)) if words.waits() => clock.set_blind(),
            _ => {}
        }
    }

    /// Returns a function that tests whether the work of other streams has ended, if the task waits
    /// for such work.
    fn blocked(&self) -> Option<Ready> {
        match self {
            Self::After(ticket) => Some(ticket.ready()),
            Self::AfterMark(mark) => Some(mark.ready()),
            Self::Run(_) | Self::Graph(_) | Self::Free(_) | Self::Mark(_) | Self::Callback(_) => {
                None
            }
        }
    }

    /// Returns a function that tests whether the task can run, if it waits for something.
    ///
    /// For values in memory and for functions of the program the emulator cannot know, so the
    /// function returns false.
    fn waits(&self) -> Option<Ready> {
        match self {
            Self::After(_) | Self::AfterMark(_) => self.blocked(),
            Self::Run(StreamWork::Words(_) | StreamWork::Host(_)) | Self::Callback(_) => {
                Some(Box::new(|| false))
            }
            Self::Graph(launch) if launch.waits() => Some(Box::new(|| false)),
            Self::Run(_) | Self::Graph(_) | Self::Free(_) | Self::Mark(_) => None,
        }
    }

    /// Records the moment at which the task reaches events.
    fn happens(&self, moment: &Arc<Moment>) {
        match self {
            Self::Mark(PendingMark(mark)) => mark.happens(moment),
            Self::Graph(launch) => launch.happens(moment),
            _ => {}
        }
    }
}

impl Ticket {
    pub(crate) fn is_done(&self) -> bool {
        self.queue.state().done >= self.place
    }

    /// Waits, as the program, until the work up to this position has ended, and records that the
    /// program knows.
    pub(crate) fn wait(&self) {
        let device = self.queue.device;
        let waits = device.turns.program_waits();
        let thread = device.activity.program_waits(self.ready());
        self.reached();
        drop(thread);
        drop(waits);
        device.order.learn(&self.moment);
    }

    /// Returns a function that tests whether the work up to this position has ended.
    fn ready(&self) -> Ready {
        let queue = Arc::clone(&self.queue);
        let place = self.place;
        Box::new(move || queue.done.load(Acquire) >= place)
    }

    /// Waits until the work up to this position has ended.
    fn reached(&self) {
        let mut state = self.queue.state();
        while state.done < self.place {
            state = self
                .queue
                .progress
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns true if this is a position in `queue`.
    pub(crate) fn is_in(&self, queue: &Arc<WorkQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}
