//! The adaptive draft length: the number of guesses that are worth verifying.
//!
//! Let `a` be the probability that a guess is right if all guesses before it are right. A step that
//! verifies `k` guesses then yields `1 + a + ... + a^k` tokens on average. It takes longer than a
//! step of one token, by a fraction for each further token that its kernels process, and making the
//! guesses takes time too. We choose the `k` that yields the most tokens per time, and estimate `a`
//! from the latest guesses.

/// The additional time of a step for each further token, as a fraction of a step of one token.
///
/// On an H200, a step of eight tokens of Llama-3.1-8B takes 2.9 times as long as a step of one
/// token in Q4_K_M, 2.1 times in BF16 and 1.9 times in Q8_0. That is a fraction of 0.27, 0.16 and
/// 0.13 per token. The constant is near the largest of them.
const TOKEN: f64 = 0.25;
/// The factor by which the weight of earlier guesses shrinks with each step.
const MEMORY: f64 = 0.95;
/// The prior: the number of guesses assumed before the first one, and how many of them were right.
const PRIOR: (f64, f64) = (2.0, 1.2);

/// The success rate of the latest guesses, from which the draft length follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DraftLength {
    /// The number of guesses compared with a choice. Later guesses weigh more.
    compared: f64,
    /// The number of right guesses, weighted in the same way.
    right: f64,
}

impl DraftLength {
    /// Returns the number of guesses to make, at most `most`. `cost` is the time of a guess in
    /// steps.
    pub(crate) fn guesses(&self, most: u32, cost: f64) -> u32 {
        // One less than a batch size is best used. `most` itself can be another number.
        let sizes = [1, 3, 7, most]
            .into_iter()
            .filter(|guesses| (1..=most).contains(guesses));
        let mut best = 0;
        let mut best_gain = 1.0;
        for guesses in sizes {
            let gain = self.gain(guesses, cost);
            if gain > best_gain {
                best = guesses;
                best_gain = gain;
            }
        }

        best
    }

    /// Returns the expected number of tokens in the time of a step of one token.
    fn gain(&self, guesses: u32, cost: f64) -> f64 {
        let (compared, right) = PRIOR;
        let right = (self.right + right) / (self.compared + compared);
        let tokens: f64 = (0..=guesses).map(|guess| right.powi(guess as i32)).sum();
        let more = f64::from((guesses + 1).next_power_of_two() - 1);
        tokens / (1.0 + TOKEN * more + cost * f64::from(guesses))
    }

    /// Records that the first `right` of `guesses` guesses were right.
    pub(crate) fn record(&mut self, guesses: u32, right: u32) {
        // Guesses after the first wrong one were not compared with a valid choice.
        self.compared = self.compared * MEMORY + f64::from(guesses.min(right + 1));
        self.right = self.right * MEMORY + f64::from(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of guesses of successive rounds, if `right(guesses)` of them are right.
    fn made(rounds: usize, most: u32, cost: f64, right: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut length = DraftLength::default();
        let mut round = || {
            let guesses = length.guesses(most, cost);
            length.record(guesses, right(guesses));
            guesses
        };
        (0..rounds).map(|_| round()).collect()
    }

    #[test]
    fn right_guesses_become_more() {
        assert_eq!(made(7, 7, 0.0, |guesses| guesses), [1, 3, 3, 7, 7, 7, 7]);
        assert_eq!(made(20, 2, 0.0, |guesses| guesses).last(), Some(&2));
        assert_eq!(made(5, 7, 0.3, |guesses| guesses), [1, 1, 1, 1, 3]);
    }

    #[test]
    fn wrong_guesses_stop_and_are_tried_again() {
        let made = made(60, 7, 0.0, |_| 0);
        let tried = made.iter().filter(|guesses| **guesses > 0).count();
        assert!((4..15).contains(&tried), "{made:?}");
        assert!(made[30..].iter().any(|guesses| *guesses > 0), "{made:?}");
        assert!(made.iter().all(|guesses| *guesses <= 1), "{made:?}");
    }

    #[test]
    fn what_costs_too_much_is_not_done() {
        assert_eq!(made(9, 7, 1.0, |guesses| guesses), [0; 9]);
        assert_eq!(DraftLength::default().guesses(0, 0.0), 0);
    }
}
