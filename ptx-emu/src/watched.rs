//! The result of a launch with the options of a [`Watch`](crate::Watch).

use crate::fault::Fault;
use crate::launch::Stats;
use crate::profile::{FollowedStep, Profile};

/// The result of [`run_watched`](crate::run_watched).
#[derive(Debug, Default)]
pub struct Watched {
    /// The statistics of everything that was executed.
    pub stats: Stats,
    /// The faults in the order of the schedule, with each pair of instructions listed once.
    pub found: Vec<Found>,
    /// The tolerated races, with each pair of instructions listed once.
    pub notes: Vec<Fault>,
    /// The profile, if [`Watch::profile`](crate::Watch::profile) was set.
    pub profile: Option<Profile>,
    /// The instructions of the [followed](crate::Watch::followed) thread.
    pub steps: Vec<FollowedStep>,
}

/// A fault, and the number of blocks that had it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The fault of the block that is first in the schedule.
    pub fault: Fault,
    /// The number of blocks that ended with a fault of this class at the same instructions.
    pub blocks: u64,
    /// Whether the fault ended its block. Findings of
    /// [`Watch::arithmetic`](crate::Watch::arithmetic) and
    /// [`Watch::provenance`](crate::Watch::provenance) do not.
    pub ended: bool,
}

impl Watched {
    /// Returns the statistics, or the first fault.
    pub(crate) fn into_result(mut self) -> Result<Stats, Box<Fault>> {
        if self.found.is_empty() {
            Ok(self.stats)
        } else {
            Err(Box::new(self.found.swap_remove(0).fault))
        }
    }
}
