//! The end of a token: norm, LM head, the likeliest token, and the step to the next position.
//!
//! Each block leaves the best of its rows. The last block to do so picks the best of all, of equal logits the one
//! with the lowest index, and advances the state as [`Advance`](crate::Advance) does.

use super::stream::{Input, Layout, Plan, Results, Runs, Stream};
use super::tile::ROWS;
use super::{Packed, case};
use crate::advance::Tape;
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::state::LEN;
use ptx_gen::*;

args! {
    /// Arguments of [`Head`].
    pub struct HeadArgs {
        /// `[rows, n]` as tiles, [`Rows::PLAIN`](super::Rows::PLAIN)
        w: In<u8>,
        /// `[n]`
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[rows]`
        logits: Out<f32>,
        /// `[blocks]`: the largest logit of each block
        value: InOut<f32>,
        /// `[blocks]`: its row
        index: InOut<u32>,
        /// `[1]`: blocks that are done; 0 before and after
        ticket: InOut<u32>,
        /// `[ctx]`, of which the state's `PROMPT_LEN` count
        prompt: In<u32>,
        /// `[stops]`: tokens that end decoding; may be longer
        stop: In<u32>,
        /// `[8]`: see [`state`](crate::state)
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
        /// `[blocks, 8]` where the plan profiles: see [`Stamp`](super::stream::Stamp)
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
        Some(self.plan.resident())
    }

    fn grid(&self, a: &HeadArgs<Shape>) -> Result<Grid, ShapeError> {
        let layout = Layout { blocks: a.blocks, parts: a.parts, stages: a.stages, shared: a.shared };
        self.multiple("rows", a.rows, ROWS)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.length("x", a.x, "n", &[a.n])?;
        self.length("gamma", a.gamma, "n", &[a.n])?;
        self.length("logits", a.logits, "rows", &[a.rows])?;
        self.length("value", a.value, "blocks", &[a.blocks])?;
        self.length("index", a.index, "blocks", &[a.blocks])?;
        self.exactly("ticket", a.ticket, 1)?;
        self.length("prompt", a.prompt, "ctx", &[a.ctx])?;
        self.require(a.stop >= a.stops as usize, || {
            format!("stop has {} elements, must have at least stops = {}", a.stop, a.stops)
        })?;
        self.exactly("state", a.state, LEN)?;
        self.length("out", a.out, "ctx", &[a.ctx])?;
        super::contract(self, a.w, &self.runs(a.rows), self.plan, a.n, layout, a.stamps)
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
            stamps: a.stamps,
        };
        let input = Input { x: a.x, norm: Some((a.gamma, a.epsilon)) };
        stream.run(input, |_| (), |()| (), |r, (), ()| finish(r, &a));
    }

    fn reference(&self, a: HeadArgs<Cpu<'_>>) {
        let x = super::normed(a.x, a.gamma, a.epsilon);
        for (y, sum) in a.logits.iter_mut().zip(super::exact64(self.format, a.w, &x)) {
            *y = sum as f32;
        }
        let runs = self.runs(a.rows);
        let mut all = (f32::NEG_INFINITY, u32::MAX);
        for b in 0..a.blocks {
            let [from, to] = [b, b + 1].map(|b| runs.cuts(b, a.blocks)[0] * ROWS);
            let mut best = (f32::NEG_INFINITY, u32::MAX);
            for row in from..to {
                let logit = a.logits[row as usize];
                best = if logit > best.0 { (logit, row) } else { best };
            }
            (a.value[b as usize], a.index[b as usize]) = best;
            all = if best.0 > all.0 { best } else { all };
        }
        let HeadArgs { prompt, stop, state, out, stops, ctx, .. } = a;
        Tape { prompt, stop, state, out, stops, ctx }.step_on(all.1.min(a.rows - 1));
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
    let mut best = Best::none(k);
    k.for_each(r.thread, count * ROWS, r.threads, |i| {
        let (row, logit) = (first * ROWS + i, r.row(0, i / ROWS, i % ROWS));
        a.logits.at(row).st(logit);
        best.take(k, logit, row);
    });
    best.block(r);
    let last = r.scratch.at(8 * r.threads / 32).cast::<u32>();
    k.when(r.thread.eq(0), || {
        a.value.at(k.ctaid()).st(&best.value);
        a.index.at(k.ctaid()).st(&best.row);
        last.st(a.ticket.ticket(a.blocks - 1));
    });
    r.barrier();
    k.when(last.ld().eq(a.blocks - 1) & k.warp().eq(0), || {
        let mut best = Best::none(k);
        k.for_each(k.lane(), a.blocks, 32, |i| {
            best.take(k, a.value.at(i).fresh().ld(), a.index.at(i).fresh().ld());
        });
        best.warp(k);
        let tape =
            Tape { prompt: a.prompt, stop: a.stop, state: a.state, out: a.out, stops: a.stops, ctx: a.ctx };
        k.when(k.lane().eq(0), || tape.step(k, best.row.get().min(a.rows - 1)));
    });
}

impl Variant for Head {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let gamma: Vec<f32> = random.units(shape.n as usize).iter().map(|g| 1.0 + g / 4.0).collect();
                let (rows, blocks, ctx) = (shape.rows as usize, shape.blocks as usize, 4);
                let mut state = vec![0; LEN];
                state[1] = 2;
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
