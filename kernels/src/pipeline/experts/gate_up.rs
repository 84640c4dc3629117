//! The gated half of the chosen experts: `y_s = p_s f(Wgate_e norm(x)) * (Wup_e norm(x))` for each
//! chosen expert `e`, in slot `s`. The experts of some families have biases, see
//! [`WithExpertBiases`].
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
use crate::pipeline::gemv::expert_tiles::{
    ExpertBiases, ExpertSource, ExpertTiles, published, scratch_indices, shared_weights,
};
use crate::pipeline::gemv::layout::Segments;
use crate::pipeline::gemv::lora;
use crate::pipeline::gemv::plan::Plan;
use crate::pipeline::gemv::stream::{Input, StreamArgs, WeightStream};
use crate::pipeline::reference;
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::choose_experts::Weighting;
use crate::simple::swiglu::{
    Activation, CLAMPED_ALPHA, CLAMPED_LIMIT, ClampedUnit, clamped_exactly,
};
use ptx_gen::*;

args! {
    /// Arguments of [`ExpertGateUp`].
    pub struct ExpertGateUpArgs {
        /// `[count, 2 * width, n]`: the weights as tiles, expert after expert. Each row block has
        /// eight rows of both matrices ([`RowOrder::GATE_UP`](crate::RowOrder::GATE_UP)).
        w: In<u8>,
        /// `[n]`: the residual stream, without the padding of rows
        x: In<f32>,
        /// `[n]`: weights of the norm, without the padding of rows
        gamma: In<f32>,
        /// `[count]`: the logits of the router
        logits: In<f32>,
        /// `[chosen, width]`: the results as 16-bit integers, see
        /// [`block_float`](crate::pipeline::block_float). With a
        /// [`stride`](field@ExpertGateUp::stride), `[chosen, stride]`, and only the first `width` of
        /// each slot are written.
        y: Out<u16>,
        /// `[chosen, width / 8]`, or `[chosen, stride / 8]`: the block scales of the results
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
    /// The function of gate and up.
    pub activation: ExpertActivation,
    /// The experts that the softmax of the weights covers.
    pub weighting: Weighting,
    /// The number of logits that each lane of the producer warp reads: at least the number of experts
    /// divided by 32.
    pub per_lane: u32,
    /// The distance between the results of two slots, a multiple of 8, if it is larger than `width`.
    /// The rows of the down projection are then padded to this length.
    pub stride: Option<u32>,
    /// The division of a block among its warps.
    pub plan: Plan,
}

/// The function that combines the gate and up projections of an expert.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExpertActivation {
    /// `f(gate) * up`.
    Gated(Activation),
    /// The clamped SwiGLU of gpt-oss: `gate * sigmoid(1.702 gate) * (up + 1)`, with `gate` at most 7
    /// and `up` from -7 to 7.
    ClampedSwiglu,
}

impl ExpertActivation {
    /// Returns the suffix of a kernel's name.
    fn suffix(self) -> &'static str {
        match self {
            ExpertActivation::Gated(activation) => activation.suffix(),
            ExpertActivation::ClampedSwiglu => "_clamped",
        }
    }

    /// Returns the function of gate and up.
    fn combine<'k>(self, k: Builder<'k>, gate: F32<'k>, up: F32<'k>) -> F32<'k> {
        match self {
            ExpertActivation::Gated(activation) => gate * activation.sigmoid(gate) * up,
            ExpertActivation::ClampedSwiglu => {
                let unit = ClampedUnit {
                    alpha: k.val(CLAMPED_ALPHA),
                    limit: k.val(CLAMPED_LIMIT),
                };
                let gate = unit.below(gate);
                let [sigmoid, up] = unit.sigmoid_and_up(gate, unit.below(up));
                gate * sigmoid * (up + 1.0)
            }
        }
    }

    /// Returns the function of gate and up in double precision.
    fn exact(self, gate: f64, up: f64) -> f64 {
        match self {
            ExpertActivation::Gated(activation) => activation.exact(gate) * up,
            ExpertActivation::ClampedSwiglu => {
                clamped_exactly(gate, up, CLAMPED_ALPHA.into(), CLAMPED_LIMIT.into())
            }
        }
    }
}

args! {
    /// The biases of the experts.
    pub struct ExpertBiasArgs {
        /// `[count, width]`: the biases of the gate projections
        gate_bias: In<f32>,
        /// `[count, width]`: the biases of the up projections
        up_bias: In<f32>,
        /// `[count, hidden]`: the biases of the down projections
        down_bias: In<f32>,
        /// `[hidden]`: the sum over the slots `s` of `p_s` times the bias of the down projection of
        /// the expert in the slot, which [`WithBias`](crate::pipeline::WithBias) of
        /// [`ExpertDown`](super::down::ExpertDown) adds
        bias_sum: Out<f32>,
        /// The number of rows of a down projection.
        hidden: u32,
    }
}

args! {
    /// Arguments of [`WithExpertBiases`].
    pub struct WithExpertBiasesArgs {
        /// The arguments of the kernel.
        product: ExpertGateUpArgs,
        /// The biases.
        biases: ExpertBiasArgs,
    }
}

/// [`ExpertGateUp`] for experts with biases. It adds those of gate and up, and computes the weighted
/// sum of those of the down projections, because it knows the weights of the experts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WithExpertBiases(pub ExpertGateUp);

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
            "expert_gate_up{}{}_{}_{}{}_{}",
            self.activation.suffix(),
            match self.weighting {
                Weighting::All => "_softmax_of_all",
                Weighting::Chosen => "",
            },
            32 * self.per_lane,
            self.format.suffix(),
            self.stride
                .map_or(String::new(), |stride| format!("_stride_{stride}")),
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
        contract::normed(self, self.plan, a.x, a.gamma, n)?;
        check_lengths! { self, a:
            logits == count,
        }
        if let Some(stride) = self.stride {
            self.multiple("the kernel's stride", stride, block_float::BFP_BLOCK)?;
            self.range("the kernel's stride", stride, width, 1 << 24)?;
            self.range("chosen * stride", chosen.saturating_mul(stride), 1, 1 << 24)?;
        }
        let (formula, stride) = match self.stride {
            None => ("chosen * width", width),
            Some(stride) => ("chosen * stride", stride),
        };
        contract::bfp_lengths(self, 1, "y", [a.y, a.y_scale], formula, &[chosen * stride])?;
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
        self.emit(k, a, None);
    }

    fn reference(&self, a: ExpertGateUpArgs<Cpu<'_>>) {
        self.compute(a, None);
    }
}

impl KernelDef for WithExpertBiases {
    type Args<S: Side> = WithExpertBiasesArgs<S>;

    fn name(&self) -> String {
        format!("{}_biases", KernelDef::name(&self.0))
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.0)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        KernelDef::blocks_per_sm(&self.0)
    }

    fn grid(&self, a: &WithExpertBiasesArgs<Shape>) -> Result<Grid, ShapeError> {
        // The error of the inner contract must name this kernel.
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let grid = self.0.grid(&a.product).map_err(named)?;
        let ExpertGateUpArgs { count, width, .. } = a.product;
        let biases = &a.biases;
        let hidden = biases.hidden;
        self.range("hidden", hidden, 1, u32::MAX / count)?;
        for (name, found) in [("gate_bias", biases.gate_bias), ("up_bias", biases.up_bias)] {
            self.length(name, found, "count * width", &[count, width])?;
        }
        self.length(
            "down_bias",
            biases.down_bias,
            "count * hidden",
            &[count, hidden],
        )?;
        self.length("bias_sum", biases.bias_sum, "hidden", &[hidden])?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: WithExpertBiasesArgs<Dev<'k>>) {
        self.0.emit(k, a.product, Some(a.biases));
    }

    fn reference(&self, a: WithExpertBiasesArgs<Cpu<'_>>) {
        self.0.compute(a.product, Some(a.biases));
    }
}

impl ExpertGateUp {
    /// Emits the program, with biases or without them.
    fn emit<'k>(
        &self,
        k: Builder<'k>,
        a: ExpertGateUpArgs<Dev<'k>>,
        biases: Option<ExpertBiasArgs<Dev<'k>>>,
    ) {
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
                biases: biases.map(|biases| ExpertBiases {
                    gate: biases.gate_bias,
                    up: biases.up_bias,
                    down: biases.down_bias,
                    sum: biases.bias_sum,
                    width: a.width,
                    hidden: biases.hidden,
                }),
            }),
        };
        let input = Input::Normed {
            x: a.x.fresh(),
            gamma: a.gamma,
            epsilon: a.epsilon,
        };
        let store = |r: &Results<'k>| {
            let (first, count) = r.shares[0];
            match self.activation {
                ExpertActivation::Gated(_) => k.section(
                    "pipeline/experts/gate",
                    "epilogue: f(gate) * up * the expert's weight, as block floating point",
                ),
                ExpertActivation::ClampedSwiglu => k.section(
                    "pipeline/experts/clamped_gate",
                    "epilogue: clamped SwiGLU * the expert's weight, as block floating point",
                ),
            }

            // Gate and up of a feature are in the same row block, so one block has both sums. Whole
            // warps run because block floating point takes the maximum over eight lanes.
            r.each_in_warps(count * HALF, HALF, |i, inside, item| {
                let [gate, up] = [0, HALF].map(|half| r.row(0, i / HALF, i % HALF + half, item));
                let feature = first * HALF + i;
                let slot = feature / a.width;
                let weight = shared_weights(r.scratch).at(slot).ld();
                let within = || feature - slot * a.width;
                let [gate, up] = match &biases {
                    None => [gate, up],
                    Some(biases) => {
                        let expert = scratch_indices(r.scratch).at(slot).ld();
                        let at = expert.mad(a.width, within());
                        [
                            gate + biases.gate_bias.at(at).ld(),
                            up + biases.up_bias.at(at).ld(),
                        ]
                    }
                };
                let to = match self.stride {
                    None => feature,
                    Some(stride) => slot.mad(stride, within()),
                };
                let y = BlockFloat {
                    k,
                    values: a.y,
                    scales: a.y_scale,
                };
                y.store(to, inside, self.activation.combine(k, gate, up) * weight);
            });
        };
        stream.run(input, Store(store));
    }

    /// Computes the reference, with biases or without them.
    fn compute(&self, a: ExpertGateUpArgs<Cpu<'_>>, biases: Option<ExpertBiasArgs<Cpu<'_>>>) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let chosen = self
            .weighting
            .choose_on_cpu(a.logits, a.chosen as usize, a.scale);
        for block in a.experts.chunks_mut(a.chosen as usize) {
            for (to, (index, _)) in block.iter_mut().zip(&chosen) {
                *to = published(*index, a.stream.sequence + 1);
            }
        }

        let x = reference::padded_normed(a.x, a.gamma, a.epsilon, a.n);
        let half = HALF as usize;
        let width = a.width as usize;
        let stride = self.stride.unwrap_or(a.width) as usize;
        for (slot, &(index, weight)) in chosen.iter().enumerate() {
            let tiles = experts_of(a.w, a.count, index);
            let sums: Vec<f64> = reference::exact64(self.format, tiles, &x).collect();
            let bias = |of: &[f32], i: usize| f64::from(of[index as usize * width + i]);
            let gated: Vec<f64> = (0..width)
                .map(|i| {
                    // A row block has eight rows of the gate, then the same rows of up.
                    let row = i / half * ROWS as usize + i % half;
                    let [gate, up] = [sums[row], sums[row + half]];
                    let [gate, up] = match &biases {
                        None => [gate, up],
                        Some(biases) => [
                            gate + bias(biases.gate_bias, i),
                            up + bias(biases.up_bias, i),
                        ],
                    };
                    weight * self.activation.exact(gate, up)
                })
                .collect();
            let (values, scales) = block_float::encode(&gated);
            let block = block_float::BFP_BLOCK as usize;
            a.y[slot * stride..][..width].copy_from_slice(&values);
            a.y_scale[slot * stride / block..][..width / block].copy_from_slice(&scales);
        }

        if let Some(biases) = biases {
            for (row, sum) in biases.bias_sum.iter_mut().enumerate() {
                let terms = chosen.iter().map(|&(index, weight)| {
                    let at = index as usize * biases.hidden as usize + row;
                    weight * f64::from(biases.down_bias[at])
                });
                *sum = terms.sum::<f64>() as f32;
            }
        }
    }
}

impl Variant for ExpertGateUp {
    fn cases(&self, seed: u64) -> Vec<Case> {
        ExpertCase::all(self.format, 32 * self.per_lane)
            .into_iter()
            .map(|shape| {
                let shape = ExpertCase {
                    n: case::padded(self.format, self.plan, shape.n),
                    ..shape
                };
                let (mut random, packed) = shape.packed(self.format, 2 * shape.rows, shape.n, seed);
                let ExpertCase {
                    count,
                    chosen,
                    rows: width,
                    n,
                    blocks,
                    ..
                } = shape;
                let gamma = case::gamma(&mut random, self.plan, n);
                let logits = shape.logits(&mut random);
                let y = (chosen * self.stride.unwrap_or(width)) as usize;
                let x = case::unpadded(packed.x, self.plan);
                let args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::F32(x),
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

impl Variant for WithExpertBiases {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let mut random = Random(seed ^ 0xb1a5);
        let cases = self.0.cases(seed).into_iter().zip([48, 16, 80, 240, 20]);
        cases
            .map(|(mut case, hidden)| {
                let [count, width] = [7, 9].map(|i| lora::size(&case.args[i]));

                // Biases beyond the bounds of the clamped SwiGLU.
                let mut biases = |len: u32| -> Vec<f32> {
                    let units = random.units((count * len) as usize);
                    units.into_iter().map(|b| 16.0 * b).collect()
                };
                let [gate, up, down] = [width, width, hidden].map(&mut biases);
                case.args.extend([gate, up, down].map(CpuArg::F32));
                case.args.push(CpuArg::F32(vec![0.0; hidden as usize]));
                case.args.push(CpuArg::scalar(hidden));
                Case {
                    label: format!("{} hidden={hidden}", case.label),
                    ..case
                }
            })
            .collect()
    }
}
