//! The world around a kernel that waits: other streams, and the threads of the program.
//!
//! A kernel that polls memory of a device can only be ended by work of another stream or by a call of the program. Neither
//! can come if every other stream is idle or waits for the stream of the kernel, and every thread of the program waits for
//! a stream. Then the wait is a deadlock. In all other cases the wait may end, and only its time is limited.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ptx_emu::Outside;

use crate::crew::program_threads;
use crate::device::Device;
use crate::queue::Queue;
use crate::turns::Ready;

/// The streams and the waiting threads of a program, and a count of what they have done.
#[derive(Default)]
pub(crate) struct Activity {
    changes: AtomicU64,
    state: Mutex<ActivityState>,
}

#[derive(Default)]
struct ActivityState {
    queues: Vec<Weak<Queue>>,
    /// For each thread of the program that waits, whether the wait has ended.
    waiting: BTreeMap<u64, Ready>,
    next: u64,
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the queue of a stream.
    pub(crate) fn add(&self, queue: &Arc<Queue>) {
        let mut state = self.state();
        state.queues.retain(|queue| queue.strong_count() > 0);
        state.queues.push(Arc::downgrade(queue));
    }

    /// Records that memory may have been written. Must come after the write, and before the writer is seen to be idle.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// Records that a thread of the program waits until `ready` returns true. The wait ends when the result is dropped.
    pub(crate) fn program_waits(&self, ready: Ready) -> ThreadWaits<'_> {
        self.changed();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, ready);
        ThreadWaits { activity: self, number }
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

/// The world around a kernel that a stream runs.
pub(crate) struct AroundKernel<'a> {
    pub(crate) device: &'a Device,
    /// The stream that runs the kernel.
    pub(crate) queue: u32,
    /// Whether the kernel is a node of a graph with nodes that may run at the same time.
    pub(crate) siblings: bool,
}

impl std::fmt::Debug for AroundKernel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AroundKernel(stream {})", self.queue)
    }
}

impl Outside for AroundKernel<'_> {
    fn changes(&self) -> u64 {
        self.device.activity.changes.load(SeqCst)
    }

    fn may_change(&self) -> bool {
        // Where streams take turns, the kernel would otherwise keep its turn from the stream that it waits for.
        self.device.turns.step_aside(self.queue);
        if self.siblings {
            return true;
        }
        let state = self.device.activity.state();
        let other = |queue: &Arc<Queue>| queue.number() != self.queue;
        let busy = state.queues.iter().filter_map(Weak::upgrade).filter(other).any(|queue| queue.may_run());
        let waiting = state.waiting.values().filter(|ready| !ready()).count();
        busy || program_threads() != Some(waiting)
    }
}
