//! The backward pass of queries: `D` and `dq`.

use super::block::{FlashBlock, Sizes, TensorHead, TensorOp, WARPS};
use super::common::{check, check_buffers, check_op, heads, log2_scale, scale};
use super::forward::{check_queries, first_query};
use super::fragments::{self, Tile};
use super::softmax::QUAD;
use super::steps::{self, KeyStep, Keys};
use crate::shared::reduce::lanes_sum;
use crate::shared::{Contract, check_lengths};
use crate::train::attention::{Saved, backward, causal, delta};
use crate::train::buffers::{narrow, wide as wide_f32};
use crate::train::half::buffers::wide;
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`FlashQueries`].
    pub struct FlashQueriesArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<bf16>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's.
        /// It must not decrease.
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`: the outputs of the forward pass
        o: In<bf16>,
        /// `[tokens, heads]`: the logarithms of the forward pass
        lse: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of `o`
        grad: In<bf16>,
        /// `[tokens, heads]`: `D`, which [`FlashKeys`](super::FlashKeys) reads
        delta: Out<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of the rotated queries
        dq: Out<f32>,
        /// The number of tokens of all documents.
        tokens: u32,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}

/// Kernel for `D` and `dq`. Its references are [`delta`] and [`backward`].
///
/// A block has 64 queries of a head with steps of 64 keys, or 128 queries with steps of 32 keys.
/// The order of the blocks is that of [`FlashForward`](super::FlashForward).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashQueries {
    /// The number of dimensions of a head: a multiple of 16, at most 128.
    pub head_dim: u32,
    /// The number of queries of a block: 64 or 128.
    pub queries: u32,
    /// The instruction of the matmuls. `wgmma` needs 64 queries per block.
    pub op: TensorOp,
}

impl FlashQueries {
    /// Returns the kernel with 64 queries per block.
    pub const fn new(head_dim: u32) -> FlashQueries {
        FlashQueries {
            head_dim,
            queries: 64,
            op: TensorOp::Mma,
        }
    }

    /// Returns the kernel with this instruction.
    pub const fn with_op(self, op: TensorOp) -> FlashQueries {
        FlashQueries { op, ..self }
    }

    /// Returns the kernel with this number of queries per block.
    pub const fn with_queries(self, queries: u32) -> FlashQueries {
        FlashQueries { queries, ..self }
    }

    const fn sizes(&self) -> Sizes {
        let FlashQueries {
            head_dim,
            queries,
            op,
        } = *self;
        // Both choices keep the same number of rows in shared memory, so that two blocks fit a
        // multiprocessor.
        let step = if queries == 64 { 64 } else { 32 };
        Sizes {
            head_dim,
            tensors: 2,
            owned: queries,
            step,
            panels: op.panels(),
        }
    }
}

impl KernelDef for FlashQueries {
    type Args<S: Side> = FlashQueriesArgs<S>;

    fn name(&self) -> String {
        format!(
            "train_flash_dq_{}_{}{}",
            self.head_dim,
            self.queries,
            self.op.suffix()
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(2)
    }

    fn grid(&self, a: &FlashQueriesArgs<Shape>) -> Result<Grid, ShapeError> {
        let &FlashQueriesArgs { tokens, .. } = a;
        check(self, self.head_dim, [tokens, a.heads, a.kv_heads])?;
        check_queries(self, self.queries)?;
        check_op(self, self.op, self.head_dim)?;
        self.require(self.op == TensorOp::Mma || self.queries == 64, || {
            format!(
                "the kernel's queries is {}, must be 64 for `wgmma`",
                self.queries
            )
        })?;
        let of_heads = [("q", a.q), ("o", a.o), ("grad", a.grad), ("dq", a.dq)];
        let sizes = [tokens, a.heads, a.kv_heads, self.head_dim];
        let of_queries = [("lse", a.lse), ("delta", a.delta)];
        check_buffers(
            self,
            sizes,
            &of_heads,
            &[("k", a.k), ("v", a.v)],
            &of_queries,
        )?;
        check_lengths! { self, a:
            starts == tokens,
        }
        let plane = Grid::plane(a.heads, tokens.div_ceil(self.queries));
        Ok(Grid {
            shared: self.shared(),
            ..plane
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: FlashQueriesArgs<Dev<'k>>) {
        k.section(
            "train/flash/dq_queries",
            "flash: queries and their gradients, the last tokens first",
        );
        let block = FlashBlock::new(
            k,
            self.sizes(),
            first_query(k, a.tokens, self.queries),
            a.tokens,
        );
        let head = k.ctaid();
        let kv_head = head / (a.heads / a.kv_heads);
        for (i, tensor) in (0..).zip([a.q, a.grad]) {
            block.copy_owned(
                i,
                TensorHead {
                    tensor,
                    heads: a.heads,
                    head,
                },
            );
        }

        let kv = [a.k, a.v].map(|tensor| TensorHead {
            tensor,
            heads: a.kv_heads,
            head: kv_head,
        });
        let keys = Keys::new(&block, kv, a.starts);

        // `D` is computed from global memory, while the copies of the queries are in flight.
        for token in block.lane_tokens().into_iter().flatten() {
            self.row(&block, &a, token);
        }

        let dq = match self.op {
            TensorOp::Mma => {
                let mut dq = fragments::zeros(k, self.sizes().tiles(), self.head_dim);
                keys.each_step(|step| self.step(&block, &keys, step, &mut dq));
                dq
            }
            TensorOp::Wgmma => {
                let mut dq = Accumulators::zero(k, self.head_dim);
                keys.each_step(|step| self.step_together(&block, &keys, step, &mut dq));
                vec![fragments::of_warpgroup(dq)]
            }
        };

        k.section("train/flash/dq_store", "flash: store dq");
        for (dq, tokens) in dq.iter().zip(block.lane_tokens()) {
            for (r, token) in tokens.into_iter().enumerate() {
                let to =
                    a.dq.row(token * a.heads + head, 4 * self.head_dim)
                        .at((k.lane() & 3) * 2);
                k.when(token.le(block.last), || fragments::store(dq, r, to));
            }
        }
    }

    fn reference(&self, a: FlashQueriesArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let [q, k, v, grad, o] = [a.q, a.k, a.v, a.grad, a.o].map(wide);
        let lse = wide_f32(a.lse);
        let d = delta(&at, &grad, &o);
        let [dq, ..] = backward(
            &at,
            &Saved {
                q: &q,
                k: &k,
                v: &v,
                lse: &lse,
            },
            &grad,
            &d,
        );
        narrow(&d, a.delta);
        narrow(&dq, a.dq);
    }
}

impl FlashQueries {
    /// Returns the bytes of shared memory. After the rows and the [first keys](steps::bytes), it
    /// has `-lse` in log2 units and `-D / sqrt(d)` of each query.
    const fn shared(&self) -> u32 {
        self.sizes().shared() + steps::bytes(self.sizes()) + 8 * self.queries
    }

    /// Returns the addresses of these two numbers of a query.
    fn numbers<'k>(&self, block: &FlashBlock<'k>, token: U32<'k>) -> [Ptr<'k, f32, Shared>; 2] {
        let lse = block
            .after_rows()
            .at(steps::bytes(self.sizes()))
            .cast::<f32>()
            .at(token - block.first);
        [lse, lse.at(self.queries)]
    }

    /// Computes and stores `D` of a lane's query. Four lanes share the query, and each of them
    /// takes four of every 16 dimensions.
    fn row<'k>(&self, block: &FlashBlock<'k>, a: &FlashQueriesArgs<Dev<'k>>, token: U32<'k>) {
        let k = block.k;

        k.section("train/flash/dq_delta", "flash: D of a query");
        let row = token.min(block.last) * a.heads + k.ctaid();
        let quarter = k.lane() & 3;
        let lane_words = |x: Ptr<'k, bf16, ReadOnly>| {
            let words = x.row(row, 2 * self.head_dim).cast::<u32>();
            words.at(quarter * 2)
        };
        let [o, grad] = [a.o, a.grad].map(lane_words);
        let mut sum = k.var(0.0);
        for sixteen in 0..self.head_dim / 16 {
            let [o, grad] = [o, grad].map(|x| x.at(8 * sixteen).ld2());
            for (o, grad) in o.into_iter().zip(grad) {
                // A bf16 is the upper half of an `f32`, so a shift or a mask converts it exactly.
                sum.fma((o << 16).bits::<f32>(), (grad << 16).bits::<f32>());
                sum.fma((o & HIGH).bits::<f32>(), (grad & HIGH).bits::<f32>());
            }
        }

        let delta = lanes_sum(QUAD, sum.get());
        k.when(quarter.eq(0), || {
            k.when(token.le(block.last), || a.delta.at(row).st(delta));
            // The steps add both numbers, in log2 units and scaled.
            let less_lse = a.lse.at(row).ld() * -LOG2_E;
            let less_delta = delta * -(scale(self.head_dim) as f32);
            let numbers = [less_lse, less_delta];
            for (to, x) in self.numbers(block, token).into_iter().zip(numbers) {
                to.st(x);
            }
        });
    }

    /// Adds the `dq` of a step of keys, with `mma`.
    fn step<'k>(
        &self,
        block: &FlashBlock<'k>,
        keys: &Keys<'_, 'k>,
        step: KeyStep<'k>,
        dq: &mut [Tile<'k>],
    ) {
        let k = block.k;
        let Sizes {
            head_dim,
            step: columns,
            ..
        } = self.sizes();
        let [key_columns, value_columns] = block.columns(step.odd);

        k.section("train/flash/dq_scores", "flash: scores, queries times keys");
        let mut scores = fragments::zeros(k, dq.len(), columns);
        fragments::add_transposed(&mut scores, &block.left(0), &key_columns, head_dim);
        keys.mask(&mut scores, step);

        k.section(
            "train/flash/dq_dweights",
            "flash: gradients of the weights, those of queries times values",
        );
        let mut grads = fragments::zeros(k, dq.len(), columns);
        fragments::add_transposed(&mut grads, &block.left(1), &value_columns, head_dim);
        let tiles = scores.iter().zip(&grads).zip(block.lane_tokens());

        // The gradients of the scores become left operands in registers.
        let ds: Vec<_> = tiles
            .map(|((scores, grads), tokens)| {
                k.section(
                    "train/flash/dq_dscores",
                    "flash: gradients of the scores of 16 queries",
                );
                let (p, delta) = self.weights(block, scores, tokens);
                self.of_scores(&p, grads, delta)
            })
            .collect();

        k.section("train/flash/dq_keys", "flash: add the weighted keys");
        fragments::add(dq, &ds, &block.right(step.odd, 0));
    }

    /// Returns the weights of 16 queries, and `-D / sqrt(d)` of the lane's two.
    fn weights<'k>(
        &self,
        block: &FlashBlock<'k>,
        scores: &Tile<'k>,
        tokens: [U32<'k>; 2],
    ) -> (Vec<[F32<'k>; 4]>, [F32<'k>; 2]) {
        let [[lse0, delta0], [lse1, delta1]] =
            tokens.map(|token| self.numbers(block, token).map(Ptr::ld));
        let lse = [lse0, lse1];
        let weigh = |s: F32<'k>, i: usize, _| s.fma(log2_scale(self.head_dim), lse[i / 2]).ex2();
        (fragments::map(scores, weigh), [delta0, delta1])
    }

    /// Returns the gradients of the scores of 16 queries, from their weights and the gradients of
    /// the weights.
    fn of_scores<'k>(
        &self,
        p: &[[F32<'k>; 4]],
        grads: &Tile<'k>,
        delta: [F32<'k>; 2],
    ) -> Vec<LeftFragment<'k>> {
        let of = |dp: F32<'k>, i: usize, _| dp.fma(scale(self.head_dim) as f32, delta[i / 2]);
        fragments::rounded(&fragments::times(p, &fragments::map(grads, of)))
    }

    /// Adds the `dq` of a step of keys, with `wgmma`. The matmul of the gradients of the weights
    /// overlaps with the computation of the weights.
    fn step_together<'k>(
        &self,
        block: &FlashBlock<'k>,
        keys: &Keys<'_, 'k>,
        step: KeyStep<'k>,
        dq: &mut Accumulators<'k, f32>,
    ) {
        let k = block.k;
        let always = k.always();
        let [[key_columns, key_rows], [value_columns, _]] = block.step_tiles(step.odd);
        let [mut scores, mut grads] = [(); 2].map(|()| Accumulators::zero(k, self.sizes().step));

        k.section(
            "train/flash/dq_scores_wgmma",
            "flash: scores, queries times keys; gradients of the weights, those of queries times \
             values",
        );
        k.wgmma_fence();
        scores.multiply_tiles(block.owned_tile(0), key_columns, always);
        k.wgmma_commit();
        grads.multiply_tiles(block.owned_tile(1), value_columns, always);
        k.wgmma_commit();

        // One of the two groups may still be running: the scores are ready.
        k.wgmma_wait(1);
        let mut scores = vec![fragments::of_warpgroup(scores)];
        keys.mask(&mut scores, step);

        k.section(
            "train/flash/dq_dscores_wgmma",
            "flash: gradients of the scores of 64 queries",
        );
        let (p, delta) = self.weights(block, &scores[0], block.lane_tokens()[0]);

        // Now the gradients of the weights are ready too.
        k.wgmma_wait(0);
        let ds = self.of_scores(&p, &fragments::of_warpgroup(grads), delta);

        k.section("train/flash/dq_keys_wgmma", "flash: add the weighted keys");
        fragments::add_together(k, dq, ds, key_rows);
        k.wgmma_wait(0);
    }
}

/// The high half of a word: a bf16 as an `f32`.
const HIGH: u32 = 0xffff_0000;
