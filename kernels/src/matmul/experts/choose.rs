//! The choice of experts for many tokens, one token per warp.

use crate::harness::{Case, Variant};
use crate::pipeline::gemv::choose_experts::{ChooseExperts, MAX_CHOSEN, MAX_EXPERTS};
use crate::shared::{Contract, Overlap, Random, check_lengths};
use crate::simple::choose_experts::Weighting;
use ptx_gen::*;

args! {
    /// Arguments of [`ChooseTokenExperts`].
    pub struct ChooseTokenExpertsArgs {
        /// `[tokens, count]`: the router's logits
        logits: In<f32>,
        /// `[tokens, chosen]`: the experts of each token, from the largest logit to the smallest.
        /// Each is below `count`
        expert: Out<u32>,
        /// `[tokens, chosen]`: the weights of these experts. All weights of a token are NaN if one
        /// of its logits is not finite
        weight: Out<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of experts, at most 32 times the kernel's `per_lane`.
        count: u32,
        /// The number of experts of a token, at most 32.
        chosen: u32,
        /// The factor of all weights.
        scale: f32,
    }
}

/// Kernel that chooses the experts of many tokens.
///
/// The rule is the rule of decoding: of equal logits, the expert with the lower index comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChooseTokenExperts {
    /// The number of logits of a lane, 1 to 16.
    pub per_lane: u32,
    /// The experts that the softmax of the weights covers.
    pub weighting: Weighting,
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of warps of a block.
const WARPS: u32 = 4;

impl ChooseTokenExperts {
    /// Creates the kernel for a router with `count` experts, without overlap.
    pub const fn new(count: u32, weighting: Weighting) -> ChooseTokenExperts {
        ChooseTokenExperts {
            per_lane: count.div_ceil(32),
            weighting,
            overlap: Overlap::No,
        }
    }
}

impl KernelDef for ChooseTokenExperts {
    type Args<S: Side> = ChooseTokenExpertsArgs<S>;

    fn name(&self) -> String {
        let weighting = match self.weighting {
            Weighting::All => "all",
            Weighting::Chosen => "chosen",
        };
        let overlap = self.overlap.suffix();
        format!(
            "choose_token_experts_{}_{weighting}{overlap}",
            self.per_lane
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &ChooseTokenExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ChooseTokenExpertsArgs {
            tokens,
            count,
            chosen,
            ..
        } = a;
        self.range("the kernel's per_lane", self.per_lane, 1, MAX_EXPERTS / 32)?;
        self.range("tokens", tokens, 1, 1 << 24)?;
        self.range("count", count, 1, 32 * self.per_lane)?;
        self.range("chosen", chosen, 1, count.min(MAX_CHOSEN))?;
        check_lengths! { self, a:
            logits == tokens * count,
            expert == tokens * chosen,
            weight == tokens * chosen,
        }
        Ok(Grid::line(tokens.div_ceil(WARPS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ChooseTokenExpertsArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }

        // Warps past the last token choose for it again and store nothing.
        let token = k.ctaid() * WARPS + k.warp();
        let row = token.min(a.tokens - 1);
        let choice = ChooseExperts {
            logits: a.logits.row(row, a.count * 4).fresh(),
            count: a.count,
            chosen: a.chosen,
            scale: a.scale,
            per_lane: self.per_lane,
            weighting: self.weighting,
        };
        let (expert, weight) = choice.run(k);
        let slot = row.mad(a.chosen, k.lane());
        let stores = token.lt(a.tokens) & k.lane().lt(a.chosen);
        k.when(stores, || {
            a.expert.at(slot).st(expert);
            a.weight.at(slot).st(weight);
        });
        self.overlap.end(k);
    }

    fn reference(&self, a: ChooseTokenExpertsArgs<Cpu<'_>>) {
        let chosen = a.chosen as usize;
        let experts = a.expert.chunks_mut(chosen);
        let weights = a.weight.chunks_mut(chosen);
        let rows = a.logits.chunks(a.count as usize);
        for ((logits, experts), weights) in rows.zip(experts).zip(weights) {
            let choice = self.weighting.choose_on_cpu(logits, chosen, a.scale);
            for (slot, (expert, weight)) in choice.into_iter().enumerate() {
                experts[slot] = expert;
                weights[slot] = weight as f32;
            }
        }
    }
}

impl Variant for ChooseTokenExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Warps past the last token, ties, and a token with a logit that is not finite. The order of
        // such a token's experts is not part of the contract, so all of its experts are chosen, and
        // its first logit is the infinite one.
        let most = 32 * self.per_lane;
        let case = |tokens: u32, count: u32, chosen: u32, infinite: Option<u32>| {
            let mut random = Random(seed);
            let mut logits: Vec<f32> = (0..tokens * count)
                .map(|_| (random.unit() * 8.0).round())
                .collect();
            if let Some(token) = infinite {
                let row = &mut logits[(token * count) as usize..][..count as usize];
                for (i, logit) in row.iter_mut().enumerate() {
                    *logit = -(i as f32);
                }
                row[0] = f32::INFINITY;
            }
            let slots = (tokens * chosen) as usize;
            Case {
                label: format!("tokens={tokens} count={count} chosen={chosen}"),
                args: vec![
                    CpuArg::F32(logits),
                    CpuArg::U32(vec![0; slots]),
                    CpuArg::F32(vec![0.0; slots]),
                    CpuArg::scalar(tokens),
                    CpuArg::scalar(count),
                    CpuArg::scalar(chosen),
                    CpuArg::scalar(1.5f32),
                ],
                // The roundings of ex2, rcp and the sum.
                bound: 2e-6,
            }
        };
        vec![
            case(5, most - 3, 8, None),
            case(4, most, most.min(MAX_CHOSEN), Some(2)),
            case(1, 1, 1, None),
        ]
    }
}
