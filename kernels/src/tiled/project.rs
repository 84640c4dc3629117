//! A projection added to the residual stream: `y += W x`, for each token of a batch.

use super::batch::BatchItem;
use super::block_float::{self, BlockFloat};
use super::stream::{Input, Results, WeightStream};
use super::tile::ROWS;
use super::{Layout, Plan, Segments};
use super::{Packed, case};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::Format;
use ptx_gen::*;

args! {
    /// Arguments of [`Project`].
    pub struct ProjectArgs {
        /// `[rows, n]` as tiles, [`Rows::PLAIN`](super::RowOrder::PLAIN)
        w: In<u8>,
        /// `[batch, n]` 16-bit integers: see [`block_float`](super::block_float)
        x: In<u16>,
        /// `[batch, n / 8]`: their block scales
        x_scale: In<f32>,
        /// `[batch, rows]`
        y: InOut<f32>,
        /// Rows of the matrix, a multiple of 16.
        rows: u32,
        /// Row length in weights, a multiple of the tile's columns.
        n: u32,
        /// Blocks of the grid.
        blocks: u32,
        /// The maximum number of row blocks of a block.
        max_row_blocks: u32,
        /// Stages of the ring.
        stages: u32,
        /// Bytes of shared memory.
        shared: u32,
        /// `[blocks]`: progress flags, see [`sequence`](ProjectArgs::sequence)
        progress: InOut<u32>,
        /// The sequence number of this product among a token's products. With a prefetch limit, the kernel polls `progress` for
        /// the previous product's number before it fills the rest of its ring.
        sequence: u32,
        /// `[blocks, 8]` if the plan profiles: see [`Timestamp`](super::plan::Timestamp)
        timestamps: Out<u64>,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Project {
    /// The format of `W`.
    pub format: Format,
    /// How a block is divided among its warps.
    pub plan: Plan,
}

impl Project {
    /// The segments of the product.
    pub fn segments(&self, rows: u32) -> Segments {
        Segments(vec![(self.format, rows / ROWS)])
    }
}

impl KernelDef for Project {
    type Args<S: Side> = ProjectArgs<S>;

    fn name(&self) -> String {
        format!("project_{}_{}", self.format.suffix(), self.plan.suffix())
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.format)
    }

    fn grid(&self, a: &ProjectArgs<Shape>) -> Result<Grid, ShapeError> {
        let layout =
            Layout { blocks: a.blocks, max_row_blocks: a.max_row_blocks, stages: a.stages, shared: a.shared };
        self.multiple("rows", a.rows, ROWS)?;
        super::bfp_lengths(self, self.plan.batch, "x", [a.x, a.x_scale], "n", &[a.n])?;
        super::batched(self, self.plan.batch, "y", a.y, "rows", &[a.rows])?;
        super::contract(self, a.w, &self.segments(a.rows), self.plan, a.n, layout, [a.progress, a.timestamps])
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProjectArgs<Dev<'k>>) {
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, a.rows / ROWS)],
            tiles: a.w,
            n: a.n,
            blocks: a.blocks,
            max_row_blocks: a.max_row_blocks,
            stages: a.stages,
            progress: a.progress,
            sequence: a.sequence,
            timestamps: a.timestamps,
        };
        let input = Input::BlockFloat(BlockFloat { k, values: a.x.fresh(), scales: a.x_scale.fresh() });
        let place = |r: &Results<'k>, i: U32<'k>, item: BatchItem<'k>| {
            item.of(a.y, a.rows).at(r.shares[0].0 * ROWS + i)
        };
        let sum = |r: &Results<'k>, i: U32<'k>, item| r.row(0, i / ROWS, i % ROWS, item);
        if self.plan.batch > 1 {
            let last = |r: &Results<'k>, (), ()| {
                k.note("epilogue: add to the residual stream of each token");
                r.each(r.shares[0].1 * ROWS, ROWS, |i, item| {
                    let at = place(r, i, item);
                    at.st(at.fresh().ld() + sum(r, i, item));
                });
            };
            return stream.run(input, |_| (), |()| (), last);
        }
        let store = |r: &Results<'k>, at: Ptr<'k, f32, ReadWrite>, i: U32<'k>, old: F32<'k>| {
            at.st(old + sum(r, i, BatchItem::ONLY));
        };
        stream.run(
            input,
            |r| (place(r, r.thread, BatchItem::ONLY), r.thread.lt(r.shares[0].1 * ROWS)),
            |&(at, mine)| {
                let mut old = k.var(0.0);
                at.fresh().ld_if(mine, &mut old);
                old
            },
            |r, (at, mine), old| {
                k.note("epilogue: add to the residual stream");
                k.when(mine, || store(r, at, r.thread, old.get()));
                k.for_each(r.thread + r.threads, r.shares[0].1 * ROWS, r.threads, |i| {
                    let at = place(r, i, BatchItem::ONLY);
                    store(r, at, i, place(r, i, BatchItem::ONLY).fresh().ld());
                });
            },
        );
    }

    fn reference(&self, a: ProjectArgs<Cpu<'_>>) {
        self.plan.publish(a.sequence, a.progress);
        let x = block_float::decode(a.x, a.x_scale);
        for (y, x) in a.y.chunks_mut(a.rows as usize).zip(x.chunks(a.n as usize)) {
            for (y, sum) in y.iter_mut().zip(super::exact(self.format, a.w, x)) {
                *y = (sum + f64::from(*y)) as f32;
            }
        }
    }
}

impl Variant for Project {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan.batch)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let y = random.units((shape.batch * shape.rows) as usize);
                let x: Vec<f64> = packed.x.iter().map(|&x| x.into()).collect();
                let (x, scales) = block_float::encode(&x);
                let args =
                    vec![CpuArg::U8(packed.tiles), CpuArg::U16(x), CpuArg::F32(scales), CpuArg::F32(y)];
                let layout = case::layout(&self.segments(shape.rows), self.plan, shape);
                case::case(shape, args, &[shape.rows, shape.n], layout)
            })
            .collect()
    }
}
