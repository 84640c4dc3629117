//! The choice of experts for one token: the largest router logits and their weights.
//!
//! The rank of an expert is the number of experts that come before it: those with a larger logit,
//! and those with an equal logit and a lower index. Ranks are thus a permutation, and each of the
//! `chosen` slots is written exactly once with an index below `count`. One block computes all ranks.
//! It compares every logit with every other, which is cheaper for some hundred experts than to
//! search for the largest logit once for each slot.
//!
//! A logit that is not finite counts as infinity. It then has a rank like every other logit, and the
//! softmax of infinities makes all weights NaN. The engine finds the NaN in the logits of the model.

use crate::harness::{Case, Variant};
use crate::shared::reduce::{block_max, block_sum};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::argmax::{key, key_on_cpu};
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`ChooseExperts`].
    pub struct ChooseExpertsArgs {
        /// `[count]`: the router logits
        logits: In<f32>,
        /// `[chosen]`: the indices of the chosen experts, from the largest logit to the smallest
        index: Out<u32>,
        /// `[chosen]`: the weights of the chosen experts
        weight: Out<f32>,
        /// The number of experts, at most 1024.
        count: u32,
        /// The number of chosen experts, at most 64.
        chosen: u32,
        /// The factor of all weights.
        scale: f32,
    }
}

/// The experts that the softmax of the weights covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weighting {
    /// All experts. The weights of the chosen ones add up to less than the factor.
    All,
    /// The chosen experts. Their weights add up to the factor.
    Chosen,
}

impl Weighting {
    /// Chooses `chosen` experts on the CPU. Returns their indices and weights, in double precision.
    ///
    /// Logits that are not finite count as infinity, as in the kernels.
    pub(crate) fn choose_on_cpu(
        self,
        logits: &[f32],
        chosen: usize,
        scale: f32,
    ) -> Vec<(u32, f64)> {
        let keys: Vec<f32> = logits.iter().copied().map(key_on_cpu).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // The sort is stable, so of equal logits the lower index comes first. No key is NaN, and zeros
        // of both signs are equal.
        order.sort_by(|&i, &j| keys[j].partial_cmp(&keys[i]).expect("no key is NaN"));
        let max = f64::from(keys[order[0]]);
        let share = |&i: &usize| (f64::from(keys[i]) - max).exp();
        let sum: f64 = match self {
            Weighting::All => order.iter().map(share).sum(),
            Weighting::Chosen => order[..chosen].iter().map(share).sum(),
        };
        order[..chosen]
            .iter()
            .map(|i| (*i as u32, share(i) / sum * f64::from(scale)))
            .collect()
    }
}

/// Kernel that chooses the experts of a token, with one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChooseExperts {
    /// The experts that the softmax covers.
    pub weighting: Weighting,
}

/// The maximum number of experts.
pub const MAX_EXPERTS: u32 = 1024;
/// The maximum number of chosen experts.
pub const MAX_CHOSEN: u32 = 64;
/// The number of threads of the block.
const THREADS: u32 = 256;
/// The number of logits that a thread reads at once.
const AT_ONCE: u32 = 4;

impl KernelDef for ChooseExperts {
    type Args<S: Side> = ChooseExpertsArgs<S>;

    fn name(&self) -> String {
        match self.weighting {
            Weighting::All => "choose_experts_all".to_owned(),
            Weighting::Chosen => "choose_experts_chosen".to_owned(),
        }
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ChooseExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ChooseExpertsArgs { count, chosen, .. } = a;
        self.range("count", count, 1, MAX_EXPERTS)?;
        self.range("chosen", chosen, 1, count.min(MAX_CHOSEN))?;
        check_lengths! { self, a:
            logits == count,
            index == chosen,
            weight == chosen,
        }
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ChooseExpertsArgs<Dev<'k>>) {
        let tid = k.tid();
        let warps = THREADS / 32;
        let keys = k.shared::<f32>("keys", MAX_EXPERTS);
        let shares = k.shared::<f32>("shares", MAX_CHOSEN);

        k.section(
            "simple/choose_experts/keys",
            "logits and their maximum; its barrier also publishes the logits",
        );
        let padded = (a.count + (AT_ONCE - 1)) & !(AT_ONCE - 1);
        let mut max = k.var(f32::NEG_INFINITY);
        k.for_each(tid, padded, THREADS, |i| {
            // The padding comes after every expert, because no key is minus infinity.
            let mut own = k.var(f32::NEG_INFINITY);
            k.when(i.lt(a.count), || own.set(key(a.logits.at(i).ld())));
            keys.at(i).st(own.get());
            max.max_with(own.get());
        });
        let max = block_max(k, warps, max.get());

        k.section(
            "simple/choose_experts/ranks",
            "rank of each expert; those below `chosen` have a slot",
        );
        let mut sum = k.var(0.0);
        k.for_each(tid, a.count, THREADS, |i| {
            let own = keys.at(i).ld();
            let mut rank = k.var(0u32);
            k.for_each(0, a.count, AT_ONCE, |first| {
                let others = keys.at(first).ld4();
                for (j, other) in (0..AT_ONCE).zip(others) {
                    let before = other.gt(own) | (other.eq(own) & (first + j).lt(i));
                    rank += before.select(1u32, 0u32);
                }
            });
            let rank = rank.get();
            let share = ((own - max) * LOG2_E).ex2();
            let is_chosen = rank.lt(a.chosen);
            k.when(is_chosen, || {
                a.index.at(rank).st(i);
                shares.at(rank).st(share);
            });
            sum += match self.weighting {
                Weighting::All => share,
                Weighting::Chosen => is_chosen.select(share, 0.0),
            };
        });

        k.section(
            "simple/choose_experts/weights",
            "sum of the shares, whose barrier also publishes the shares; weights",
        );
        let sum = block_sum(k, warps, sum.get());
        k.when(tid.lt(a.chosen), || {
            let weight = shares.at(tid).ld() * (sum.rcp() * a.scale);
            a.weight.at(tid).st(weight);
        });
    }

    fn reference(&self, a: ChooseExpertsArgs<Cpu<'_>>) {
        let chosen = self
            .weighting
            .choose_on_cpu(a.logits, a.chosen as usize, a.scale);
        for (slot, (index, weight)) in chosen.into_iter().enumerate() {
            a.index[slot] = index;
            a.weight[slot] = weight as f32;
        }
    }
}

impl Variant for ChooseExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One expert. All are chosen. Lengths of the padding. More experts than threads. The most
        // experts and slots.
        let shapes = [
            (1, 1),
            (2, 2),
            (5, 3),
            (31, 8),
            (128, 8),
            (257, 64),
            (1024, 64),
        ];
        let plain = shapes.map(|(count, chosen)| Choice {
            count,
            chosen,
            size: 4.0,
            scale: 1.0,
            special: &[],
            what: "random",
        });
        let of = |special, what| Choice {
            count: 60,
            chosen: 6,
            size: 1.0,
            scale: 2.5,
            special,
            what,
        };
        let special = [
            of(&[(59, 2.0), (7, 2.0), (30, 2.0)], "ties"),
            of(&[(3, f32::NAN)], "NaN"),
            of(&[(59, f32::INFINITY), (2, f32::INFINITY)], "infinity"),
            of(&[(40, f32::NEG_INFINITY)], "-infinity"),
        ];
        // All are equal, among them zeros of both signs.
        let flat = [
            Choice {
                size: 0.0,
                ..of(&[], "equal")
            },
            Choice {
                size: 0.0,
                ..of(&[(0, -0.0), (58, -0.0)], "zeros")
            },
        ];
        let steep = Choice {
            size: 80.0,
            ..of(&[], "steep")
        };
        plain
            .into_iter()
            .chain(special)
            .chain(flat)
            .chain([steep])
            .map(|choice| choice.filled(seed))
            .collect()
    }
}

/// A test case of [`ChooseExperts`].
struct Choice {
    count: u32,
    chosen: u32,
    /// The magnitude of the logits.
    size: f32,
    scale: f32,
    /// Logits with these values.
    special: &'static [(usize, f32)],
    what: &'static str,
}

impl Choice {
    fn filled(&self, seed: u64) -> Case {
        let mut random = Random(seed);
        let mut logits: Vec<f32> = (0..self.count).map(|_| random.unit() * self.size).collect();
        for &(i, v) in self.special {
            logits[i] = v;
        }
        let chosen = self.chosen as usize;
        Case {
            label: format!(
                "count={} chosen={} size={} {}",
                self.count, self.chosen, self.size, self.what
            ),
            args: vec![
                CpuArg::F32(logits),
                CpuArg::U32(vec![0; chosen]),
                CpuArg::F32(vec![0.0; chosen]),
                CpuArg::scalar(self.count),
                CpuArg::scalar(self.chosen),
                CpuArg::scalar(self.scale),
            ],
            // The exponent, up to 240, is rounded to 2^-17, where the share hardly counts. ex2, rcp
            // and the roundings of the sum are a few ulp.
            bound: 2e-6,
        }
    }
}
