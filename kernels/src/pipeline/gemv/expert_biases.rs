//! The sum of the biases of the chosen experts' down projections.
//!
//! The down projections are one matrix for their GEMV, which has the experts' weights only as factors
//! of its input. The GEMV before it knows the weights, so its producer warps compute the weighted sum
//! of the biases. They do so after their last request of tiles, while the other warps multiply.

use super::expert_tiles::{ExpertBiases, ExpertTiles, shared_indices, shared_weights};
use super::layout::SCRATCH;
use super::ring::Ring;
use super::stream::{BlockShare, WeightStream};
use crate::format::tile::ROWS;

/// The number of features of a row block: half of its rows are rows of the gate.
const FEATURES: u32 = ROWS / 2;
/// The number of biases that a lane has in flight.
const IN_FLIGHT: u32 = 4;

impl<'k> WeightStream<'k> {
    /// Requests the biases of the block's rows of gate and up, and stores the weighted sum of the
    /// biases of the down projections. Each block computes some rows of the sum. The whole producer
    /// warp must call it, after it has found the experts.
    pub(super) fn add_biases(
        &self,
        ring: &Ring<'k>,
        share: &BlockShare<'k>,
        experts: &ExpertTiles<'k>,
        biases: &ExpertBiases<'k>,
    ) {
        let k = self.k;
        let indices = shared_indices(ring.base);
        k.section(
            "pipeline/experts/request_biases",
            "producer warp: request the biases of the block's rows of gate and up",
        );
        k.for_each(k.lane(), share.count, 32, |block| {
            // A row block has eight features, whose biases are 32 adjacent bytes.
            let feature = (share.first + block) * FEATURES;
            let slot = feature / biases.width;
            let within = feature - slot * biases.width;
            let at = indices.at(slot).ld().mad(biases.width, within);
            biases.gate.at(at).prefetch_l2();
            biases.up.at(at).prefetch_l2();
        });

        k.section(
            "pipeline/experts/bias_sum",
            "producer warp: the weighted sum of the biases of the down projections",
        );
        let weights = shared_weights(ring.base.at(SCRATCH));
        let first = k.ctaid() * 32 + k.lane();
        k.for_each(first, biases.hidden, self.args.blocks * 32, |row| {
            let mut sum = k.var(0.0);
            k.for_each(0, experts.chosen, IN_FLIGHT, |first| {
                let terms: Vec<_> = (0..IN_FLIGHT)
                    .map(|i| {
                        let inside = (first + i).lt(experts.chosen);
                        let slot = (first + i).min(experts.chosen - 1);
                        let expert = indices.at(slot).ld();
                        let mut bias = k.var(0.0);
                        biases
                            .down
                            .at(expert.mad(biases.hidden, row))
                            .ld_if(inside, &mut bias);
                        (weights.at(slot).ld(), bias)
                    })
                    .collect();

                // The slots are added in their order. A slot that does not exist adds zero.
                for (weight, bias) in terms {
                    sum.fma(weight, bias.get());
                }
            });
            biases.sum.at(row).st(sum.get());
        });
    }
}
