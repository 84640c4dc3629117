//! The end of a token: norm, LM head, argmax, and the step to the next position.
//!
//! Each block stores the maximum of its rows. The last block to finish reduces the maxima and
//! advances the state, as [`Advance`](crate::Advance) does. Ties go to the lowest index. A logit
//! that is not finite counts as infinity and therefore wins. The chosen token is then [`NO_TOKEN`].
//!
//! With a batch, the kernel stores the argmax token of each token and does not update the state.
//! The caller knows which tokens continue, because it assigned them.

use super::advance::DecodeStep;
use super::batch::BatchItem;
use super::gemv::case;
use super::gemv::epilogue::{Results, Store};
use super::gemv::stream::{Input, StreamArgs, WeightStream};
use super::{Packed, Plan, Segments};
use crate::format::Format;
use crate::format::tile::ROWS;
use crate::harness::{Case, Variant};
use crate::shared::state::{LEN, NO_TOKEN, POSITION, StepState};
use crate::shared::{Contract, check_lengths};
use crate::simple::argmax::{key, key_on_cpu};
use ptx_gen::*;

args! {
    /// Arguments of [`LmHead`].
    pub struct LmHeadArgs {
        /// `[rows, n]`: the weights as tiles in plain row order
        w: In<u8>,
        /// `[batch, n]`: the residual stream, without the padding of rows
        x: In<f32>,
        /// `[n]`: weights of the norm, without the padding of rows
        gamma: In<f32>,
        /// `[batch, rows]`: the logits
        logits: Out<f32>,
        /// `[batch, blocks]`: the largest logit of each block, or infinity if one of its logits is
        /// not finite
        value: InOut<f32>,
        /// `[batch, blocks]`: the row of the largest logit of each block
        index: InOut<u32>,
        /// `[1]`: the number of finished blocks, which must be 0 before the launch and is 0 after
        /// it
        ticket: InOut<u32>,
        /// `[ctx]`: the prompt, of which the first `PROMPT_LEN` tokens are used
        prompt: In<u32>,
        /// `[stops]`: tokens that end decoding. The buffer may be longer.
        stop: In<u32>,
        /// `[batch, 8]`: the decode states, see [`state`](crate::shared::state)
        state: InOut<u32>,
        /// `[ctx]`: the token that follows each position, for the host
        out: Out<u32>,
        /// The number of rows of the matrix, a multiple of 16.
        rows: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The number of stop tokens.
        stops: u32,
        /// The number of positions of the cache.
        ctx: u32,
        /// The arguments that all GEMVs share.
        stream: StreamArgs,
    }
}

/// Kernel that computes the logits, chooses the token with the largest one, and advances the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LmHead {
    /// The format of the matrix.
    pub format: Format,
    /// The division of a block among its warps.
    pub plan: Plan,
}

impl LmHead {
    /// Returns the segments of the matrix.
    pub fn segments(&self, rows: u32) -> Segments {
        Segments(vec![(self.format, rows / ROWS)])
    }
}

impl KernelDef for LmHead {
    type Args<S: Side> = LmHeadArgs<S>;

    fn name(&self) -> String {
        format!("head_{}_{}", self.format.suffix(), self.plan.suffix())
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.format)
    }

    fn grid(&self, a: &LmHeadArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LmHeadArgs { ctx, n, .. } = a;
        self.multiple("rows", a.rows, ROWS)?;
        self.range("ctx", ctx, 1, 1 << 24)?;
        let batched = |name, found, formula, len| {
            super::contract::batched(self, self.plan.batch, name, found, formula, &[len])
        };
        super::contract::normed(self, self.plan, a.x, a.gamma, n)?;
        batched("logits", a.logits, "rows", a.rows)?;
        batched("value", a.value, "blocks", a.stream.blocks)?;
        batched("index", a.index, "blocks", a.stream.blocks)?;
        self.exactly("ticket", a.ticket, 1)?;
        check_lengths! { self, a:
            prompt == ctx,
        }
        self.require(a.stop >= a.stops as usize, || {
            format!(
                "stop has {} elements, must have at least stops = {}",
                a.stop, a.stops
            )
        })?;
        self.exactly("state", a.state, self.plan.batch as usize * LEN)?;
        check_lengths! { self, a:
            out == ctx,
        }
        let segments = self.segments(a.rows);
        super::contract::contract(self, a.w, &segments, self.plan, n, &a.stream)
    }

    fn program<'k>(&self, k: Builder<'k>, a: LmHeadArgs<Dev<'k>>) {
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments: vec![(self.format, a.rows / ROWS)],
            tiles: a.w,
            n: a.n,
            args: a.stream,
            tail: None,
            experts: None,
        };
        let input = Input::Normed {
            x: a.x.fresh(),
            gamma: a.gamma,
            epsilon: a.epsilon,
        };
        stream.run(input, Store(|r: &Results<'k>| finish(r, &a)));
    }

    fn reference(&self, a: LmHeadArgs<Cpu<'_>>) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        let segments = self.segments(a.rows);
        let rows = a.rows as usize;
        let blocks = a.stream.blocks as usize;
        let batch = self.plan.batch as usize;
        for item in 0..batch {
            let len = self.plan.unpadded(a.n) as usize;
            let x =
                super::reference::padded_normed(&a.x[item * len..][..len], a.gamma, a.epsilon, a.n);
            let logits = &mut a.logits[item * rows..][..rows];
            for (y, sum) in logits
                .iter_mut()
                .zip(super::reference::exact64(self.format, a.w, &x))
            {
                *y = sum as f32;
            }

            let mut all = (f32::NEG_INFINITY, u32::MAX);
            for b in 0..blocks {
                let [from, to] =
                    [b, b + 1].map(|b| segments.partition(b as u32, a.stream.blocks)[0] * ROWS);
                let mut best = (f32::NEG_INFINITY, u32::MAX);
                for row in from..to {
                    let logit = key_on_cpu(logits[row as usize]);
                    best = if logit > best.0 { (logit, row) } else { best };
                }
                (a.value[item * blocks + b], a.index[item * blocks + b]) = best;
                all = if best.0 > all.0 { best } else { all };
            }

            let chosen = if all.0 < f32::INFINITY {
                all.1
            } else {
                NO_TOKEN
            };
            if batch > 1 {
                let position = a.state[item * LEN + POSITION as usize] as usize;
                if let Some(out) = a.out.get_mut(position) {
                    *out = chosen;
                }
                continue;
            }

            let LmHeadArgs {
                prompt,
                stop,
                stops,
                ctx,
                ..
            } = a;
            DecodeStep {
                prompt,
                stop,
                state: &mut *a.state,
                out: &mut *a.out,
                stops,
                ctx,
            }
            .run_on_cpu(chosen);
        }
    }
}

/// The largest logit so far and its row. Ties go to the lower row.
struct BestLogit<'k> {
    value: Var<'k, f32>,
    row: Var<'k, u32>,
}

impl<'k> BestLogit<'k> {
    /// Returns a maximum that every logit replaces.
    fn none(k: Builder<'k>) -> Self {
        BestLogit {
            value: k.var(f32::NEG_INFINITY),
            row: k.var(u32::MAX),
        }
    }

    /// Replaces the maximum if this logit is larger, or equal with a lower row.
    fn update(&mut self, k: Builder<'k>, value: F32<'k>, row: U32<'k>) {
        let best = self.value.get();
        let at = self.row.get();
        k.when(value.gt(best) | value.eq(best) & row.lt(at), || {
            self.value.set(value);
            self.row.set(row);
        });
    }

    /// Reduces the maximum over the warp, in every lane. The whole warp must call it.
    fn warp(&mut self, k: Builder<'k>) {
        for lanes in [16, 8, 4, 2, 1] {
            let value = self.value.get().shfl_bfly(lanes);
            let row = self.row.get().shfl_bfly(lanes);
            self.update(k, value, row);
        }
    }

    /// Reduces the maximum over all consumers, in the first warp.
    fn block(&mut self, r: &Results<'k>) {
        let k = r.k;
        let warps = r.threads / 32;
        self.warp(k);
        let slot = |warp: U32<'k>| {
            (
                r.scratch.row(warp, 8).cast::<f32>(),
                r.scratch.row(warp, 8).at(4).cast::<u32>(),
            )
        };
        let (value, row) = slot(k.warp());
        k.when(k.lane().eq(0), || {
            value.st(&self.value);
            row.st(&self.row);
        });
        r.barrier();
        let (value, row) = slot(k.lane().min(warps - 1));
        self.update(k, value.ld(), row.ld());
        self.warp(k);
    }
}

/// Stores the logits and the maximum of the block. The last block to finish chooses the token.
fn finish<'k>(r: &Results<'k>, a: &LmHeadArgs<Dev<'k>>) {
    let k = r.k;
    let (first, count) = r.shares[0];

    k.section(
        "pipeline/head/logits",
        "epilogue: logits of the block and their maximum",
    );

    // The ticket is shared through the scratch space, behind the maxima of the warps.
    let last = r.scratch.at(8 * r.threads / 32).cast::<u32>();
    let draw = || last.st(a.ticket.ticket(a.stream.blocks - 1));
    r.each_item(|item| {
        let mut best = BestLogit::none(k);
        k.for_each(r.thread, count * ROWS, r.threads, |i| {
            let row = first * ROWS + i;
            let logit = r.row(0, i / ROWS, i % ROWS, item);
            item.of(a.logits, a.rows).at(row).st(logit);
            best.update(k, key(logit), row);
        });

        k.section("pipeline/head/block_maximum", "maximum logit of the block");
        best.block(r);
        k.when(r.thread.eq(0), || {
            item.of(a.value, a.stream.blocks)
                .at(k.ctaid())
                .st(&best.value);
            item.of(a.index, a.stream.blocks)
                .at(k.ctaid())
                .st(&best.row);
            if item.is_only() {
                draw();
            }
        });
        if !item.is_only() {
            // The barrier frees the scratch space for the next token.
            r.barrier();
        }
    });

    k.section(
        "pipeline/head/last_block",
        "the last block to finish chooses the next token",
    );

    // The ticket releases the block's maxima. The last block acquires the maxima of all blocks with
    // it.
    if !r.is_single() {
        k.when(r.thread.eq(0), draw);
    }

    r.barrier();
    k.when(last.ld().eq(a.stream.blocks - 1) & k.warp().eq(0), || {
        r.each_item(|item| choose(k, a, item))
    });
}

/// Reduces the maxima of the blocks and advances the state. Only one warp may run it.
fn choose<'k>(k: Builder<'k>, a: &LmHeadArgs<Dev<'k>>, item: BatchItem<'k>) {
    let value = item.of(a.value, a.stream.blocks);
    let index = item.of(a.index, a.stream.blocks);

    k.section("pipeline/head/maximum", "maximum logit of all blocks");
    let mut best = BestLogit::none(k);
    k.for_each(k.lane(), a.stream.blocks, 32, |i| {
        best.update(k, value.at(i).fresh().ld(), index.at(i).fresh().ld());
    });
    best.warp(k);
    let LmHeadArgs {
        prompt, stop, out, ..
    } = *a;
    let state = item.of(a.state, LEN as u32);
    k.when(k.lane().eq(0), || {
        k.section("pipeline/head/next_token", "the next token");
        let chosen = best
            .value
            .get()
            .lt(f32::INFINITY)
            .select(&best.row, NO_TOKEN);
        if item.is_only() {
            return DecodeStep {
                prompt,
                stop,
                state,
                out,
                stops: a.stops,
                ctx: a.ctx,
            }
            .run(k, chosen);
        }

        let position = state.fresh().at(POSITION).ld();
        k.when(position.lt(a.ctx), || out.at(position).st(chosen));
    });
}

impl Variant for LmHead {
    fn cases(&self, seed: u64) -> Vec<Case> {
        case::shapes(self.format, self.plan)
            .into_iter()
            .map(|shape| {
                let (mut random, packed) = Packed::random(self.format, shape, seed);
                let gamma = case::gamma(&mut random, self.plan, shape.n);
                let [rows, blocks] = [shape.rows, shape.blocks].map(|n| (shape.batch * n) as usize);
                let ctx = 4;

                // The last tokens of a large batch are past the cache.
                let state = (0..shape.batch)
                    .flat_map(|i| {
                        StepState {
                            position: 2 + i,
                            ..StepState::default()
                        }
                        .words()
                    })
                    .collect();
                let mut args = vec![
                    CpuArg::U8(packed.tiles),
                    CpuArg::F32(case::unpadded(packed.x, self.plan)),
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
                case::case((self.plan, &self.segments(shape.rows)), shape, args, &[])
            })
            .collect()
    }
}
