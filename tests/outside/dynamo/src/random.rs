//! A generator of random numbers, so that each run reads the same replies.

/// Xorshift by Marsaglia (<https://doi.org/10.18637/jss.v008.i14>).
pub(crate) struct Random(u64);

impl Random {
    /// Returns a generator for one reply of one format.
    pub(crate) fn new(format: &str, number: usize) -> Random {
        // FNV-1a, so that two formats do not read the same values.
        let seed = format.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Random(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit
    }

    /// Returns true once in `count` times.
    pub(crate) fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns an element of a list.
    pub(crate) fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
