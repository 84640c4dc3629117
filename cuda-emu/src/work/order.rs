//! What orders pieces of work that different streams run, and which of them touch the same bytes without an order.
//!
//! Each piece of work has a number in its queue, and a clock: how much of every queue has ended when it ends, by the
//! calls of the program, whenever it happens to run. A stream's work comes after its earlier work, after what it waits
//! for, and after what the program knew to have ended when it made the call. That is one knowledge for all its threads:
//! what one of them waited for, none of them races with.
//!
//! A stream that waits for a word of memory is ordered after whoever writes it, which no call says. Its work is not
//! compared until the program has waited for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ptx_emu::{Accesses, Conflict};

/// Pieces of work that are kept for comparison.
const KEPT: usize = 1024;

/// As many are kept without looking whether they are needed.
const FEW: usize = 64;

/// The number in place of a queue for what a call does before it returns.
pub(crate) const CALLS: u32 = 0;

/// How much of each queue has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    ended: BTreeMap<u32, u64>,
    /// Whether it comes after work that is not known.
    blind: bool,
}

/// A piece of work: its queue, its number there, and what has ended when it ends, itself included.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    queue: u32,
    number: u64,
    clock: Clock,
}

/// A conflict of two pieces of work, with the name of each and where it ran.
pub(crate) struct Unordered {
    pub(crate) first: String,
    pub(crate) second: String,
    pub(crate) conflict: Conflict,
}

/// The order of all work. Nothing is kept until it is [started](Order::start).
#[derive(Debug, Default)]
pub(crate) struct Order {
    on: AtomicBool,
    queues: AtomicU32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What the program knows to have ended.
    program: Clock,
    /// All that was given to queues.
    given: Clock,
    /// What was given and has not ended.
    open: BTreeMap<(u32, u64), Arc<Moment>>,
    past: VecDeque<Past>,
    /// Conflicts that were told, by kernels and lines.
    told: BTreeSet<String>,
    /// Whether work was forgotten because there was too much of it.
    forgot: bool,
}

#[derive(Debug)]
struct Past {
    moment: Arc<Moment>,
    name: String,
    accesses: Arc<Accesses>,
}

impl Clock {
    /// Knows what another clock knows as well.
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

    /// Comes after work that is not known.
    pub(crate) fn set_blind(&mut self) {
        self.blind = true;
    }
}

impl Moment {
    /// What has ended when it ends.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Order {
    /// Begins to keep what work touches.
    pub(crate) fn start(&self) {
        self.on.store(true, Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// A number for a new queue.
    pub(crate) fn queue(&self) -> u32 {
        self.queues.fetch_add(1, Relaxed) + 1
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work of a queue whose last one ends at `clock`, which is moved on.
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

    /// What a call does itself, after all that the program knows to have ended.
    pub(crate) fn call(&self) -> Arc<Moment> {
        if !self.is_on() {
            return Arc::default();
        }
        let mut clock = self.known().given.clone();
        clock.ended.retain(|queue, _| *queue == CALLS);
        self.give(CALLS, &mut clock)
    }

    /// The program learns that work has ended.
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

    /// A piece of work has ended: what no order needs any more is dropped.
    pub(crate) fn ended(&self, moment: &Moment) {
        if !self.is_on() {
            return;
        }
        let mut known = self.known();
        known.open.remove(&(moment.queue, moment.number));
        let Known {
            program,
            open,
            past,
            ..
        } = &mut *known;
        if past.len() < FEW {
            return;
        }
        past.retain(|past| {
            let (queue, number) = (past.moment.queue, past.moment.number);
            !program.has(queue, number) || open.values().any(|open| !open.clock.has(queue, number))
        });
    }

    /// Compares what a piece of work touched with what ran before it and is not ordered before it. Gives the conflicts
    /// that were not given before.
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
        let unordered = |past: &&Past| !moment.clock.has(past.moment.queue, past.moment.number);
        let found = known.past.iter().filter(unordered).filter_map(|past| {
            let conflict = past.accesses.conflict(&accesses)?;
            Some(Unordered {
                first: past.name.clone(),
                second: name.clone(),
                conflict,
            })
        });
        let mut found: Vec<Unordered> = found.collect();
        found.retain(|unordered| known.told.insert(key(&unordered.conflict)));
        known.past.push_back(Past {
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

    /// Whether work was forgotten, so that a conflict with it may have been missed.
    pub(crate) fn forgot(&self) -> bool {
        self.known().forgot
    }
}

/// What tells conflicts apart: the kernels and lines, whichever ran first.
fn key(conflict: &Conflict) -> String {
    let mut sides = [&conflict.first, &conflict.second]
        .map(|(kernel, place)| format!("{kernel} {}", place.line));
    sides.sort();
    format!("{sides:?} {}", conflict.allocation.label)
}
