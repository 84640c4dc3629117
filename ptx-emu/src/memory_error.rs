//! Why memory could not be allocated, freed or accessed.

use std::fmt;

/// Why the host could not allocate, free or access memory.
#[derive(Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// The device has no such room left.
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes in all.
        capacity: u64,
    },
    /// The address is not the base of a live allocation.
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The bytes do not lie within one live allocation.
    OutOfBounds {
        /// First address.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A fill pattern that is not 1, 2 or 4 bytes long, or an address that is no multiple of it.
    BadPattern {
        /// First address.
        address: u64,
        /// Length of the pattern.
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
                    "out of memory: {asked} bytes asked for, {used} of {capacity} in use"
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
