//! The device memory of a decoder, itemized.

/// Bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Of the weights.
    pub weights: u64,
    /// Of an adapter: 0 without one.
    pub adapter: u64,
    /// Of the keys and values of all positions.
    pub cache: u64,
    /// Bytes of everything else except a few kilobytes: state and activations.
    pub work: u64,
    /// All that a draft model needs: 0 without one.
    pub draft: u64,
}

impl Needs {
    /// The total.
    pub fn total(self) -> u64 {
        self.weights + self.adapter + self.cache + self.work + self.draft
    }
}
