//! Errors of allocations, frees and accesses by the host.

use std::fmt;

/// The reason why the host cannot allocate, free or access memory.
#[derive(Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// The capacity of the device, or the memory of the host, is exhausted.
    OutOfMemory {
        /// The number of requested bytes.
        asked: u64,
        /// The number of bytes in use.
        used: u64,
        /// The capacity in bytes.
        capacity: u64,
    },
    /// The address is not the base of a live allocation.
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The bytes do not lie in one live allocation.
    OutOfBounds {
        /// The first address.
        address: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// The fill pattern does not have 1, 2 or 4 bytes, or the address is not a multiple of its
    /// length.
    BadPattern {
        /// The first address.
        address: u64,
        /// The length of the pattern in bytes.
        bytes: usize,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory {
                asked,
                used,
                capacity,
            } => {
                write!(
                    f,
                    "out of memory: {asked} bytes requested, {used} of {capacity} in use"
                )
            }
            Self::NotAnAllocation { address } => {
                write!(f, "0x{address:x} is not the base of a live allocation")
            }
            Self::OutOfBounds { address, bytes } => {
                write!(
                    f,
                    "{bytes} bytes at 0x{address:x} do not lie within one live allocation"
                )
            }
            Self::BadPattern { address, bytes } => {
                write!(
                    f,
                    "cannot fill 0x{address:x} with a pattern of {bytes} bytes: it must be 1, 2 or 4, and aligned"
                )
            }
        }
    }
}

impl std::error::Error for MemoryError {}
