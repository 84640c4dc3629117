//! A projection added to the residual stream: `y += W x`, for each column of activations.

use super::column::Column;
use super::eights::{self, Eights};
use super::stream::{Input, Results, Stream};
use super::tile::ROWS;
use super::{Layout, Plan, Runs};
use super::{Packed, case};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::Format;
use ptx_gen::*;

args! {
    /// Arguments of [`Project`].
    pub struct ProjectArgs {
        /// `[rows, n]` as tiles, [`Rows::PLAIN`](super::Rows::PLAIN)
        w: In<u8>,
        /// `[columns, n]` whole numbers: see [`eights`](super::eights)
        x: In<u16>,
        /// `[columns, n / 8]`: their scales
        x_scale: In<f32>,
        /// `[columns, rows]`
        y: InOut<f32>,
        /// Rows of the matrix, a multiple of 16.
        rows: u32,
        /// Row length in weights, a multiple of the tile's columns.
        n: u32,
        /// Blocks of the grid.
        blocks: u32,
        /// Row blocks of the fullest block.
        parts: u32,
        /// Stages of the ring.
        stages: u32,
        /// Bytes of shared memory.
        shared: u32,
        /// `[blocks]`: see [`turn`](ProjectArgs::turn)
        asked: InOut<u32>,
        /// Which of a token's products this is. Where the plan holds back, it waits until the one before has left its
        /// turn in [`asked`](ProjectArgs::asked).
        turn: u32,
        /// `[blocks, 8]` where the plan profiles: see [`Stamp`](super::plan::Stamp)
        stamps: Out<u64>,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Project {
    /// The format of `W`.
    pub format: Format,
    /// How a block is divided.
    pub plan: Plan,
}

impl Project {
    /// The rows of the product.
    pub fn runs(&self, rows: u32) -> Runs {
        Runs(vec![(self.format, rows / ROWS)])
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
        let layout = Layout { blocks: a.blocks, parts: a.parts, stages: a.stages, shared: a.shared };
        self.multiple("rows", a.rows, ROWS)?;
        super::eights(self, self.plan.columns, "x", [a.x, a.x_scale], "n", &[a.n])?;
        super::columns(self, self.plan.columns, "y", a.y, "rows", &[a.rows])?;
        super::contract(self, a.w, &self.runs(a.rows), self.plan, a.n, layout, [a.asked, a.stamps])
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProjectArgs<Dev<'k>>) {
        let stream = Stream {
            k,
            plan: self.plan,
            runs: vec![(self.format, a.rows / ROWS)],
            tiles: a.w,
            n: a.n,
            blocks: a.blocks,
            parts: a.parts,
            stages: a.stages,
            asked: a.asked,
            turn: a.turn,
            stamps: a.stamps,
        };
        let input = Input::Eights(Eights { k, values: a.x.fresh(), scales: a.x_scale.fresh() });
        let place = |r: &Results<'k>, i: U32<'k>, column: Column<'k>| {
            column.of(a.y, a.rows).at(r.shares[0].0 * ROWS + i)
        };
        let sum = |r: &Results<'k>, i: U32<'k>, column| r.row(0, i / ROWS, i % ROWS, column);
        if self.plan.columns > 1 {
            let last = |r: &Results<'k>, (), ()| {
                r.each(r.shares[0].1 * ROWS, ROWS, |i, column| {
                    let at = place(r, i, column);
                    at.st(at.fresh().ld() + sum(r, i, column));
                });
            };
            return stream.run(input, |_| (), |()| (), last);
        }
        let store = |r: &Results<'k>, at: Ptr<'k, f32, ReadWrite>, i: U32<'k>, old: F32<'k>| {
            at.st(old + sum(r, i, Column::ONLY));
        };
        stream.run(
            input,
            |r| (place(r, r.thread, Column::ONLY), r.thread.lt(r.shares[0].1 * ROWS)),
            |&(at, mine)| {
                let mut old = k.var(0.0);
                at.fresh().ld_if(mine, &mut old);
                old
            },
            |r, (at, mine), old| {
                k.when(mine, || store(r, at, r.thread, old.get()));
                k.for_each(r.thread + r.threads, r.shares[0].1 * ROWS, r.threads, |i| {
                    let at = place(r, i, Column::ONLY);
                    store(r, at, i, place(r, i, Column::ONLY).fresh().ld());
                });
            },
        );
    }

    fn reference(&self, a: ProjectArgs<Cpu<'_>>) {
        self.plan.say(a.turn, a.asked);
        let x = eights::decode(a.x, a.x_scale);
        for (y, x) in a.y.chunks_mut(a.rows as usize).zip(x.chunks(a.n as usize)) {
            for (y, sum) in y.iter_mut().zip(super::exact(self.format, a.w, x)) {
                *y = (sum + f64::from(*y)) as f32;
            }
        }
    }
}

impl Variant for Project {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan.columns)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let y = random.units((shape.columns * shape.rows) as usize);
                let x: Vec<f64> = packed.x.iter().map(|&x| x.into()).collect();
                let (x, scales) = eights::encode(&x);
                let args =
                    vec![CpuArg::U8(packed.tiles), CpuArg::U16(x), CpuArg::F32(scales), CpuArg::F32(y)];
                let layout = case::layout(&self.runs(shape.rows), self.plan, shape);
                case::case(shape, args, &[shape.rows, shape.n], layout)
            })
            .collect()
    }
}
