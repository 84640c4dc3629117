//! Random numbers that are the same for the same seed.

/// A generator of random numbers (SplitMix64 by Steele, Lea and Flood,
/// <https://doi.org/10.1145/2714064.2660195>).
pub(super) struct Random(u64);

impl Random {
    /// Returns the generator of a client.
    pub(super) fn new(seed: u64, client: u64) -> Random {
        let mut random = Random(seed);
        let first = random.next();
        Random(first ^ client.wrapping_mul(0xd605_bbb5_8c8a_bc9b))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Returns one of the elements, of which there must be at least one.
    pub(super) fn choose<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.below(elements.len())]
    }
}
