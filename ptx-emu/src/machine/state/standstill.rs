//! Detection of launches that stand still: every block polls or waits, and no value changes that a
//! block reads.
//!
//! Each host thread runs the blocks of one
//! [`Rotation`](crate::machine::scheduler::block_rotation::Rotation). A counter of changes is
//! increased after every step in which a block did something that another block can see. A rotation
//! rests when each of its blocks has looked at memory again since the counter had its present
//! value, and none could continue. If all rotations rest at the same value of the counter, no block
//! can end the waiting of another one. This is the usual detection of termination by counters
//! (Mattern 1987, <https://doi.org/10.1007/BF01782776>), with the counter of the [outside](Outside)
//! added to our own, because streams and the host may write the same memory.
//!
//! A standstill that nothing outside can end is a deadlock. Any other one lasts until something
//! changes, or until it has lasted as long as [`Watch::wait_limit`](crate::Watch::wait_limit)
//! allows.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::launch::Outside;
use crate::machine::state::standstill_verdict::{BlockWaits, StandstillVerdict};

/// The shortest and the longest time for which a rotation that rests lets others run before it
/// polls again.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The most that one look at the clock adds to the time of a standstill. A process that was
/// stopped, for example by a debugger, has therefore not waited.
const LONGEST_STEP: Duration = Duration::from_millis(250);

/// Changes seen so far, inside and outside of the launch. Both numbers only grow, so equal sums
/// mean that neither changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeStamp(u64);

/// The knowledge of the rotations of a launch about each other's waits.
#[derive(Debug, Default)]
pub(crate) struct Standstill<'a> {
    outside: Option<&'a dyn Outside>,
    limit: Option<Duration>,
    changes: AtomicU64,
    /// The number of rotations that pause and must be woken by a change.
    pausing: AtomicUsize,
    decided: AtomicBool,
    state: Mutex<StandstillState>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct StandstillState {
    /// The last rest of each rotation.
    rests: Vec<Option<Rest>>,
    verdict: Option<StandstillVerdict>,
    /// The current standstill: its stamp, its duration, and the time of the last addition to the
    /// duration.
    stamp: ChangeStamp,
    lasted: Duration,
    looked: Option<Instant>,
    /// The blocks that waited at the verdict.
    waiting: Vec<BlockWaits>,
}

/// The memory that waiting threads read, ordered by how freely it can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Polled {
    /// Memory of the block, or none.
    #[default]
    Block,
    /// Memory of a device.
    Device,
    /// Memory that the host or another process can write without the driver.
    Host,
}

/// A rotation whose blocks all wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) stamp: ChangeStamp,
    /// The memory that the blocks poll.
    pub(crate) polled: Polled,
    /// The number of times in a row that the rotation came to rest at this stamp.
    pub(crate) rounds: u32,
}

impl<'a> Standstill<'a> {
    pub(crate) fn new(outside: Option<&'a dyn Outside>, limit: Option<Duration>) -> Self {
        Self {
            outside,
            limit,
            ..Self::default()
        }
    }

    /// Returns true if something other than the launch may change the memory that it reads.
    pub(crate) fn is_open(&self) -> bool {
        self.outside.is_some()
    }

    fn state(&self) -> MutexGuard<'_, StandstillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rotation and returns its number.
    pub(crate) fn join(&self) -> usize {
        let mut state = self.state();
        state.rests.push(None);
        state.rests.len() - 1
    }

    /// Records that a rotation has no blocks left, or the reasons why its blocks wait if a verdict
    /// ends it.
    pub(crate) fn leave(&self, rotation: usize, waiting: impl Iterator<Item = BlockWaits>) {
        let mut state = self.state();
        // A rotation without blocks can change nothing, so it counts as one that rests for ever.
        state.rests[rotation] = Some(Rest {
            stamp: ChangeStamp(u64::MAX),
            ..Rest::default()
        });
        if state.verdict.is_some() {
            state.waiting.extend(waiting);
        }
    }

    /// Records that a block did something that others can see. Must come after the step that did
    /// it.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, SeqCst);
        if self.pausing.load(SeqCst) > 0 {
            // The lock makes sure that a rotation which has just compared stamps is already
            // waiting.
            drop(self.state());
            self.woken.notify_all();
        }
    }

    /// Returns the number of changes so far.
    pub(crate) fn stamp(&self) -> ChangeStamp {
        let outside = self.outside.map_or(0, Outside::changes);
        ChangeStamp(self.changes.load(SeqCst).wrapping_add(outside))
    }

    /// Returns true if a verdict was reached, so that all rotations must end.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided.load(SeqCst)
    }

    /// Records that every block of a rotation waits, and pauses until something may have changed.
    /// Returns true if the rotation must end.
    pub(crate) fn rest(&self, rotation: usize, rest: Rest) -> bool {
        let mut state = self.state();
        state.rests[rotation] = Some(rest);
        if state.verdict.is_none() && self.all_rest(&mut state, rest.stamp) {
            self.decide(&mut state, rest.rounds);
        }
        if state.verdict.is_some() {
            return true;
        }

        self.pausing.fetch_add(1, SeqCst);
        if self.stamp() == rest.stamp {
            let pause = SHORTEST_PAUSE
                .saturating_mul(1 << rest.rounds.min(6))
                .min(LONGEST_PAUSE);
            state = self
                .woken
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }

        self.pausing.fetch_sub(1, SeqCst);
        state.verdict.is_some()
    }

    /// Returns true if all rotations rest at this stamp, and adds up for how long.
    fn all_rest(&self, state: &mut StandstillState, stamp: ChangeStamp) -> bool {
        let ended = ChangeStamp(u64::MAX);
        let rests =
            |rest: &Option<Rest>| rest.is_some_and(|rest| [stamp, ended].contains(&rest.stamp));
        if !state.rests.iter().all(rests) || self.stamp() != stamp {
            return false;
        }

        let now = Instant::now();
        let since = state
            .looked
            .replace(now)
            .map_or(Duration::ZERO, |looked| now - looked);
        if state.stamp == stamp {
            state.lasted += since.min(LONGEST_STEP);
        } else {
            state.stamp = stamp;
            state.lasted = Duration::ZERO;
        }

        true
    }

    fn decide(&self, state: &mut StandstillState, rounds: u32) {
        // Asking the outside takes longer than a pause.
        let asks = self.outside.is_none() || rounds.is_power_of_two() || rounds.is_multiple_of(64);
        let verdict = if asks && self.is_final(state) {
            StandstillVerdict::Deadlock
        } else if self.limit.is_some_and(|limit| state.lasted >= limit) {
            StandstillVerdict::TimeLimit
        } else {
            return;
        };
        state.verdict = Some(verdict);
        self.decided.store(true, SeqCst);
        self.woken.notify_all();
    }

    /// Returns true if nothing outside can end the standstill.
    fn is_final(&self, state: &StandstillState) -> bool {
        let Some(outside) = self.outside else {
            return true;
        };
        let may_change = outside.may_change();
        match state
            .rests
            .iter()
            .flatten()
            .map(|rest| rest.polled)
            .max()
            .unwrap_or_default()
        {
            Polled::Block => true,
            // The outside may have changed memory and have become quiet while it was asked.
            Polled::Device => !may_change && self.stamp() == state.stamp,
            Polled::Host => false,
        }
    }

    /// Returns the verdict, if one was reached, with the duration of the standstill and the waiting
    /// blocks.
    pub(crate) fn into_verdict(self) -> Option<(StandstillVerdict, Duration, Vec<BlockWaits>)> {
        let mut state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting.sort_by_key(|block| block.turn);
        state
            .verdict
            .map(|verdict| (verdict, state.lasted, state.waiting))
    }
}
