//! Log-probabilities from logits on the host.

use warpwright_engine::LogProbabilities;

/// Returns the log-probability of a token, and those of the `best` most likely ones.
pub(super) fn log_probabilities(logits: &[f32], token: u32, best: u32) -> LogProbabilities {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials = logits
        .iter()
        .map(|logit| (f64::from(*logit) - f64::from(largest)).exp());
    let all = f64::from(largest) + exponentials.sum::<f64>().ln();
    let log_probability = |token: u32| f64::from(logits[token as usize]) - all;

    // Equal logits are ordered by their ids, so that the result is always the same.
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let descending = |a: &u32, b: &u32| {
        let compared = logits[*b as usize].total_cmp(&logits[*a as usize]);
        compared.then(a.cmp(b))
    };
    let best = (best as usize).min(order.len());
    if (1..order.len()).contains(&best) {
        order.select_nth_unstable_by(best - 1, descending);
    }
    order.truncate(best);
    order.sort_unstable_by(descending);
    LogProbabilities {
        chosen: log_probability(token),
        best: order
            .into_iter()
            .map(|token| (token, log_probability(token)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::log_probabilities;

    #[test]
    fn the_best_tokens_are_in_descending_order() {
        let logits = [1.0, 3.0, 2.0, 3.0];
        let all = logits
            .iter()
            .map(|x: &f32| f64::from(*x).exp())
            .sum::<f64>()
            .ln();
        let found = log_probabilities(&logits, 2, 3);
        assert!((found.chosen - (2.0 - all)).abs() < 1e-12);
        let ids: Vec<u32> = found.best.iter().map(|(token, _)| *token).collect();
        assert_eq!(ids, [1, 3, 2]);
        assert!((found.best[0].1 - (3.0 - all)).abs() < 1e-12);
        assert_eq!(log_probabilities(&logits, 0, 0).best, []);
        assert_eq!(log_probabilities(&logits, 0, 9).best.len(), 4);
    }
}
