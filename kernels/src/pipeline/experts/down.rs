//! The down projections of the chosen experts, added to the residual stream: `y += sum over the
//! slots s of Wdown_e x_s`, where `e` is the expert in slot `s`.
//!
//! The experts' matrices are one matrix for the GEMV, side by side in the order of the slots. Its
//! row length is `chosen * width`. The inputs already have the experts' weights as a factor. Experts
//! with biases add one vector, the weighted sum of their biases, which the kernel before computes.

use super::case::{ExpertCase, experts_of};
use crate::format::Format;
use crate::format::tile::{self, ROWS};
use crate::harness::{Case, Variant};
use crate::pipeline::bias::{self, BiasedProduct, WithBias};
use crate::pipeline::block_float::{self, BlockFloat};
use crate::pipeline::contract::{self, ExpertSizes};
use crate::pipeline::gemv::case;
use crate::pipeline::gemv::expert_tiles::{ExpertSource, ExpertTiles, published, published_index};
use crate::pipeline::gemv::layout::Segments;
use crate::pipeline::gemv::lora;
use crate::pipeline::gemv::plan::Plan;
use crate::pipeline::gemv::stream::{Input, StreamArgs, WeightStream};
use crate::pipeline::project::Residual;
use crate::pipeline::reference;
use crate::shared::{Contract, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`ExpertDown`].
    pub struct ExpertDownArgs {
        /// `[count, rows, width]`: the weights as tiles in plain row order, expert after expert
        w: In<u8>,
        /// `[chosen, width]`: the activations as 16-bit integers, see
        /// [`block_float`](crate::pipeline::block_float)
        x: In<u16>,
        /// `[chosen, width / 8]`: the block scales of the activations
        x_scale: In<f32>,
        /// `[blocks, chosen]`: the chosen experts, which the same block of
        /// [`ExpertGateUp`](super::gate_up::ExpertGateUp) publishes. Each block resets its own.
        experts: InOut<u32>,
        /// `[rows]`: the residual stream
        y: InOut<f32>,
        /// The number of experts.
        count: u32,
        /// The number of chosen experts.
        chosen: u32,
        /// The number of rows of an expert's matrix, a multiple of 16.
        rows: u32,
        /// The row length of an expert's matrix in weights, a multiple of the tile's columns.
        width: u32,
        /// The arguments that all GEMVs share. The previous GEMV must have the same number of
        /// blocks.
        stream: StreamArgs,
    }
}

/// Kernel that multiplies by the matrices of chosen experts and adds the results to the residual
/// stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExpertDown {
    /// The format of the matrices.
    pub format: Format,
    /// The division of a block among its warps.
    pub plan: Plan,
}

impl ExpertDown {
    /// Returns the segments of the chosen experts' matrices.
    pub fn segments(&self, rows: u32) -> Segments {
        Segments(vec![(self.format, rows / ROWS)])
    }
}

impl KernelDef for ExpertDown {
    type Args<S: Side> = ExpertDownArgs<S>;

    fn name(&self) -> String {
        format!(
            "expert_down_{}_{}",
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

    fn grid(&self, a: &ExpertDownArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ExpertDownArgs {
            count,
            chosen,
            rows,
            width,
            ..
        } = a;
        self.multiple("rows", rows, ROWS)?;
        self.range("chosen * width", chosen.saturating_mul(width), 1, 1 << 24)?;
        check_lengths! { self, a:
            y == rows,
        }
        let n = chosen * width;
        contract::bfp_lengths(self, 1, "x", [a.x, a.x_scale], "chosen * width", &[n])?;
        let sizes = ExpertSizes {
            count,
            chosen,
            row_blocks: rows / ROWS,
            n: width,
        };
        let segments = self.segments(rows);
        let matrix = (&segments, self.plan, n);
        contract::experts(self, a.w, a.experts, sizes, matrix, &a.stream)
    }

    fn program<'k>(&self, k: Builder<'k>, a: ExpertDownArgs<Dev<'k>>) {
        self.program_biased(k, a, None);
    }

    fn reference(&self, a: ExpertDownArgs<Cpu<'_>>) {
        self.reference_biased(a, None);
    }
}

impl BiasedProduct for ExpertDown {
    fn rows(a: &ExpertDownArgs<Shape>) -> u32 {
        a.rows
    }

    fn program_biased<'k>(
        &self,
        k: Builder<'k>,
        a: ExpertDownArgs<Dev<'k>>,
        bias: Option<Ptr<'k, f32, Fresh>>,
    ) {
        let row_blocks = a.rows / ROWS;
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, row_blocks)],
            tiles: a.w,
            n: a.chosen * a.width,
            args: a.stream,
            tail: None,
            experts: Some(ExpertTiles {
                source: ExpertSource::Previous,
                published: a.experts,
                count: a.count,
                chosen: a.chosen,
                run: a.width / tile::of(self.format).columns,
                runs: row_blocks,
                biases: None,
            }),
        };
        let input = Input::BlockFloat(BlockFloat {
            k,
            values: a.x.fresh(),
            scales: a.x_scale.fresh(),
        });
        stream.run(
            input,
            Residual {
                y: a.y,
                rows: a.rows,
                bias,
            },
        );
    }

    fn reference_biased(&self, a: ExpertDownArgs<Cpu<'_>>, bias: Option<&[f32]>) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let x = block_float::decode(a.x, a.x_scale);
        let mut sums: Vec<f64> = a.y.iter().map(|&y| y.into()).collect();
        for (&word, x) in a.experts.iter().zip(x.chunks(a.width as usize)) {
            let tiles = experts_of(a.w, a.count, published_index(word));
            for (sum, term) in sums.iter_mut().zip(reference::exact(self.format, tiles, x)) {
                *sum += term;
            }
        }
        for (row, (y, sum)) in a.y.iter_mut().zip(sums).enumerate() {
            *y = (sum + bias::exact(bias, row)) as f32;
        }
        a.experts.fill(0);
    }
}

impl Variant for WithBias<ExpertDown> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        bias::cases(&self.0, seed, |args| lora::size(&args[7]))
    }
}

impl Variant for ExpertDown {
    fn cases(&self, seed: u64) -> Vec<Case> {
        ExpertCase::all(self.format, 64)
            .into_iter()
            .map(|shape| {
                let ExpertCase {
                    count,
                    chosen,
                    rows,
                    n: width,
                    blocks,
                    ..
                } = shape;
                let (mut random, packed) = shape.packed(self.format, rows, width, seed);

                // Each slot has other activations, or an expert in a wrong slot would not be seen.
                let of_slot = |slot: u32| {
                    let factor = 1.0 + f64::from(slot) / 2.0;
                    packed.x.iter().map(move |&x| factor * f64::from(x))
                };
                let x: Vec<f64> = (0..chosen).flat_map(of_slot).collect();
                let (x, scales) = block_float::encode(&x);
                let y = random.units(rows as usize);
                // With a single block, the experts are not for this GEMV. It then waits for the end of
                // the previous one.
                let reader = if blocks == 1 { 3 } else { case::SEQUENCE };
                let experts: Vec<u32> = shape
                    .some_experts(&mut random)
                    .into_iter()
                    .map(|index| published(index, reader))
                    .collect();
                let args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::U16(x),
                    CpuArg::F32(scales),
                    CpuArg::U32(experts.repeat(blocks as usize)),
                    CpuArg::F32(y),
                    CpuArg::scalar(count),
                    CpuArg::scalar(chosen),
                    CpuArg::scalar(rows),
                    CpuArg::scalar(width),
                ];
                let segments = self.segments(rows);
                let gemv = shape.gemv(chosen * width);
                let case = case::case((self.plan, &segments), gemv, args, &[]);
                shape.labelled(case)
            })
            .collect()
    }
}
