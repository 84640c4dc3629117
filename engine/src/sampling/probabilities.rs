//! Log-probabilities of tokens, decoded from the records of the device.

use warpwright_kernels::sample::weight::FRACTION;

/// The natural logarithms of token probabilities at one position, at temperature 1, after biases
/// and penalties and before any token is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct LogProbabilities {
    /// The log-probability of the chosen token.
    pub chosen: f64,
    /// The most likely tokens with their log-probabilities, in descending order.
    pub best: Vec<(u32, f64)>,
}

impl LogProbabilities {
    /// Decodes a record: see `warpwright_kernels::sample::SampleTokenArgs`. The record must end
    /// with its best tokens.
    pub(crate) fn from_record(words: &[u32]) -> LogProbabilities {
        let float = |bits: u32| f64::from(f32::from_bits(bits));

        // Words 1 and 2 are the fixed-point sum of `exp(z - largest)` over all tokens, with
        // `FRACTION` fractional bits. The logarithm of the full sum is therefore `largest +
        // ln(mass)`.
        let mass = (u64::from(words[1]) | u64::from(words[2]) << 32) as f64;
        let all = float(words[0]) + (mass / 2f64.powi(FRACTION as i32)).ln();
        let best = words[4..]
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[token, z]| (*token, float(*z) - all));
        LogProbabilities {
            chosen: float(words[3]) - all,
            best: best.collect(),
        }
    }
}
