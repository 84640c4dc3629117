//! The end of a token: norm, LM head, the likeliest token, and the step to the next position.
//!
//! Each block leaves the best of its rows. The last block to do so picks the best of all, of equal logits the one
//! with the lowest index, and advances the state as [`Advance`](crate::Advance) does.
//!
//! Of several columns, each a token at a position of its own, it leaves the likeliest token after each and no state
//! changes: who gave the tokens knows which of them go on.

use super::column::Column;
use super::stream::{Input, Results, Stream};
use super::tile::ROWS;
use super::{Layout, Plan, Runs};
use super::{Packed, case};
use crate::advance::Tape;
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::state::{LEN, POSITION};
use ptx_gen::*;

args! {
    /// Arguments of [`Head`].
    pub struct HeadArgs {
        /// `[rows, n]` as tiles, [`Rows::PLAIN`](super::Rows::PLAIN)
        w: In<u8>,
        /// `[columns, n]`
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[columns, rows]`
        logits: Out<f32>,
        /// `[columns, blocks]`: the largest logit of each block
        value: InOut<f32>,
        /// `[columns, blocks]`: its row
        index: InOut<u32>,
        /// `[1]`: blocks that are done; 0 before and after
        ticket: InOut<u32>,
        /// `[ctx]`, of which the state's `PROMPT_LEN` count
        prompt: In<u32>,
        /// `[stops]`: tokens that end decoding; may be longer
        stop: In<u32>,
        /// `[columns, 8]`: see [`state`](crate::state)
        state: InOut<u32>,
        /// `[ctx]`: the token after each position; the host reads it
        out: Out<u32>,
        /// Rows of the matrix, a multiple of 16.
        rows: u32,
        /// Row length in weights, a multiple of the tile's columns.
        n: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Number of stop tokens.
        stops: u32,
        /// Positions of the cache.
        ctx: u32,
        /// Blocks of the grid.
        blocks: u32,
        /// Row blocks of the fullest block.
        parts: u32,
        /// Stages of the ring.
        stages: u32,
        /// Bytes of shared memory.
        shared: u32,
        /// `[blocks]`: see [`turn`](HeadArgs::turn)
        asked: InOut<u32>,
        /// Which of a token's products this is. Where the plan holds back, it waits until the one before has left its
        /// turn in [`asked`](HeadArgs::asked).
        turn: u32,
        /// `[blocks, 8]` where the plan profiles: see [`Stamp`](super::plan::Stamp)
        stamps: Out<u64>,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Head {
    /// The format of the matrix.
    pub format: Format,
    /// How a block is divided.
    pub plan: Plan,
}

impl Head {
    /// The rows of the product.
    pub fn runs(&self, rows: u32) -> Runs {
        Runs(vec![(self.format, rows / ROWS)])
    }
}

impl KernelDef for Head {
    type Args<S: Side> = HeadArgs<S>;

    fn name(&self) -> String {
        format!("head_{}_{}", self.format.suffix(), self.plan.suffix())
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.format)
    }

    fn grid(&self, a: &HeadArgs<Shape>) -> Result<Grid, ShapeError> {
        let layout = Layout { blocks: a.blocks, parts: a.parts, stages: a.stages, shared: a.shared };
        self.multiple("rows", a.rows, ROWS)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        let columns =
            |name, found, formula, len| super::columns(self, self.plan.columns, name, found, formula, &[len]);
        columns("x", a.x, "n", a.n)?;
        self.length("gamma", a.gamma, "n", &[a.n])?;
        columns("logits", a.logits, "rows", a.rows)?;
        columns("value", a.value, "blocks", a.blocks)?;
        columns("index", a.index, "blocks", a.blocks)?;
        self.exactly("ticket", a.ticket, 1)?;
        self.length("prompt", a.prompt, "ctx", &[a.ctx])?;
        self.require(a.stop >= a.stops as usize, || {
            format!("stop has {} elements, must have at least stops = {}", a.stop, a.stops)
        })?;
        self.exactly("state", a.state, self.plan.columns as usize * LEN)?;
        self.length("out", a.out, "ctx", &[a.ctx])?;
        super::contract(self, a.w, &self.runs(a.rows), self.plan, a.n, layout, [a.asked, a.stamps])
    }

    fn program<'k>(&self, k: Builder<'k>, a: HeadArgs<Dev<'k>>) {
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
        let input = Input::Normed { x: a.x.fresh(), gamma: a.gamma, epsilon: a.epsilon };
        stream.run(input, |_| (), |()| (), |r, (), ()| finish(r, &a));
    }

    fn reference(&self, a: HeadArgs<Cpu<'_>>) {
        self.plan.say(a.turn, a.asked);
        let runs = self.runs(a.rows);
        let (rows, blocks, columns) = (a.rows as usize, a.blocks as usize, self.plan.columns as usize);
        for column in 0..columns {
            let x = super::normed(&a.x[column * a.n as usize..][..a.n as usize], a.gamma, a.epsilon);
            let logits = &mut a.logits[column * rows..][..rows];
            for (y, sum) in logits.iter_mut().zip(super::exact64(self.format, a.w, &x)) {
                *y = sum as f32;
            }
            let mut all = (f32::NEG_INFINITY, u32::MAX);
            for b in 0..blocks {
                let [from, to] = [b, b + 1].map(|b| runs.cuts(b as u32, a.blocks)[0] * ROWS);
                let mut best = (f32::NEG_INFINITY, u32::MAX);
                for row in from..to {
                    let logit = logits[row as usize];
                    best = if logit > best.0 { (logit, row) } else { best };
                }
                (a.value[column * blocks + b], a.index[column * blocks + b]) = best;
                all = if best.0 > all.0 { best } else { all };
            }
            let chosen = all.1.min(a.rows - 1);
            if columns > 1 {
                let position = a.state[column * LEN + POSITION as usize] as usize;
                a.out.iter_mut().skip(position).take(1).for_each(|out| *out = chosen);
                continue;
            }
            let HeadArgs { prompt, stop, stops, ctx, .. } = a;
            Tape { prompt, stop, state: &mut *a.state, out: &mut *a.out, stops, ctx }.step_on(chosen);
        }
    }
}

/// The larger logit, and of equal ones the lower row.
struct Best<'k> {
    value: Var<'k, f32>,
    row: Var<'k, u32>,
}

impl<'k> Best<'k> {
    fn none(k: Builder<'k>) -> Self {
        Best { value: k.var(f32::NEG_INFINITY), row: k.var(u32::MAX) }
    }

    fn take(&mut self, k: Builder<'k>, value: F32<'k>, row: U32<'k>) {
        let (best, at) = (self.value.get(), self.row.get());
        k.when(value.gt(best) | value.eq(best) & row.lt(at), || {
            self.value.set(value);
            self.row.set(row);
        });
    }

    /// The best of a warp, in every lane. Whole warp.
    fn warp(&mut self, k: Builder<'k>) {
        for lanes in [16, 8, 4, 2, 1] {
            let (value, row) = (self.value.get().shfl_bfly(lanes), self.row.get().shfl_bfly(lanes));
            self.take(k, value, row);
        }
    }

    /// The best of all consumers, in the first warp.
    fn block(&mut self, r: &Results<'k>) {
        let (k, warps) = (r.k, r.threads / 32);
        self.warp(k);
        let slot = |warp: U32<'k>| {
            (r.scratch.row(warp, 8).cast::<f32>(), r.scratch.row(warp, 8).at(4).cast::<u32>())
        };
        let (value, row) = slot(k.warp());
        k.when(k.lane().eq(0), || {
            value.st(&self.value);
            row.st(&self.row);
        });
        r.barrier();
        let (value, row) = slot(k.lane().min(warps - 1));
        self.take(k, value.ld(), row.ld());
        self.warp(k);
    }
}

fn finish<'k>(r: &Results<'k>, a: &HeadArgs<Dev<'k>>) {
    let k = r.k;
    let (first, count) = r.shares[0];
    let last = r.scratch.at(8 * r.threads / 32).cast::<u32>();
    let draw = || last.st(a.ticket.ticket(a.blocks - 1));
    r.each_column(|column| {
        let mut best = Best::none(k);
        k.for_each(r.thread, count * ROWS, r.threads, |i| {
            let (row, logit) = (first * ROWS + i, r.row(0, i / ROWS, i % ROWS, column));
            column.of(a.logits, a.rows).at(row).st(logit);
            best.take(k, logit, row);
        });
        best.block(r);
        k.when(r.thread.eq(0), || {
            column.of(a.value, a.blocks).at(k.ctaid()).st(&best.value);
            column.of(a.index, a.blocks).at(k.ctaid()).st(&best.row);
            if column.is_only() {
                draw();
            }
        });
        if !column.is_only() {
            // The scratch is free for the next column.
            r.barrier();
        }
    });
    if !r.is_alone() {
        k.when(r.thread.eq(0), draw);
    }
    r.barrier();
    k.when(last.ld().eq(a.blocks - 1) & k.warp().eq(0), || r.each_column(|column| choose(k, a, column)));
}

/// The best of all blocks, and what follows from it. One warp.
fn choose<'k>(k: Builder<'k>, a: &HeadArgs<Dev<'k>>, column: Column<'k>) {
    let (value, index) = (column.of(a.value, a.blocks), column.of(a.index, a.blocks));
    let mut best = Best::none(k);
    k.for_each(k.lane(), a.blocks, 32, |i| {
        best.take(k, value.at(i).fresh().ld(), index.at(i).fresh().ld());
    });
    best.warp(k);
    let (prompt, stop, state, out) = (a.prompt, a.stop, column.of(a.state, LEN as u32), a.out);
    k.when(k.lane().eq(0), || {
        let chosen = best.row.get().min(a.rows - 1);
        if column.is_only() {
            return Tape { prompt, stop, state, out, stops: a.stops, ctx: a.ctx }.step(k, chosen);
        }
        let position = state.fresh().at(POSITION).ld();
        k.when(position.lt(a.ctx), || out.at(position).st(chosen));
    });
}

impl Variant for Head {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan.columns)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let gamma: Vec<f32> = random.units(shape.n as usize).iter().map(|g| 1.0 + g / 4.0).collect();
                let [rows, blocks] = [shape.rows, shape.blocks].map(|n| (shape.columns * n) as usize);
                let ctx = 4;
                // Of many columns, the last are past the cache.
                let state = (0..shape.columns).flat_map(|i| [0, 2 + i, 0, 0, 0, 0, 0, 0]).collect();
                let mut args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::F32(packed.x),
                    CpuArg::F32(gamma),
                    CpuArg::F32(vec![0.0; rows]),
                    CpuArg::F32(vec![0.0; blocks]),
                    CpuArg::U32(vec![0; blocks]),
                    CpuArg::U32(vec![0]),
                    CpuArg::U32(vec![7; ctx]),
                    CpuArg::U32(vec![u32::MAX]),
                    CpuArg::U32(state),
                    CpuArg::U32(vec![0; ctx]),
                ];
                args.extend([shape.rows, shape.n].map(CpuArg::scalar));
                args.push(CpuArg::scalar(1e-5f32));
                args.extend([1, ctx as u32].map(CpuArg::scalar));
                case::case(shape, args, &[], case::layout(&self.runs(shape.rows), self.plan, shape))
            })
            .collect()
    }
}
