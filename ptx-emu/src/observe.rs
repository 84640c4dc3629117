//! What a launch counts, and what one of its threads does, for those who ask.

use crate::fault::SourcePlace;

/// The thread whose instructions are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Its block.
    pub block: [u32; 3],
    /// Its index in the block.
    pub thread: [u32; 3],
    /// Instructions after which no more are recorded.
    pub most: usize,
}

/// An instruction that a thread came to.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where it stands.
    pub place: SourcePlace,
    /// Whether the thread executed it, which a guard may forbid.
    pub executed: bool,
    /// The registers that it names, in their order.
    pub registers: Vec<RegisterStep>,
}

/// A register before and after an instruction; nothing where nobody has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterStep {
    /// Its name.
    pub name: String,
    /// Bits that it has: 1, 32 (also where it is declared with 16) or 64.
    pub bits: u32,
    /// Its value before.
    pub before: Option<u64>,
    /// Its value after.
    pub after: Option<u64>,
}

/// What the instructions of a kernel did in a launch.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Every instruction that was executed, in the order of the text.
    pub sites: Vec<SiteProfile>,
}

/// What one instruction did.
#[derive(Clone, Debug)]
pub struct SiteProfile {
    /// Where it stands.
    pub place: SourcePlace,
    /// Executions, counted once a warp; those that the guard forbids to all lanes are among them.
    pub warps: u64,
    /// Executions, counted once a lane.
    pub lanes: u64,
    /// Executions by warps that had diverged: some of their lanes, which have not exited, were elsewhere.
    pub diverged: u64,
    /// What loads, stores and atomics did, by the space that their addresses lie in.
    pub memory: Vec<MemoryProfile>,
}

/// A space of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemorySpace {
    /// `.global` and `.const`.
    Global,
    /// `.shared`, of this block and of others of the cluster.
    Shared,
    /// `.local`.
    Local,
}

/// What an instruction did in one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryProfile {
    /// The space.
    pub space: MemorySpace,
    /// Warps that came with addresses in it.
    pub requests: u64,
    /// Bytes that the lanes asked for.
    pub bytes: u64,
    /// Sectors of 32 bytes that a request touches, added up. Of global memory only.
    pub sectors: u64,
    /// Passes that requests take in a shared memory of 32 banks of 4 bytes, which serves the words of 32 lanes at a time
    /// (16 lanes of 8 bytes, 8 of 16), and each bank one word in a pass, to however many lanes. Of shared memory only.
    pub passes: u64,
    /// Passes that they would take without bank conflicts.
    pub least_passes: u64,
}

impl SiteProfile {
    /// The name of the instruction, with its suffixes and without its guard.
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
