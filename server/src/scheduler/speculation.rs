//! The number of drafts that a sequence verifies in its next step.
//!
//! Let `a` be the probability that a draft is right if all drafts before it are. A step that
//! verifies `k` drafts then yields `1 + a + ... + a^k` tokens on average. We choose the `k` that
//! yields the most tokens per time, and estimate `a` from the latest drafts of the sequence. A draft
//! model takes time for each draft, and prompt lookup takes none. The choice depends on no clock,
//! and it changes no token.

use super::options::{DraftLengthRule, SpeculationOptions};

/// The time of a step with one draft, in steps of one sequence without drafts.
///
/// A single sequence is decoded by other kernels, which are faster for one row. On an H100, they
/// decode Llama-3.1-8B in Q4_K_M at 574 tokens/s, and the kernels of a batch at 423.
const STEP: f64 = 1.4;
/// The additional time for each further draft. Up to eight rows take the same kernels.
const ROW: f64 = 0.03;
/// The factor by which the weight of earlier drafts shrinks with each step.
const MEMORY: f64 = 0.95;
/// The number of drafts assumed before the first one, and the number of these that were right.
const PRIOR: [f64; 2] = [2.0, 1.2];

/// The drafts of a request so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DraftHistory {
    /// The number of drafts that were compared with a chosen token. Later ones weigh more.
    compared: f64,
    /// The number of right drafts, weighted in the same way.
    right: f64,
    /// The number of drafts that were verified.
    pub(super) drafted: u32,
    /// The number of drafts that were right.
    pub(super) accepted: u32,
}

impl DraftHistory {
    /// Returns the number of drafts to verify in the next step, at most `most`. `cost` is the time
    /// to make a draft, in steps of one sequence.
    pub(super) fn wanted(&self, options: &SpeculationOptions, most: usize, cost: f64) -> usize {
        let most = most.min(options.drafts as usize);
        match options.length {
            DraftLengthRule::Always => most,
            DraftLengthRule::Adaptive => self.best(most, cost),
        }
    }

    fn best(&self, most: usize, cost: f64) -> usize {
        let [compared, right] = PRIOR;
        let probability = (self.right + right) / (self.compared + compared);
        let mut tokens = 1.0;
        let mut best = 0;
        let mut best_gain = 1.0;
        for drafts in 1..=most {
            tokens += probability.powi(drafts as i32);
            let time = STEP + ROW * (drafts - 1) as f64 + cost * drafts as f64;
            let gain = tokens / time;
            if gain > best_gain {
                best = drafts;
                best_gain = gain;
            }
        }
        best
    }

    /// Records that the first `accepted` of `drafted` drafts were right.
    pub(super) fn record(&mut self, drafted: usize, accepted: usize) {
        // Drafts after the first wrong one were not compared with a valid choice.
        self.compared = self.compared * MEMORY + drafted.min(accepted + 1) as f64;
        self.right = self.right * MEMORY + accepted as f64;
        self.drafted += drafted as u32;
        self.accepted += accepted as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive(drafts: u32) -> SpeculationOptions {
        SpeculationOptions {
            drafts,
            length: DraftLengthRule::Adaptive,
            ..SpeculationOptions::default()
        }
    }

    /// Returns the numbers of drafts of successive steps, of which `right` are right. They cost
    /// nothing.
    fn made(steps: usize, drafts: u32, right: usize) -> Vec<usize> {
        made_at_cost(steps, drafts, right, 0.0)
    }

    fn made_at_cost(steps: usize, drafts: u32, right: usize, cost: f64) -> Vec<usize> {
        let mut history = DraftHistory::default();
        let mut step = || {
            let wanted = history.wanted(&adaptive(drafts), 100, cost);
            history.record(wanted, right.min(wanted));
            wanted
        };
        (0..steps).map(|_| step()).collect()
    }

    #[test]
    fn right_drafts_go_on() {
        assert!(made(20, 7, 7)[1..].iter().all(|drafts| *drafts == 7));
        assert_eq!(made(5, 3, 3), [3; 5]);
    }

    #[test]
    fn wrong_drafts_stop_and_are_tried_again() {
        let made = made(80, 7, 0);
        let tried = made.iter().filter(|drafts| **drafts > 0).count();
        assert!((3..20).contains(&tried), "{made:?}");
        assert!(made[40..].iter().any(|drafts| *drafts > 0), "{made:?}");
    }

    #[test]
    fn drafts_that_cost_time_are_fewer() {
        assert_eq!(made_at_cost(20, 7, 7, 0.1).last(), Some(&7));
        // A draft that takes as long as the step it saves is of no use.
        assert_eq!(made_at_cost(20, 7, 7, 1.0), [0; 20]);
        let some = made_at_cost(200, 7, 2, 0.2);
        assert!(some.iter().all(|drafts| *drafts < 7), "{some:?}");
    }

    #[test]
    fn limits_hold() {
        let history = DraftHistory::default();
        assert_eq!(history.wanted(&adaptive(7), 0, 0.0), 0);
        assert!(history.wanted(&adaptive(7), 2, 0.0) <= 2);
        let always = SpeculationOptions {
            length: DraftLengthRule::Always,
            ..adaptive(5)
        };
        assert_eq!(history.wanted(&always, 100, 0.0), 5);
        assert_eq!(history.wanted(&always, 3, 0.0), 3);
    }
}
