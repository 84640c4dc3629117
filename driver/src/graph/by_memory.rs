//! Tables by memory: from the number of an allocation, which is an address, to what uses it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by memory. Only looked up, never walked: its order means nothing.
pub(crate) type ByMemory<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// Hashes one address by a multiplication (Knuth, The Art of Computer Programming, volume 3, section 6.4). Addresses
/// are the program's own, so that nobody chooses them to collide.
#[derive(Clone, Copy, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        // The golden ratio in 64 bits. The table takes its place from the low bits and a tag from the high ones.
        self.0 = (self.0 ^ address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}
