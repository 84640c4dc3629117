//! A scheduler for streams: chooses by seed which stream runs next if nothing orders them.
//!
//! With [`Order::InOrder`] each stream runs its work as soon as it can, concurrently with the
//! others. Otherwise one piece of work runs at a time, and only while the program waits. At that
//! point all runnable work is known, and the next piece is chosen among the streams that have one.
//! The order therefore depends on the seed and on the calls of the program, but not on the timing
//! of threads. If the program enqueues work and never waits, the work starts after [`PATIENCE`].

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptx_emu::Order;

/// The maximum time that work waits for the program to wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// A function that tests whether a wait can end.
pub(crate) type Ready = Box<dyn Fn() -> bool + Send>;

/// The scheduler of all streams.
pub(crate) struct Turns {
    order: Order,
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Default)]
struct TurnState {
    queues: BTreeMap<u32, QueueProgress>,
    /// The queue that runs now.
    running: Option<u32>,
    /// The number of threads of the program that wait.
    waiting: u64,
    /// The number of queries of the program, such as `cuStreamQuery`, that were not yet served.
    looks: u64,
    /// Whether the program was waited for as long as [`PATIENCE`].
    late: bool,
    random: u64,
}

/// The state of a queue that has work.
enum QueueProgress {
    /// It will ask to run, wait, or become idle.
    Comes,
    /// It asks to run.
    Asks,
    /// It waits for something other than being chosen.
    Waits(Ready),
}

impl Turns {
    pub(crate) fn new(order: Order, seed: u64) -> Self {
        let state = TurnState {
            random: seed,
            ..TurnState::default()
        };
        Self {
            order,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut TurnState) -> R) -> Option<R> {
        if self.order == Order::InOrder {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        self.choose(&mut state);
        Some(result)
    }

    /// Records that a queue has work.
    pub(crate) fn comes(&self, queue: u32) {
        self.change(|state| {
            state.queues.insert(queue, QueueProgress::Comes);
            state.late = false;
        });
    }

    /// Records that a queue is idle.
    pub(crate) fn leaves(&self, queue: u32) {
        self.change(|state| state.queues.remove(&queue));
    }

    /// Records that a queue waits until `ready` returns true.
    pub(crate) fn waits(&self, queue: u32, ready: Ready) {
        self.change(|state| state.queues.insert(queue, QueueProgress::Waits(ready)));
    }

    /// Waits until the queue is chosen.
    pub(crate) fn take(&self, queue: u32) {
        if self
            .change(|state| state.queues.insert(queue, QueueProgress::Asks))
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

    /// Lets another queue run before the work of this one has ended, because that work waits for
    /// other streams or for the program.
    pub(crate) fn step_aside(&self, queue: u32) {
        self.change(|state| {
            if state.running == Some(queue) {
                state
                    .queues
                    .insert(queue, QueueProgress::Waits(Box::new(|| false)));
                state.running = None;
            }
        });
    }

    /// Records that the queue has finished its work or its wait.
    pub(crate) fn give(&self, queue: u32) {
        self.change(|state| {
            state.queues.insert(queue, QueueProgress::Comes);
            state.running = state.running.filter(|running| *running != queue);
        });
    }

    /// Records that the program waits, until the result is dropped.
    pub(crate) fn program_waits(&self) -> ProgramWaits<'_> {
        self.change(|state| state.waiting += 1);
        ProgramWaits(self)
    }

    /// Records that the program asks whether something has ended, so that one piece of work may
    /// run.
    pub(crate) fn program_looks(&self) {
        self.change(|state| state.looks += 1);
    }

    /// Chooses the next queue if none runs, all runnable work is known, and the program waits.
    fn choose(&self, state: &mut MutexGuard<'_, TurnState>) {
        let known = |queue: &QueueProgress| match queue {
            QueueProgress::Comes => false,
            QueueProgress::Asks => true,
            QueueProgress::Waits(ready) => !ready(),
        };

        // A queue that comes may ask in a moment, so the choice waits until its state is known.
        // Otherwise the order would depend on the timing of threads.
        let may = state.waiting > 0 || state.looks > 0 || state.late;
        if !may || state.running.is_some() || !state.queues.values().all(known) {
            return;
        }

        let asks = state
            .queues
            .iter()
            .filter(|(_, queue)| matches!(queue, QueueProgress::Asks));
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

/// A wait of the program, until this is dropped.
pub(crate) struct ProgramWaits<'a>(&'a Turns);

impl Drop for ProgramWaits<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting -= 1);
    }
}

/// Returns the next number of a SplitMix64 generator (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
