//! The device memory of a decoder, by purpose.

/// The device memory that a decoder or a batch needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeeds {
    /// The bytes of the weights.
    pub weights: u64,
    /// The bytes of the adapter, or 0 without one.
    pub adapter: u64,
    /// The bytes of the keys and values of all positions.
    pub cache: u64,
    /// The bytes of everything else, such as activations. A few kilobytes of state are not counted.
    pub work: u64,
    /// The total bytes of a draft model, or 0 without one.
    pub draft: u64,
}

impl MemoryNeeds {
    /// Returns the sum of all parts, in bytes.
    pub fn total(self) -> u64 {
        self.weights + self.adapter + self.cache + self.work + self.draft
    }
}
