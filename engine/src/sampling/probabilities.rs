//! Log-probabilities of tokens, from the words that the device records.

use warpwright_kernels::sample::weight::FRACTION;

/// Natural logarithms of probabilities at temperature 1, after biases and penalties and before any token is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct LogProbabilities {
    /// Of the chosen token.
    pub chosen: f64,
    /// The most likely tokens and theirs, the best first.
    pub best: Vec<(u32, f64)>,
}

impl LogProbabilities {
    /// Of a record: see `warpwright_kernels::sample::SampleTokenArgs`. The record ends with its best tokens.
    pub(crate) fn of_record(words: &[u32]) -> LogProbabilities {
        let float = |bits: u32| f64::from(f32::from_bits(bits));
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
