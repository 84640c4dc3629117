//! Options of a launch beyond its result: limits, additional checks, profiles and several faults.

use std::time::{Duration, Instant};

use crate::profile::Followed;

/// The options of [`run_watched`](crate::run_watched). The default enables nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// The choice between the first fault and one fault per block.
    pub faults: Faults,
    /// Whether [tolerated](crate::Class::ToleratedRace) races are faults.
    pub strict: bool,
    /// The moment at which the launch is stopped with a [`TimeLimit`](crate::Class::TimeLimit)
    /// fault.
    ///
    /// Each block looks at the clock every few turns of its warps, so the launch ends a few
    /// milliseconds later.
    pub deadline: Option<Instant>,
    /// The longest time for which all threads of a launch may wait while nothing changes, neither
    /// in the launch nor [outside](crate::Outside). `None` means no limit.
    ///
    /// At the limit, the launch ends with a [`TimeLimit`](crate::Class::TimeLimit) fault. A wait
    /// that nothing can end is a [`Deadlock`](crate::Class::Deadlock) before that. Time in which
    /// the process was stopped, for example by a debugger, does not count.
    pub wait_limit: Option<Duration>,
    /// Whether arithmetic is checked for divisions by zero, for new NaN and infinite values, and
    /// for conversions that saturate.
    ///
    /// Such a finding does not end its block. It is listed after the faults, once per instruction.
    pub arithmetic: bool,
    /// Whether each pointer is tied to the variable or allocation that it was derived from, so that
    /// an access to another one is a finding, although that memory is mapped.
    ///
    /// Such a finding does not end its block. It is listed after the faults, once per instruction.
    pub provenance: bool,
    /// The maximum size of the record of a traced launch, in bytes of host memory. `None` means 4
    /// GiB.
    ///
    /// The record takes about 0.6 bytes for each byte that warps copy in whole lines of 64 bytes.
    /// It takes up to 25 bytes for each byte that several warps and blocks access byte by byte. At
    /// the limit, the launch ends with a [`TraceFull`](crate::Class::TraceFull) fault.
    pub trace_bytes: Option<u64>,
    /// Whether the launch counts the executions and the accesses of each instruction.
    pub profile: bool,
    /// The thread whose instructions are recorded.
    pub followed: Option<Followed>,
}

impl Watch {
    /// Returns the maximum size of the record of a traced launch, in bytes.
    pub(crate) fn most_recorded(&self) -> u64 {
        self.trace_bytes.unwrap_or(4 << 30)
    }
}

/// The number of faults that a launch collects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// One fault, which ends the launch.
    #[default]
    First,
    /// One fault of each block, or of each cluster. A fault ends its block, and the other blocks
    /// continue.
    ///
    /// The launch still ends early in three cases: it is cooperative, it has used up its time or
    /// fuel, or it has about a hundred different faults. A cooperative launch ends because its
    /// blocks may wait for each other. A read of uninitialized memory counts only if there is no
    /// other fault, because a block that ended early may have had to write it.
    EachBlock,
}
