//! Profiles of kernels, and records of single threads.

use crate::fault::SourcePlace;

/// The thread whose instructions a launch records, one [`FollowedStep`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The index of its block.
    pub block: [u32; 3],
    /// The index of the thread in its block.
    pub thread: [u32; 3],
    /// The maximum number of recorded instructions.
    pub most: usize,
}

/// An instruction that the followed thread reached.
#[derive(Clone, Debug)]
pub struct FollowedStep {
    /// The instruction.
    pub place: SourcePlace,
    /// Whether the thread executed it. It does not if the guard is false.
    pub executed: bool,
    /// The registers that the instruction names, in the order of the text.
    pub registers: Vec<RegisterStep>,
}

/// The value of a register before and after an instruction. `None` stands for an uninitialized
/// value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterStep {
    /// The name of the register.
    pub name: String,
    /// The width in bits: 1, 32 or 64. A 16-bit register has 32.
    pub bits: u32,
    /// The value before the instruction.
    pub before: Option<u64>,
    /// The value after the instruction.
    pub after: Option<u64>,
}

/// The counts of all instructions of a launch, which [`Watch::profile`](crate::Watch::profile)
/// enables.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The instructions that were executed, in the order of the text.
    pub sites: Vec<SiteProfile>,
}

/// The counts of one instruction.
#[derive(Clone, Debug)]
pub struct SiteProfile {
    /// The instruction.
    pub place: SourcePlace,
    /// The number of executions, counted once per warp. Executions in which the guard is false for
    /// all lanes are included.
    pub warps: u64,
    /// The number of executions, counted once per lane.
    pub lanes: u64,
    /// The number of executions by diverged warps, which have other lanes at another instruction.
    pub diverged: u64,
    /// The memory accesses, with one entry per state space.
    pub memory: Vec<MemoryProfile>,
}

/// A state space in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemorySpace {
    /// `.global` and `.const`.
    Global,
    /// `.shared`, of the block itself and of other blocks of the cluster.
    Shared,
    /// `.local`.
    Local,
}

/// The accesses of one instruction to one state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryProfile {
    /// The state space.
    pub space: MemorySpace,
    /// The number of requests. A request is one execution by a warp with addresses in this space.
    pub requests: u64,
    /// The number of bytes that the lanes accessed.
    pub bytes: u64,
    /// The number of 32-byte sectors that the requests touched, in global memory only.
    pub sectors: u64,
    /// The number of passes that the requests took, in shared memory only.
    ///
    /// Shared memory has 32 banks of 4 bytes. A request is split into groups of 32 lanes for 4-byte
    /// accesses, 16 lanes for 8 bytes and 8 lanes for 16 bytes. In one pass, each bank serves one
    /// word to any number of lanes.
    pub passes: u64,
    /// The number of passes that the requests would take without bank conflicts.
    pub least_passes: u64,
}

impl SiteProfile {
    /// Returns the name of the instruction with its suffixes and without its guard.
    pub fn opcode(&self) -> &str {
        let text = &self.place.text;
        let rest = if text.starts_with('@') {
            text.split_once(' ').map_or("", |(_, rest)| rest)
        } else {
            text
        };
        rest.split([' ', ';']).next().unwrap_or("")
    }
}
