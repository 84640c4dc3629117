//! The choice of a layer's experts from the logits of its router, by one warp.
//!
//! The warp chooses the largest logits one after another. Each lane sorts its own logits first, so
//! that a round compares only the largest remaining logit of each lane. Logits are compared as
//! integers with the same order. Of equal logits, the expert with the lower index comes first.

use crate::shared::reduce::warp_sum;
use crate::simple::choose_experts::Weighting;
use ptx_gen::*;

/// The largest number of experts of a layer.
pub const MAX_EXPERTS: u32 = 512;
/// The largest number of experts that are chosen: one per lane.
pub const MAX_CHOSEN: u32 = 32;

/// The choice of a layer's experts.
pub(crate) struct ChooseExperts<'k> {
    /// `[count]`: the logits of the router.
    pub(crate) logits: Ptr<'k, f32, Fresh>,
    /// The number of experts, at most 32 times `per_lane`.
    pub(crate) count: U32<'k>,
    /// The number of experts to choose, at most `count` and at most [`MAX_CHOSEN`].
    pub(crate) chosen: U32<'k>,
    /// The factor of the weights.
    pub(crate) scale: F32<'k>,
    /// The number of logits of a lane.
    pub(crate) per_lane: u32,
    pub(crate) weighting: Weighting,
}

/// The sign bit of an `f32`.
const SIGN: u32 = 1 << 31;

/// Returns an integer that is ordered like `v`. It is above 0 for every number.
fn key<'k>(v: F32<'k>) -> U32<'k> {
    // The sum turns -0 into 0, because both are equal.
    let bits = (v + 0.0).bits::<u32>();
    bits ^ (((bits >> 31) * !SIGN) | SIGN)
}

/// Returns the number of which `key` is the key.
fn number<'k>(key: U32<'k>) -> F32<'k> {
    (key ^ ((((key >> 31) ^ 1) * !SIGN) | SIGN)).bits::<f32>()
}

impl<'k> ChooseExperts<'k> {
    /// Chooses the experts. Lane `i` gets the index and the weight of the chosen expert `i`. The
    /// whole warp must call it.
    ///
    /// The index is always below the number of experts. If a logit is not finite, all weights are
    /// NaN.
    pub(crate) fn run(&self, k: Builder<'k>) -> (U32<'k>, F32<'k>) {
        k.section(
            "pipeline/experts/logits",
            "one warp: the lane's logits as integers of the same order",
        );
        let lane = k.lane();
        let loaded: Vec<_> = (0..self.per_lane)
            .map(|j| {
                let index = lane + 32 * j;
                let exists = index.lt(self.count);
                let mut logit = k.var(f32::NEG_INFINITY);
                self.logits.at(index).ld_if(exists, &mut logit);
                (index, exists, logit)
            })
            .collect();
        let logits: Vec<(Pred<'k>, F32<'k>)> = loaded
            .iter()
            .map(|(_, exists, logit)| (*exists, logit.get()))
            .collect();
        let finite = logits
            .iter()
            .map(|&(exists, logit)| !exists | logit.abs().lt(f32::INFINITY))
            .reduce(|a, b| a & b)
            .expect("a lane has a logit");
        let finite = finite.all();

        // The key 0 is below the key of every number.
        let mut sorted: Vec<(U32<'k>, U32<'k>)> = loaded
            .iter()
            .map(|(index, exists, logit)| (exists.select(key(logit.get()), 0), *index))
            .collect();
        self.sort(k, &mut sorted);

        let (chosen, key) = self.choose(k, &sorted);

        k.section(
            "pipeline/experts/weights",
            "one warp: the weights of the chosen experts",
        );
        let logit = number(key);
        let largest = logit.broadcast();
        let term = lane.lt(self.chosen).select((logit - largest).exp(), 0.0);
        let sum = match self.weighting {
            Weighting::Chosen => term,
            Weighting::All => logits
                .iter()
                .map(|&(exists, logit)| exists.select((logit - largest).exp(), 0.0))
                .reduce(|a, b| a + b)
                .expect("a lane has a logit"),
        };
        let weight = term * (warp_sum(sum).rcp() * self.scale);

        // An infinite logit or a NaN must reach the logits of the model, where it is reported.
        let weight = finite.select(weight, f32::NAN);
        (chosen.min(self.count - 1), weight)
    }

    /// Sorts the lane's keys, the largest first. Equal keys keep their order.
    fn sort(&self, k: Builder<'k>, sorted: &mut [(U32<'k>, U32<'k>)]) {
        k.section("pipeline/experts/sort", "one warp: sort the lane's logits");
        for end in (1..sorted.len()).rev() {
            for i in 0..end {
                let (a, a_index) = sorted[i];
                let (b, b_index) = sorted[i + 1];
                let swap = b.gt(a);
                sorted[i] = (a.max(b), swap.select(b_index, a_index));
                sorted[i + 1] = (a.min(b), swap.select(a_index, b_index));
            }
        }
    }

    /// Chooses the largest keys. Lane `i` gets the index and the key of choice `i`.
    fn choose(&self, k: Builder<'k>, sorted: &[(U32<'k>, U32<'k>)]) -> (U32<'k>, U32<'k>) {
        /// Minus an index, this is larger for lower indices and always above 0.
        const ABOVE: u32 = 1 << 16;
        k.section(
            "pipeline/experts/choose",
            "one warp: choose the largest logits one after another",
        );
        let lane = k.lane();
        let mut rest: Vec<_> = sorted
            .iter()
            .map(|&(key, index)| (k.var(key), k.var(ABOVE - index)))
            .collect();
        let mut chosen = k.var(0);
        let mut key = k.var(0);
        k.for_each(0, self.chosen, 1, |round| {
            let head = rest[0].0.get();
            let place = rest[0].1.get();
            let largest = head.redux_max();
            let found = head.eq(largest).select(place, 0).redux_max();

            // Places differ in all lanes, so one lane removes its largest logit.
            let mine = place.eq(found);
            for i in 0..rest.len() {
                let next = match rest.get(i + 1) {
                    Some((key, place)) => (key.get(), place.get()),
                    None => (k.val(0), k.val(0)),
                };
                let (key, place) = &mut rest[i];
                key.set(mine.select(next.0, &*key));
                place.set(mine.select(next.1, &*place));
            }

            let here = lane.eq(round);
            chosen.set(here.select(ABOVE - found, &chosen));
            key.set(here.select(largest, &key));
        });
        (chosen.get(), key.get())
    }
}
