//! How many guesses are worth verifying.
//!
//! If a guess is right with probability `a`, given that those before it are, `k` of them bring `1 + a + ... + a^k` tokens
//! in one step. That step takes longer than one of a single token, by a part of it for each more token that its kernels
//! are made for, and guessing takes time, too. The number is chosen that brings the most tokens in the same time. What is
//! known of `a` is what came of the latest guesses.

/// What a step takes longer for each token more, as a share of a step of one token. On an H200 eight tokens of Llama-3.1-8B
/// take 2.9 steps of one in Q4_K_M, 2.1 in BF16 and 1.9 in Q8_0: a share of 0.27, 0.16 and 0.13.
const TOKEN: f64 = 0.25;
/// What is left of the weight of earlier guesses with each step.
const MEMORY: f64 = 0.95;
/// Guesses that are thought to have been made before the first one, and how many of them were right.
const PRIOR: (f64, f64) = (2.0, 1.2);

/// What came of the latest guesses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Guesses that were compared with a choice, and how many were right; the latest count most.
    compared: f64,
    right: f64,
}

impl Pace {
    /// The number of guesses to make, at most `most`, if each costs so many steps.
    pub(crate) fn guesses(&self, most: u32, cost: f64) -> u32 {
        let sizes = [1, 3, 7, most]
            .into_iter()
            .filter(|guesses| (1..=most).contains(guesses));
        let gain = |guesses: u32| (guesses, self.gain(guesses, cost));
        let best = sizes.map(gain).fold(
            (0, 1.0),
            |best, next| if next.1 > best.1 { next } else { best },
        );
        best.0
    }

    /// Tokens in the time of a step.
    fn gain(&self, guesses: u32, cost: f64) -> f64 {
        let (compared, right) = PRIOR;
        let right = (self.right + right) / (self.compared + compared);
        let tokens: f64 = (0..=guesses).map(|guess| right.powi(guess as i32)).sum();
        let more = f64::from((guesses + 1).next_power_of_two() - 1);
        tokens / (1.0 + TOKEN * more + cost * f64::from(guesses))
    }

    /// Of so many guesses, the first so many were right.
    pub(crate) fn heard(&mut self, guesses: u32, right: u32) {
        self.compared = self.compared * MEMORY + f64::from(guesses.min(right + 1));
        self.right = self.right * MEMORY + f64::from(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guesses that are made in turn, if so many of each are right.
    fn made(rounds: usize, most: u32, cost: f64, right: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut pace = Pace::default();
        let mut round = || {
            let guesses = pace.guesses(most, cost);
            pace.heard(guesses, right(guesses));
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
        assert_eq!(Pace::default().guesses(0, 0.0), 0);
    }
}
