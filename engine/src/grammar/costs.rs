//! What a grammar costs: how long the host takes for each token.

use std::time::Duration;

/// Times of the host, one for each token that was chosen.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    /// To find the tokens that are allowed: while the forward pass runs.
    pub masks: Vec<Duration>,
    /// To take a token in, with those that it forces: before the forward pass starts.
    pub taken: Vec<Duration>,
    /// The number of tokens that were forced.
    pub forced: u32,
}

/// The time that this share of the times, above 0 and up to 1, does not exceed: the nearest rank. Nothing of none.
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
