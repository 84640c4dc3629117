//! The order in which streams run work that nothing orders, where a seed chooses it.
//!
//! With [`Order::InOrder`] each stream runs its work as soon as it can, all of them side by side. Otherwise one piece of
//! work runs at a time, and none before the program waits for something: then all that could run is known, and the next
//! piece is chosen among the streams that have one. So the order depends on the seed and on the calls, not on threads.
//! A program that gives work and waits for nothing is waited for no longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptx_emu::Order;

/// How long work waits for the program to wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whether what a stream waits for has come.
pub(crate) type Ready = Box<dyn Fn() -> bool + Send>;

/// The turns of all streams.
pub(crate) struct Turns {
    order: Order,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<u32, Queue>,
    /// The queue whose turn it is.
    running: Option<u32>,
    /// Threads of the program that wait, and looks at streams that have not ended.
    waiting: u64,
    looks: u64,
    /// Whether the program was waited for long enough.
    late: bool,
    random: u64,
}

/// What a queue with work is about.
enum Queue {
    /// It will ask for a turn, wait, or have nothing to do.
    Comes,
    /// It asks for a turn.
    Asks,
    /// It waits for something else than a turn.
    Waits(Ready),
}

impl Turns {
    pub(crate) fn new(order: Order, seed: u64) -> Self {
        let state = State {
            random: seed,
            ..State::default()
        };
        Self {
            order,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Option<R> {
        if self.order == Order::InOrder {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        self.choose(&mut state);
        Some(result)
    }

    /// A queue has work.
    pub(crate) fn comes(&self, queue: u32) {
        self.change(|state| {
            state.queues.insert(queue, Queue::Comes);
            state.late = false;
        });
    }

    /// A queue has nothing to do.
    pub(crate) fn leaves(&self, queue: u32) {
        self.change(|state| state.queues.remove(&queue));
    }

    /// A queue does nothing until this is so.
    pub(crate) fn waits(&self, queue: u32, ready: Ready) {
        self.change(|state| state.queues.insert(queue, Queue::Waits(ready)));
    }

    /// Waits for the turn of a queue.
    pub(crate) fn take(&self, queue: u32) {
        if self
            .change(|state| state.queues.insert(queue, Queue::Asks))
            .is_none()
        {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.running != Some(queue) {
            let (next, timeout) = self
                .changed
                .wait_timeout(state, PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.late |= timeout.timed_out();
            self.choose(&mut state);
        }
    }

    /// Ends the turn of a queue early, because its work waits for other streams or for the program.
    pub(crate) fn step_aside(&self, queue: u32) {
        self.change(|state| {
            if state.running == Some(queue) {
                state.queues.insert(queue, Queue::Waits(Box::new(|| false)));
                state.running = None;
            }
        });
    }

    /// Ends the turn of a queue, or its wait.
    pub(crate) fn give(&self, queue: u32) {
        self.change(|state| {
            state.queues.insert(queue, Queue::Comes);
            state.running = state.running.filter(|running| *running != queue);
        });
    }

    /// The program waits, until the result is dropped.
    pub(crate) fn program_waits(&self) -> ProgramWaits<'_> {
        self.change(|state| state.waiting += 1);
        ProgramWaits(self)
    }

    /// The program looks whether something has ended: one piece of work may run.
    pub(crate) fn program_looks(&self) {
        self.change(|state| state.looks += 1);
    }

    /// Chooses whose turn it is, if it is nobody's, all that could run is known, and the program waits.
    fn choose(&self, state: &mut MutexGuard<'_, State>) {
        let known = |queue: &Queue| match queue {
            Queue::Comes => false,
            Queue::Asks => true,
            Queue::Waits(ready) => !ready(),
        };
        let may = state.waiting > 0 || state.looks > 0 || state.late;
        if !may || state.running.is_some() || !state.queues.values().all(known) {
            return;
        }
        let asks = state
            .queues
            .iter()
            .filter(|(_, queue)| matches!(queue, Queue::Asks));
        let asks: Vec<u32> = asks.map(|(&queue, _)| queue).collect();
        let Some(&last) = asks.last() else { return };
        state.looks = state.looks.saturating_sub(1);
        state.running = Some(match self.order {
            Order::Shuffled => asks[(next_random(&mut state.random) % asks.len() as u64) as usize],
            Order::InOrder | Order::Reversed => last,
        });
        self.changed.notify_all();
    }
}

/// The program waits as long as this lives.
pub(crate) struct ProgramWaits<'a>(&'a Turns);

impl Drop for ProgramWaits<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting -= 1);
    }
}

/// SplitMix64: every seed gives another order.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
