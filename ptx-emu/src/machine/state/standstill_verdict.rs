//! Sentences about launches that stand still: who waits for what.

use crate::fault::Fault;

/// The reason why a launch that stands still ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandstillVerdict {
    /// Nothing can end the standstill.
    Deadlock,
    /// The standstill has lasted as long as the launch may wait.
    TimeLimit,
}

/// The reason why one warp cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    ClusterBarrier {
        line: u32,
        arrived: usize,
        all: usize,
    },
    Registers {
        line: u32,
        wanted: u32,
        free: u32,
    },
    Barrier {
        id: u32,
        line: u32,
        arrived: u32,
        expected: u32,
    },
    Mbarrier {
        address: u64,
        line: u32,
        arrivals: u32,
        bytes: i64,
        /// The line of the second condition of the loop, if that reads memory.
        polls: Option<u32>,
    },
    Exited,
    Polls {
        line: u32,
        lanes: String,
    },
    Loops {
        line: u32,
        lanes: String,
    },
}

/// Whether a sentence is about one warp or about several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarpCount {
    One,
    Several,
}

impl WaitReason {
    /// Returns the predicate of a sentence about one warp, or about several.
    pub(crate) fn predicate(&self, number: WarpCount) -> String {
        let wait = if number == WarpCount::One {
            "waits"
        } else {
            "wait"
        };
        match self {
            Self::ClusterBarrier { line, arrived, all } => format!(
                "{wait} at the cluster's barrier in line {line} ({arrived} of {all} warps have arrived)"
            ),
            Self::Registers { line, wanted, free } => {
                format!("{wait} in line {line} for {wanted} registers, of which {free} are free")
            }
            Self::Barrier {
                id,
                line,
                arrived,
                expected,
            } => format!(
                "{wait} at barrier {id} in line {line} ({arrived} of {expected} threads have arrived)"
            ),
            Self::Mbarrier {
                address,
                line,
                arrivals,
                bytes,
                polls,
            } => {
                let poll = if number == WarpCount::One {
                    "polls"
                } else {
                    "poll"
                };
                let polls = polls.map(|line| format!(" and {poll} in line {line}"));
                format!(
                    "{wait} at the mbarrier at 0x{address:x} in line {line} ({arrivals} arrivals and {bytes} bytes are missing){}",
                    polls.unwrap_or_default()
                )
            }
            Self::Exited if number == WarpCount::One => "has exited".into(),
            Self::Exited => "have exited".into(),
            Self::Polls { line, lanes } if number == WarpCount::One => {
                format!("polls without success in line {line}{lanes}")
            }
            Self::Polls { line, lanes } => format!("poll without success in line {line}{lanes}"),
            Self::Loops { line, lanes } if number == WarpCount::One => {
                format!("is in a loop that nothing ends, at line {line}{lanes}")
            }
            Self::Loops { line, lanes } => {
                format!("are in a loop that nothing ends, at line {line}{lanes}")
            }
        }
    }
}

/// A block, or a cluster of blocks, whose warps all wait.
#[derive(Debug)]
pub(crate) struct BlockWaits {
    /// The position of the block in the schedule.
    pub(crate) turn: u64,
    pub(crate) block: [u32; 3],
    /// The reasons why its warps wait.
    pub(crate) reasons: String,
    /// A fault at the first waiting instruction.
    pub(crate) fault: Box<Fault>,
}
