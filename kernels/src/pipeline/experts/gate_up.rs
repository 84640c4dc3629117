//! The gated half of the chosen experts: `y_s = p_s f(Wgate_e norm(x)) * (Wup_e norm(x))` for each
//! chosen expert `e`, in slot `s`.
//!
//! Each block chooses the experts from the router's logits, in its producer warp, while the other
//! warps load the activations. The rows of the chosen experts are one matrix for the GEMV, in the
//! order of the slots.

use super::case::{ExpertCase, experts_of};
use crate::format::Format;
use crate::format::tile::{self, ROWS};
use crate::harness::{Case, Variant};
use crate::pipeline::block_float::{self, BlockFloat};
use crate::pipeline::contract::{self, ExpertSizes};
use crate::pipeline::gemv::case;
use crate::pipeline::gemv::choose_experts::ChooseExperts;
use crate::pipeline::gemv::epilogue::{Results, Store};
use crate::pipeline::gemv::expert_tiles::{ExpertSource, ExpertTiles, published, shared_weights};
use crate::pipeline::gemv::layout::Segments;
use crate::pipeline::gemv::plan::Plan;
use crate::pipeline::gemv::stream::{Input, StreamArgs, WeightStream};
use crate::pipeline::reference;
use crate::shared::{Contract, check_lengths};
use crate::simple::choose_experts::Weighting;
use crate::simple::swiglu::Activation;
use ptx_gen::*;

args! {
    /// Arguments of [`ExpertGateUp`].
    pub struct ExpertGateUpArgs {
        /// `[count, 2 * width, n]`: the weights as tiles, expert after expert. Each row block has
        /// eight rows of both matrices ([`RowOrder::GATE_UP`](crate::RowOrder::GATE_UP)).
        w: In<u8>,
        /// `[n]`: the residual stream
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[count]`: the logits of the router
        logits: In<f32>,
        /// `[chosen, width]`: the results as 16-bit integers, see
        /// [`block_float`](crate::pipeline::block_float)
        y: Out<u16>,
        /// `[chosen, width / 8]`: the block scales of the results
        y_scale: Out<f32>,
        /// `[blocks, chosen]`: the chosen experts, which each block publishes for the same block of
        /// [`ExpertDown`](super::down::ExpertDown)
        experts: InOut<u32>,
        /// The number of experts.
        count: u32,
        /// The number of chosen experts.
        chosen: u32,
        /// The number of rows of each of the two matrices of an expert, a multiple of 8.
        width: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The factor of the experts' weights.
        scale: f32,
        /// The arguments that all GEMVs share.
        stream: StreamArgs,
    }
}

/// Kernel that chooses experts and computes their gated activations, times their weights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExpertGateUp {
    /// The format of all matrices.
    pub format: Format,
    /// The activation function `f`.
    pub activation: Activation,
    /// The experts that the softmax of the weights covers.
    pub weighting: Weighting,
    /// The number of logits that each lane of the producer warp reads: at least the number of experts
    /// divided by 32.
    pub per_lane: u32,
    /// The division of a block among its warps.
    pub plan: Plan,
}

/// The number of rows of each matrix in a tile.
const HALF: u32 = ROWS / 2;

impl ExpertGateUp {
    /// Returns the segments of the chosen experts' matrices.
    pub fn segments(&self, chosen: u32, width: u32) -> Segments {
        Segments(vec![(self.format, chosen * width / HALF)])
    }
}

impl KernelDef for ExpertGateUp {
    type Args<S: Side> = ExpertGateUpArgs<S>;

    fn name(&self) -> String {
        format!(
            "expert_gate_up{}{}_{}_{}_{}",
            self.activation.suffix(),
            match self.weighting {
                Weighting::All => "_softmax_of_all",
                Weighting::Chosen => "",
            },
            32 * self.per_lane,
            self.format.suffix(),
            self.plan.suffix()
        )
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.format)
    }

    fn grid(&self, a: &ExpertGateUpArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ExpertGateUpArgs {
            n,
            count,
            chosen,
            width,
            ..
        } = a;
        self.multiple("width", width, HALF)?;
        self.range("chosen * width", chosen.saturating_mul(width), 1, 1 << 24)?;
        self.range("count", count, 1, 32 * self.per_lane)?;
        check_lengths! { self, a:
            x == n,
            gamma == n,
            logits == count,
        }
        let factors = [chosen * width];
        contract::bfp_lengths(self, 1, "y", [a.y, a.y_scale], "chosen * width", &factors)?;
        let sizes = ExpertSizes {
            count,
            chosen,
            row_blocks: width / HALF,
            n,
        };
        let segments = self.segments(chosen, width);
        let matrix = (&segments, self.plan, n);
        contract::experts(self, a.w, a.experts, sizes, matrix, &a.stream)
    }

    fn program<'k>(&self, k: Builder<'k>, a: ExpertGateUpArgs<Dev<'k>>) {
        let row_blocks = a.width / HALF;
        let choice = ChooseExperts {
            logits: a.logits.fresh(),
            count: a.count,
            chosen: a.chosen,
            scale: a.scale,
            per_lane: self.per_lane,
            weighting: self.weighting,
        };
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, a.chosen * row_blocks)],
            tiles: a.w,
            n: a.n,
            args: a.stream,
            tail: None,
            experts: Some(ExpertTiles {
                source: ExpertSource::Router(choice),
                published: a.experts,
                count: a.count,
                chosen: a.chosen,
                run: row_blocks * (a.n / tile::of(self.format).columns),
                runs: k.val(1),
            }),
        };
        let input = Input::Normed {
            x: a.x.fresh(),
            gamma: a.gamma,
            epsilon: a.epsilon,
        };
        let store = |r: &Results<'k>| {
            let (first, count) = r.shares[0];
            k.section(
                "pipeline/experts/gate",
                "epilogue: f(gate) * up * the expert's weight, as block floating point",
            );

            // Gate and up of a feature are in the same row block, so one block has both sums. Whole
            // warps run because block floating point takes the maximum over eight lanes.
            r.each_in_warps(count * HALF, HALF, |i, inside, item| {
                let [gate, up] = [0, HALF].map(|half| r.row(0, i / HALF, i % HALF + half, item));
                let feature = first * HALF + i;
                let weight = shared_weights(r.scratch).at(feature / a.width).ld();
                let sigmoid = self.activation.sigmoid(gate);
                let y = BlockFloat {
                    k,
                    values: a.y,
                    scales: a.y_scale,
                };
                y.store(feature, inside, gate * sigmoid * up * weight);
            });
        };
        stream.run(input, Store(store));
    }

    fn reference(&self, a: ExpertGateUpArgs<Cpu<'_>>) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let chosen = self
            .weighting
            .choose_on_cpu(a.logits, a.chosen as usize, a.scale);
        for block in a.experts.chunks_mut(a.chosen as usize) {
            for (to, (index, _)) in block.iter_mut().zip(&chosen) {
                *to = published(*index, a.stream.sequence + 1);
            }
        }

        let x = reference::normed(a.x, a.gamma, a.epsilon);
        let half = HALF as usize;
        let width = a.width as usize;
        let mut gated = vec![];
        for (index, weight) in chosen {
            let tiles = experts_of(a.w, a.count, index);
            let sums: Vec<f64> = reference::exact64(self.format, tiles, &x).collect();
            gated.extend((0..width).map(|i| {
                // A row block has eight rows of the gate, then the same rows of up.
                let row = i / half * ROWS as usize + i % half;
                weight * self.activation.exact(sums[row]) * sums[row + half]
            }));
        }
        let (values, scales) = block_float::encode(&gated);
        a.y.copy_from_slice(&values);
        a.y_scale.copy_from_slice(&scales);
    }
}

impl Variant for ExpertGateUp {
    fn cases(&self, seed: u64) -> Vec<Case> {
        ExpertCase::all(self.format, 32 * self.per_lane)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = shape.packed(self.format, 2 * shape.rows, shape.n, seed);
                let ExpertCase {
                    count,
                    chosen,
                    rows: width,
                    n,
                    blocks,
                    ..
                } = shape;
                let gamma: Vec<f32> = random
                    .units(n as usize)
                    .iter()
                    .map(|g| 1.0 + g / 4.0)
                    .collect();
                let logits = shape.logits(&mut random);
                let y = (chosen * width) as usize;
                let args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::F32(packed.x),
                    CpuArg::F32(gamma),
                    CpuArg::F32(logits),
                    CpuArg::U16(vec![0; y]),
                    CpuArg::F32(vec![0.0; y / block_float::BFP_BLOCK as usize]),
                    CpuArg::U32(vec![0; (blocks * chosen) as usize]),
                    CpuArg::scalar(count),
                    CpuArg::scalar(chosen),
                    CpuArg::scalar(width),
                    CpuArg::scalar(n),
                    CpuArg::scalar(1e-5f32),
                    CpuArg::scalar(2.5f32),
                ];
                let segments = self.segments(chosen, width);
                let case = case::case((self.plan, &segments), shape.gemv(n), args, &[]);
                shape.labelled(case)
            })
            .collect()
    }
}
