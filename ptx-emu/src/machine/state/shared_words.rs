//! The words of shared memory.
//!
//! Their [shadow](crate::sanitize::race::shared::shared_shadow) decides whether an access is
//! allowed. The words are read and written after it did.

use crate::module::address_space::SHARED_BASE;

/// The shared memory of all blocks of a cluster.
#[derive(Debug)]
pub(crate) struct SharedWords {
    pub(crate) words: Vec<u32>,
}

impl SharedWords {
    /// Creates a memory of zeros.
    pub(crate) fn new(words: usize) -> SharedWords {
        SharedWords {
            words: vec![0; words],
        }
    }

    /// Returns the bytes at an offset that was checked.
    pub(crate) fn read(&self, offset: usize, bytes: u32) -> u64 {
        let word = self.words[offset / 4];
        match bytes {
            8 => u64::from(word) | u64::from(self.words[offset / 4 + 1]) << 32,
            4 => word.into(),
            _ => u64::from(word >> (8 * (offset % 4)) & ((1 << (8 * bytes)) - 1)),
        }
    }

    /// Stores bytes at an offset that was checked.
    pub(crate) fn write(&mut self, offset: usize, bytes: u32, value: u64) {
        let word = &mut self.words[offset / 4];
        match bytes {
            8 => {
                *word = value as u32;
                self.words[offset / 4 + 1] = (value >> 32) as u32;
            }
            4 => *word = value as u32,
            _ => {
                let shift = 8 * (offset % 4);
                let mask = ((1u32 << (8 * bytes)) - 1) << shift;
                *word = *word & !mask | (value as u32) << shift & mask;
            }
        }
    }

    /// Stores words at an address that was checked, and returns their number.
    pub(crate) fn store(&mut self, address: u32, values: impl Iterator<Item = u32>) -> usize {
        let first = ((address - SHARED_BASE) / 4) as usize;
        let mut count = 0;
        for value in values {
            self.words[first + count] = value;
            count += 1;
        }
        count
    }
}
