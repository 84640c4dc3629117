//! Dropout on the inputs of adapters ([Hinton et al., 2012](https://arxiv.org/abs/1207.0580)), by counters.
//!
//! Element `e = row k + column` of an input `[tokens, k]` takes word `e mod 4` of
//! [`philox4x32`]`((e / 4, 0, stream, micro), seed)`, and is kept if `word >> 8 >= round(p 2^24)`. A mask is a function
//! of its place alone, so the backward makes it again and nothing is stored.

use super::philox::philox4x32;

/// The mask of one input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask {
    /// Elements whose 24 bits are below this are dropped: see [`threshold`].
    pub threshold: u32,
    /// The key.
    pub seed: u64,
    /// Which input: `7 layer + projection`.
    pub stream: u32,
    /// The number of the micro-batch, from 0, over all steps.
    pub micro: u32,
}

/// `round(p 2^24)` for the share `p` of elements that are dropped.
pub fn threshold(p: f64) -> u32 {
    (p * f64::from(1 << 24)).round_ties_even() as u32
}

impl Mask {
    /// Which of the elements `4 i` to `4 i + 3` are kept.
    pub fn keeps(&self, i: u32) -> [bool; 4] {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        philox4x32([i, 0, self.stream, self.micro], key).map(|word| word >> 8 >= self.threshold)
    }

    /// `x * m`: the elements that are kept, and zeros. They are not divided by `1 - p`.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let four = |(i, x): (usize, &[f64])| {
            let keeps = self.keeps(i as u32);
            let kept = x.iter().zip(keeps).map(|(&x, keep)| if keep { x } else { 0.0 });
            kept.collect::<Vec<_>>()
        };
        x.chunks(4).enumerate().flat_map(four).collect()
    }
}
