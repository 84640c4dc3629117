//! What is asked of a launch besides its end, and what it tells.

use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::launch::Stats;
use crate::observe::{Followed, Profile, Step};

/// What is asked of a launch besides its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Which faults are wanted.
    pub faults: Faults,
    /// Whether races that are [tolerated](crate::Class::ToleratedRace) are faults.
    pub strict: bool,
    /// The moment at which a launch that has not ended is stopped, with a fault of the class
    /// [`TimeLimit`](crate::Class::TimeLimit). Each block looks at the clock every few turns of its warps, so a launch
    /// ends within milliseconds of it.
    pub deadline: Option<Instant>,
    /// The longest time for which all threads of a launch may wait while nothing changes, neither in the launch nor
    /// [outside](crate::Outside). Then the launch ends with a fault of the class [`TimeLimit`](crate::Class::TimeLimit).
    /// Unlimited if it is `None`.
    ///
    /// A wait that nothing can end is a [`Deadlock`](crate::Class::Deadlock) at once, whatever the limit. Time in which
    /// the process was stopped does not count.
    pub wait_limit: Option<Duration>,
    /// Whether the numbers of arithmetic are looked at: integers that are divided by zero, NaN and infinity where they
    /// first appear, floats that are converted to an integer that does not hold them. Such a finding ends no block; it
    /// stands behind the faults, each place once.
    pub arithmetic: bool,
    /// Whether it is followed what pointers were derived from: an access then must not lead from there into another
    /// variable or allocation, though that is there too. A finding of it ends no block, as those of arithmetic.
    pub provenance: bool,
    /// Bytes of the host's memory that the record of a traced launch may take; 4 GiB where nothing is said. It takes 0.6
    /// bytes for each byte that warps copy in whole lines of 64 bytes, half of it until the block ends, and up to 25 for each
    /// byte that several warps and blocks touch by bytes. At the limit, the launch ends with a fault of the class
    /// [`TraceFull`](crate::Class::TraceFull).
    pub trace_bytes: Option<u64>,
    /// Whether what each instruction does is counted.
    pub profile: bool,
    /// The thread whose instructions are recorded.
    pub followed: Option<Followed>,
}

impl Watch {
    /// Bytes that the record of a traced launch may take.
    pub(crate) fn most_recorded(&self) -> u64 {
        self.trace_bytes.unwrap_or(4 << 30)
    }
}

/// Which faults of a launch are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// The first one, which ends the launch.
    #[default]
    First,
    /// One of each block (of each cluster of blocks): a fault ends its block, and the others go on.
    ///
    /// The launch ends all the same if it is cooperative, as its blocks may wait for each other; if it has
    /// used up its time or its fuel; and after some hundred different faults. Bytes that nobody has written may be
    /// those of a block that has ended early: such a fault counts only as long as there is no other.
    EachBlock,
}

/// What a launch did, and what was found.
#[derive(Debug, Default)]
pub struct Watched {
    /// What it did, as far as it came.
    pub stats: Stats,
    /// The faults, each pair of instructions once, in the order of the blocks' turns.
    pub found: Vec<Found>,
    /// Races that are tolerated, each pair of instructions once.
    pub notes: Vec<Fault>,
    /// What was counted, if it was.
    pub profile: Option<Profile>,
    /// The instructions of the followed thread.
    pub steps: Vec<Step>,
}

/// A fault, and how many blocks had it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The one of the block that came first in the schedule.
    pub fault: Fault,
    /// Blocks that ended with a fault of this class at the same instructions.
    pub blocks: u64,
    /// Whether it ended its block: findings of [`Watch::arithmetic`] and [`Watch::provenance`] do not, and of these each
    /// place counts once.
    pub ended: bool,
}

impl Watched {
    /// The statistics, or the first fault.
    pub(crate) fn into_result(mut self) -> Result<Stats, Box<Fault>> {
        match self.found.is_empty() {
            true => Ok(self.stats),
            false => Err(Box::new(self.found.swap_remove(0).fault)),
        }
    }
}
