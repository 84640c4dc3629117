//! The time that a grammar costs on the CPU.

use std::time::Duration;

/// CPU times of a [`Matcher`](super::Matcher), with one entry per chosen token.
#[derive(Debug, Clone, Default)]
pub struct GrammarCosts {
    /// Times to find the allowed tokens. A decoder does this while the forward pass runs.
    pub masks: Vec<Duration>,
    /// Times to advance by a token and by the tokens that it forces. The forward pass waits for
    /// this.
    pub taken: Vec<Duration>,
    /// The number of tokens that were forced.
    pub forced: u32,
}

/// Returns a percentile of times by the nearest-rank method, or `None` if there are no times.
///
/// `share` is above 0 and at most 1, for example 0.99 for the 99th percentile.
pub fn percentile(times: &[Duration], share: f64) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() as f64 * share).ceil() as usize;
    times.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let found =
            [0.001, 0.5, 0.99, 1.0].map(|share| percentile(&times, share).unwrap().as_millis());
        assert_eq!(found, [1, 100, 198, 200]);
        assert_eq!(percentile(&times[..1], 0.99), Some(times[0]));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
