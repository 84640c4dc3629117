//! Hash maps by allocation.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are the numbers of allocations, which are addresses.
///
/// It is only searched and never iterated, because its order differs from run to run.
pub(crate) type ByMemory<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// A multiplicative hash of an address (Knuth, The Art of Computer Programming, volume 3, section
/// 6.4).
///
/// It needs no protection against chosen collisions, because the addresses come from the program's
/// own allocator.
#[derive(Clone, Copy, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // The factor is 2^64 divided by the golden ratio. The product is best in its high bits. The
        // map takes the bucket from the low bits and a tag from the high ones, so the halves are
        // swapped.
        self.0 = (self.0 ^ address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}
