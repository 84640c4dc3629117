//! Race detection between streams: the happens-before order of work, and the search for unordered
//! accesses.
//!
//! The detector uses vector clocks (Mattern, "Virtual Time and Global States of Distributed
//! Systems", 1989). Each piece of work has a number in its queue and a clock, which says how much
//! of every queue has ended when this work ends. The clock follows from the calls of the program
//! and not from the actual schedule. Work of a stream is ordered after earlier work of the stream,
//! after the work that it waits for, and after all work that the program knew to have ended when it
//! made the call. This knowledge is shared by all threads of the program, so work is ordered after
//! everything that any thread has waited for.
//!
//! Limits: a stream that waits for a value in memory is ordered after the writer, which no call
//! identifies. Its work is not compared until the program has waited for the stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ptx_emu::{Accesses, Conflict};

/// The maximum number of pieces of work that are kept for comparison.
const KEPT: usize = 1024;

/// The number of pieces of work that are kept without checking whether they are still needed.
const KEPT_UNCHECKED: usize = 64;

/// The queue number for work that a call does before it returns.
pub(crate) const CALLS: u32 = 0;

/// A vector clock: the number of pieces of work of each queue that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    ended: BTreeMap<u32, u64>,
    /// Whether it is ordered after work that is not known.
    blind: bool,
}

/// A piece of work: its queue, its number in the queue, and its clock, which includes itself.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    queue: u32,
    number: u64,
    clock: Clock,
}

/// A conflict of two pieces of work, with the name and the location of each.
pub(crate) struct Unordered {
    pub(crate) first: String,
    pub(crate) second: String,
    pub(crate) conflict: Conflict,
}

/// The order of all work. Nothing is recorded until it is [started](WorkOrder::start).
#[derive(Debug, Default)]
pub(crate) struct WorkOrder {
    on: AtomicBool,
    queues: AtomicU32,
    known: Mutex<KnownWork>,
}

#[derive(Debug, Default)]
struct KnownWork {
    /// The work that the program knows to have ended.
    program: Clock,
    /// All enqueued work.
    given: Clock,
    /// The enqueued work that has not ended.
    open: BTreeMap<(u32, u64), Arc<Moment>>,
    past: VecDeque<PastWork>,
    /// The conflicts that were reported, by kernels and lines.
    told: BTreeSet<String>,
    /// Whether work was dropped because there was too much of it.
    forgot: bool,
}

#[derive(Debug)]
struct PastWork {
    moment: Arc<Moment>,
    name: String,
    accesses: Arc<Accesses>,
}

impl Clock {
    /// Merges the knowledge of another clock into this one.
    pub(crate) fn join(&mut self, other: &Self) {
        for (&queue, &number) in &other.ended {
            let own = self.ended.entry(queue).or_default();
            *own = (*own).max(number);
        }
        self.blind |= other.blind;
    }

    fn has(&self, queue: u32, number: u64) -> bool {
        self.ended.get(&queue).is_some_and(|ended| *ended >= number)
    }

    /// Records that it is ordered after work that is not known.
    pub(crate) fn set_blind(&mut self) {
        self.blind = true;
    }
}

impl Moment {
    /// Returns the work that has ended when it ends.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl WorkOrder {
    /// Starts to record accesses of work.
    pub(crate) fn start(&self) {
        self.on.store(true, Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Returns the number for a new queue.
    pub(crate) fn queue(&self) -> u32 {
        self.queues.fetch_add(1, Relaxed) + 1
    }

    fn known(&self) -> MutexGuard<'_, KnownWork> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next piece of work of a queue and advances `clock`, the clock of its last piece
    /// of work.
    pub(crate) fn give(&self, queue: u32, clock: &mut Clock) -> Arc<Moment> {
        if !self.is_on() {
            return Arc::default();
        }

        let mut known = self.known();
        let last = clock.ended.get(&queue).copied().unwrap_or_default();
        clock.blind &= !known.program.has(queue, last);
        clock.join(&known.program);
        clock.ended.insert(queue, last + 1);
        let moment = Arc::new(Moment {
            queue,
            number: last + 1,
            clock: clock.clone(),
        });
        known.given.ended.insert(queue, last + 1);
        known.open.insert((queue, last + 1), Arc::clone(&moment));
        moment
    }

    /// Returns a piece of work that a call does itself, ordered after everything that the program
    /// knows to have ended.
    pub(crate) fn call(&self) -> Arc<Moment> {
        if !self.is_on() {
            return Arc::default();
        }
        let mut clock = self.known().given.clone();
        clock.ended.retain(|queue, _| *queue == CALLS);
        self.give(CALLS, &mut clock)
    }

    /// Records that the program knows that work has ended.
    pub(crate) fn learn(&self, moment: &Moment) {
        if !self.is_on() {
            return;
        }

        let mut known = self.known();
        let given = known.given.clone();
        known.program.join(if moment.clock.blind {
            &given
        } else {
            &moment.clock
        });
        known.program.blind = false;
    }

    /// Records that work has ended, and drops work that can no longer conflict with anything.
    pub(crate) fn ended(&self, moment: &Moment) {
        if !self.is_on() {
            return;
        }

        let mut known = self.known();
        known.open.remove(&(moment.queue, moment.number));
        let KnownWork {
            program,
            open,
            past,
            ..
        } = &mut *known;
        if past.len() < KEPT_UNCHECKED {
            return;
        }

        // Later work is ordered after everything that the program knows. Only open work that was
        // enqueued before that can still be unordered with past work.
        past.retain(|past| {
            let queue = past.moment.queue;
            let number = past.moment.number;
            !program.has(queue, number) || open.values().any(|open| !open.clock.has(queue, number))
        });
    }

    /// Compares the accesses of a piece of work with earlier work that is not ordered before it.
    ///
    /// Returns the conflicts that were not reported before.
    pub(crate) fn compare(
        &self,
        moment: &Arc<Moment>,
        name: String,
        accesses: Arc<Accesses>,
    ) -> Vec<Unordered> {
        if !self.is_on() || moment.clock.blind {
            return Vec::new();
        }

        let mut known = self.known();
        let unordered = |past: &&PastWork| !moment.clock.has(past.moment.queue, past.moment.number);
        let found = known.past.iter().filter(unordered).filter_map(|past| {
            let conflict = past.accesses.conflict(&accesses)?;
            Some(Unordered {
                first: past.name.clone(),
                second: name.clone(),
                conflict,
            })
        });
        let mut found: Vec<Unordered> = found.collect();

        // Work in a loop has the same conflict in every round, so only the first one is reported.
        found.retain(|unordered| known.told.insert(key(&unordered.conflict)));
        known.past.push_back(PastWork {
            moment: Arc::clone(moment),
            name,
            accesses,
        });
        if known.past.len() > KEPT {
            known.past.pop_front();
            known.forgot = true;
        }

        found
    }

    /// Returns true if work was dropped, so that a conflict may have been missed.
    pub(crate) fn forgot(&self) -> bool {
        self.known().forgot
    }
}

/// Returns a key that identifies a conflict by kernels and lines, independent of their order.
fn key(conflict: &Conflict) -> String {
    let mut sides = [&conflict.first, &conflict.second]
        .map(|(kernel, place)| format!("{kernel} {}", place.line));
    sides.sort();
    format!("{sides:?} {}", conflict.allocation.label)
}
