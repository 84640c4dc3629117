//! The gated half of a feed-forward network: `y = f(Wgate norm(x)) * (Wup norm(x))`, for each token
//! of a batch. `f` is SiLU or GELU (see [`Activation`]). Gated feed-forward layers: Shazeer, "GLU
//! Variants Improve Transformer", 2020, arXiv:2002.05202.

use super::block_float::{self, BlockFloat};
use super::gemv::case;
use super::gemv::epilogue::{Results, Store};
use super::gemv::lora::{self, AdapterSegments, LoraArgs, LoraProduct, Tail, WithLora};
use super::gemv::stream::{Input, StreamArgs, WeightStream};
use super::{Packed, Plan, Segments};
use crate::format::Format;
use crate::format::tile::ROWS;
use crate::harness::{Case, Variant};
use crate::shared::Contract;
use crate::simple::swiglu::Activation;
use ptx_gen::*;

args! {
    /// Arguments of [`GateUp`].
    pub struct GateUpArgs {
        /// `[2 * rows, n]`: the weights as tiles. Each row block has eight rows of both matrices
        /// ([`RowOrder::GATE_UP`](crate::RowOrder::GATE_UP)).
        w: In<u8>,
        /// `[batch, n]`: the residual stream, without the padding of rows
        x: In<f32>,
        /// `[n]`: weights of the norm, without the padding of rows
        gamma: In<f32>,
        /// `[batch, rows]`: the results as 16-bit integers, see [`block_float`](super::block_float)
        y: Out<u16>,
        /// `[batch, rows / 8]`: the block scales of the results
        y_scale: Out<f32>,
        /// The number of rows of each of the two matrices, a multiple of 8.
        rows: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The arguments that all GEMVs share.
        stream: StreamArgs,
    }
}

/// Kernel that computes the gated activations of a feed-forward network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GateUp {
    /// The format of both matrices.
    pub format: Format,
    /// The activation function `f`.
    pub activation: Activation,
    /// The division of a block among its warps.
    pub plan: Plan,
}

/// The number of rows of each matrix in a tile.
const HALF: u32 = ROWS / 2;

impl GateUp {
    /// Returns the segments of the matrices.
    pub fn segments(&self, rows: u32) -> Segments {
        Segments(vec![(self.format, rows / HALF)])
    }
}

impl KernelDef for GateUp {
    type Args<S: Side> = GateUpArgs<S>;

    fn name(&self) -> String {
        format!(
            "gate_up{}_{}_{}",
            self.activation.suffix(),
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

    fn grid(&self, a: &GateUpArgs<Shape>) -> Result<Grid, ShapeError> {
        let &GateUpArgs { n, .. } = a;
        self.multiple("rows", a.rows, HALF)?;
        super::contract::normed(self, self.plan, a.x, a.gamma, n)?;
        super::contract::bfp_lengths(
            self,
            self.plan.batch,
            "y",
            [a.y, a.y_scale],
            "rows",
            &[a.rows],
        )?;
        super::contract::contract(self, a.w, &self.segments(a.rows), self.plan, n, &a.stream)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GateUpArgs<Dev<'k>>) {
        self.program_with(k, a, None);
    }

    fn reference(&self, a: GateUpArgs<Cpu<'_>>) {
        self.reference_with(a, None);
    }
}

impl LoraProduct for GateUp {
    const PARTS: u32 = 2;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn rows(a: &GateUpArgs<Shape>) -> u32 {
        2 * a.rows
    }

    fn program_with<'k>(
        &self,
        k: Builder<'k>,
        a: GateUpArgs<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
    ) {
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, a.rows / HALF)],
            tiles: a.w,
            n: a.n,
            args: a.stream,
            tail: lora.map(|lora| Tail::new(k, lora, AdapterSegments::Halves)),
            experts: None,
        };
        let input = Input::Normed {
            x: a.x.fresh(),
            gamma: a.gamma,
            epsilon: a.epsilon,
        };
        let store = |r: &Results<'k>| {
            let (first, count) = r.shares[0];
            match self.activation {
                Activation::Silu => k.section(
                    "pipeline/gate_up/silu",
                    "epilogue: silu(gate) * up, as block floating point",
                ),
                Activation::GeluTanh => k.section(
                    "pipeline/gate_up/gelu",
                    "epilogue: gelu(gate) * up, as block floating point",
                ),
            }
            // Gate and up of a feature are in the same row block, so one block has both sums. Whole
            // warps run because block floating point takes the maximum over eight lanes.
            r.each_in_warps(count * HALF, HALF, |i, inside, item| {
                let [gate, up] = [0, HALF].map(|half| r.row(0, i / HALF, i % HALF + half, item));
                let sigmoid = self.activation.sigmoid(gate);
                let values = item.of(a.y, a.rows);
                let scales = item.of_with(a.y_scale, || a.rows / block_float::BFP_BLOCK);
                BlockFloat { k, values, scales }.store(
                    first * HALF + i,
                    inside,
                    gate * sigmoid * up,
                );
            });
        };
        stream.run(input, Store(store));
    }

    fn reference_with(&self, a: GateUpArgs<Cpu<'_>>, lora: Option<LoraArgs<Cpu<'_>>>) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let scales = a
            .y_scale
            .chunks_mut((a.rows / block_float::BFP_BLOCK) as usize);
        let tokens =
            a.y.chunks_mut(a.rows as usize)
                .zip(scales)
                .zip(a.x.chunks(self.plan.unpadded(a.n) as usize));
        for (token, ((y, y_scale), x)) in tokens.enumerate() {
            let x = super::reference::padded_normed(x, a.gamma, a.epsilon, a.n);
            let adapter =
                |row: usize| lora::exact(lora.as_ref(), 2, token, row as u32 / HALF % 2, row);
            let sums = super::reference::exact64(self.format, a.w, &x).enumerate();
            let sums: Vec<f64> = sums.map(|(row, sum)| sum + adapter(row)).collect();
            let gated = |i: usize| {
                let block = i / HALF as usize;
                let r = i % HALF as usize;
                // A row block has eight rows of the gate, then the same rows of up.
                let row = |half: usize| sums[block * ROWS as usize + half + r];
                let gate = row(0);
                let up = row(HALF as usize);
                self.activation.exact(gate) * up
            };
            let gated: Vec<f64> = (0..y.len()).map(gated).collect();
            let (values, scales) = block_float::encode(&gated);
            y.copy_from_slice(&values);
            y_scale.copy_from_slice(&scales);
        }
    }
}

impl Variant for GateUp {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let rows = shape.rows / 2;
                let gamma = case::gamma(&mut random, self.plan, shape.n);
                let y = (shape.batch * rows) as usize;
                let args = [
                    CpuArg::U8(packed.tiles),
                    CpuArg::F32(case::unpadded(packed.x, self.plan)),
                    CpuArg::F32(gamma),
                    CpuArg::U16(vec![0; y]),
                    CpuArg::F32(vec![0.0; y / block_float::BFP_BLOCK as usize]),
                ];
                let args = args.into_iter().chain([rows, shape.n].map(CpuArg::scalar));
                let args = args.chain([CpuArg::scalar(1e-5f32)]).collect();
                case::case((self.plan, &self.segments(rows)), shape, args, &[])
            })
            .collect()
    }
}

impl Variant for WithLora<GateUp> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        lora::cases(&self.0, seed, |args| 2 * lora::size(&args[5]))
    }
}
