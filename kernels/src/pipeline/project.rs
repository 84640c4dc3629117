//! A projection added to the residual stream: `y += W x`, for each token of a batch. Model families
//! that normalize the outputs of attention and of the feed-forward network need `W x` itself (see
//! [`ProjectOutput`]).

use super::batch::BatchItem;
use super::bias::{self, BiasedProduct, WithBias};
use super::block_float::{self, BlockFloat};
use super::gemv::case;
use super::gemv::epilogue::{Epilogue, Results, Store};
use super::gemv::lora::{self, AdapterSegments, LoraArgs, LoraProduct, Tail, WithLora};
use super::gemv::stream::{Input, StreamArgs, WeightStream};
use super::{Packed, Plan, Segments};
use crate::format::Format;
use crate::format::tile::ROWS;
use crate::harness::{Case, Variant};
use crate::shared::Contract;
use ptx_gen::*;

args! {
    /// Arguments of [`Project`].
    pub struct ProjectArgs {
        /// `[rows, n]`: the weights as tiles in plain row order
        w: In<u8>,
        /// `[batch, n]`: the activations as 16-bit integers, see
        /// [`block_float`](super::block_float)
        x: In<u16>,
        /// `[batch, n / 8]`: the block scales of the activations
        x_scale: In<f32>,
        /// `[batch, rows]`: the residual stream, or the result
        y: InOut<f32>,
        /// The number of rows of the matrix, a multiple of 16.
        rows: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// The arguments that all GEMVs share.
        stream: StreamArgs,
    }
}

/// Kernel that multiplies by a matrix and adds the result to the residual stream, or stores it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Project {
    /// The format of `W`.
    pub format: Format,
    /// The destination of the sums.
    pub output: ProjectOutput,
    /// The division of a block among its warps.
    pub plan: Plan,
}

/// The destination of a projection's sums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProjectOutput {
    /// The residual stream: `y += W x`.
    Residual,
    /// A buffer: `y = W x`.
    Raw,
}

impl Project {
    /// Returns the segments of the matrix.
    pub fn segments(&self, rows: u32) -> Segments {
        Segments(vec![(self.format, rows / ROWS)])
    }
}

impl KernelDef for Project {
    type Args<S: Side> = ProjectArgs<S>;

    fn name(&self) -> String {
        let raw = if self.output == ProjectOutput::Raw {
            "raw_"
        } else {
            ""
        };
        format!(
            "project_{raw}{}_{}",
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

    fn grid(&self, a: &ProjectArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("rows", a.rows, ROWS)?;
        let batch = self.plan.batch;
        super::contract::bfp_lengths(self, batch, "x", [a.x, a.x_scale], "n", &[a.n])?;
        super::contract::batched(self, batch, "y", a.y, "rows", &[a.rows])?;
        let segments = self.segments(a.rows);
        super::contract::contract(self, a.w, &segments, self.plan, a.n, &a.stream)
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProjectArgs<Dev<'k>>) {
        self.emit(k, a, None, None);
    }

    fn reference(&self, a: ProjectArgs<Cpu<'_>>) {
        self.compute(a, None, None);
    }
}

impl BiasedProduct for Project {
    fn rows(a: &ProjectArgs<Shape>) -> u32 {
        a.rows
    }

    fn program_biased<'k>(
        &self,
        k: Builder<'k>,
        a: ProjectArgs<Dev<'k>>,
        bias: Option<Ptr<'k, f32, Fresh>>,
    ) {
        self.emit(k, a, None, bias);
    }

    fn reference_biased(&self, a: ProjectArgs<Cpu<'_>>, bias: Option<&[f32]>) {
        self.compute(a, None, bias);
    }
}

impl LoraProduct for Project {
    const PARTS: u32 = 1;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn rows(a: &ProjectArgs<Shape>) -> u32 {
        a.rows
    }

    fn program_with<'k>(
        &self,
        k: Builder<'k>,
        a: ProjectArgs<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
    ) {
        self.emit(k, a, lora, None);
    }

    fn reference_with(&self, a: ProjectArgs<Cpu<'_>>, lora: Option<LoraArgs<Cpu<'_>>>) {
        self.compute(a, lora, None);
    }
}

impl Project {
    /// Emits the program, with an adapter and a bias or without them.
    fn emit<'k>(
        &self,
        k: Builder<'k>,
        a: ProjectArgs<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
        bias: Option<Ptr<'k, f32, Fresh>>,
    ) {
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, a.rows / ROWS)],
            tiles: a.w,
            n: a.n,
            args: a.stream,
            tail: lora.map(|lora| Tail::new(k, lora, AdapterSegments::One)),
            experts: None,
        };
        let input = Input::BlockFloat(BlockFloat {
            k,
            values: a.x.fresh(),
            scales: a.x_scale.fresh(),
        });
        let residual = Residual {
            y: a.y,
            rows: a.rows,
            bias,
        };

        // A single token loads the old residual before the matmul ends. For a batch, that would
        // take too many registers.
        match (self.output, self.plan.batch) {
            (ProjectOutput::Raw, _) => {
                stream.run(input, Store(|r: &Results<'k>| residual.store_raw(r)))
            }
            (ProjectOutput::Residual, 1) => stream.run(input, residual),
            (ProjectOutput::Residual, _) => {
                stream.run(input, Store(|r: &Results<'k>| residual.add_batch(r)))
            }
        }
    }

    /// Computes the reference, with an adapter and a bias or without them.
    fn compute(
        &self,
        a: ProjectArgs<Cpu<'_>>,
        lora: Option<LoraArgs<Cpu<'_>>>,
        bias: Option<&[f32]>,
    ) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let x = block_float::decode(a.x, a.x_scale);
        for (token, (y, x)) in
            a.y.chunks_mut(a.rows as usize)
                .zip(x.chunks(a.n as usize))
                .enumerate()
        {
            for (row, (y, sum)) in y
                .iter_mut()
                .zip(super::reference::exact(self.format, a.w, x))
                .enumerate()
            {
                let sum = sum + lora::exact(lora.as_ref(), 1, token, 0, row);
                let sum = sum + bias::exact(bias, row);
                let old = if self.output == ProjectOutput::Raw {
                    0.0
                } else {
                    f64::from(*y)
                };
                *y = (sum + old) as f32;
            }
        }
    }
}

/// The epilogue that adds the sums to the residual stream.
#[derive(Clone, Copy)]
pub(crate) struct Residual<'k> {
    pub(crate) y: Ptr<'k, f32, ReadWrite>,
    pub(crate) rows: U32<'k>,
    /// `[rows]`: the bias, if there is one.
    pub(crate) bias: Option<Ptr<'k, f32, Fresh>>,
}

impl<'k> Residual<'k> {
    /// Returns the address of row `i` of the block, for one token.
    fn place(&self, r: &Results<'k>, i: U32<'k>, item: BatchItem<'k>) -> Ptr<'k, f32, ReadWrite> {
        item.of(self.y, self.rows).at(r.shares[0].0 * ROWS + i)
    }

    /// Returns the address of the bias of row `i` of the block.
    fn bias(&self, r: &Results<'k>, i: U32<'k>) -> Option<Ptr<'k, f32, Fresh>> {
        self.bias.map(|bias| bias.at(r.shares[0].0 * ROWS + i))
    }

    /// Returns the sum of row `i` of the block with its bias, for one token.
    fn sum(&self, r: &Results<'k>, i: U32<'k>, item: BatchItem<'k>) -> F32<'k> {
        let sum = r.row(0, i / ROWS, i % ROWS, item);
        match self.bias(r, i) {
            None => sum,
            Some(bias) => sum + bias.ld(),
        }
    }

    /// Stores the sums instead of adding them.
    fn store_raw(&self, r: &Results<'k>) {
        r.k.section(
            "pipeline/project/store_batch",
            "epilogue: store the sums of each token",
        );
        r.each(r.shares[0].1 * ROWS, ROWS, |i, item| {
            self.place(r, i, item).st(self.sum(r, i, item))
        });
    }

    /// Adds the sums of a larger batch. The residual stream is not prefetched, because registers
    /// are scarce there.
    fn add_batch(&self, r: &Results<'k>) {
        r.k.section(
            "pipeline/project/add_batch",
            "epilogue: add to the residual stream of each token",
        );
        r.each(r.shares[0].1 * ROWS, ROWS, |i, item| {
            let at = self.place(r, i, item);
            at.st(at.fresh().ld() + self.sum(r, i, item));
        });
    }
}

impl<'k> Epilogue<'k> for Residual<'k> {
    type Addresses = FirstRow<'k>;
    /// The old value of the thread's first row, and its bias.
    type Operands = (Var<'k, f32>, Option<Var<'k, f32>>);

    fn addresses(&self, r: &Results<'k>) -> Self::Addresses {
        FirstRow {
            at: self.place(r, r.thread, BatchItem::ONLY),
            exists: r.thread.lt(r.shares[0].1 * ROWS),
            bias: self.bias(r, r.thread),
        }
    }

    fn prefetch(&self, k: Builder<'k>, first: &Self::Addresses) -> Self::Operands {
        let mut old = k.var(0.0);
        first.at.fresh().ld_if(first.exists, &mut old);
        let bias = first.bias.map(|at| {
            let mut bias = k.var(0.0);
            at.ld_if(first.exists, &mut bias);
            bias
        });
        (old, bias)
    }

    fn store(&self, r: &Results<'k>, first: Self::Addresses, (old, bias): Self::Operands) {
        r.k.section(
            "pipeline/project/add",
            "epilogue: add to the residual stream",
        );
        r.k.when(first.exists, || {
            let i = r.thread;
            let old = old.get();
            let sum = r.row(0, i / ROWS, i % ROWS, BatchItem::ONLY);
            let sum = bias.map_or(sum, |bias| sum + bias.get());
            first.at.st(old + sum);
        });
        r.k.for_each(r.thread + r.threads, r.shares[0].1 * ROWS, r.threads, |i| {
            let at = self.place(r, i, BatchItem::ONLY);
            let old = self.place(r, i, BatchItem::ONLY).fresh().ld();
            at.st(old + self.sum(r, i, BatchItem::ONLY));
        });
    }
}

/// The first row of a thread in the epilogue that adds to the residual stream.
pub(crate) struct FirstRow<'k> {
    at: Ptr<'k, f32, ReadWrite>,
    exists: Pred<'k>,
    /// The address of its bias, if there is one.
    bias: Option<Ptr<'k, f32, Fresh>>,
}

impl Variant for Project {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let y = random.units((shape.batch * shape.rows) as usize);
                let x: Vec<f64> = packed.x.iter().map(|&x| x.into()).collect();
                let (x, scales) = block_float::encode(&x);
                let args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::U16(x),
                    CpuArg::F32(scales),
                    CpuArg::F32(y),
                ];
                let segments = self.segments(shape.rows);
                case::case((self.plan, &segments), shape, args, &[shape.rows, shape.n])
            })
            .collect()
    }
}

impl Variant for WithBias<Project> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        bias::cases(&self.0, seed, |args| lora::size(&args[4]))
    }
}

impl Variant for WithLora<Project> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        lora::cases(&self.0, seed, |args| lora::size(&args[4]))
    }
}
