//! The backward pass of keys and values: `dk` and `dv`.

use super::block::{FlashBlock, Sizes, TensorHead, TensorOp, WARPS};
use super::columns::{QUERIES, Queries, QueryField, QueryStep, STEP_BYTES};
use super::common::{check, check_buffers, check_op, log2_scale, scale};
use super::fragments::{self, Tile};
use super::key_args::FlashKeysArgs;
use crate::shared::{Contract, check_lengths};
use crate::train::attention::{Saved, backward, causal, sum_groups};
use crate::train::buffers::{narrow, wide as wide_f32};
use crate::train::half::buffers::wide;
use ptx_gen::*;

/// Kernel for `dk` and `dv`. Its reference is [`backward`].
///
/// A block has 64 keys of a head and takes 32 queries per step. Scores are transposed: the rows of
/// a warp are keys. The warps multiply separately, or together with `wgmma`, which reads the
/// queries from shared memory once for all four. The blocks with the first tokens start first,
/// because the most queries see the first keys of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashKeys {
    /// The number of dimensions of a head: a multiple of 16, at most 128.
    pub head_dim: u32,
    /// The query heads over which a block sums.
    pub parts: SummedHeads,
    /// The instruction of the matmuls.
    pub op: TensorOp,
}

/// The query heads over which a block of [`FlashKeys`] sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummedHeads {
    /// One query head. [`SumGroups`](crate::train::attention::SumGroups) then sums over the heads
    /// of a group. It makes more blocks, which models with few key-value heads need.
    Heads,
    /// All query heads of a group, in the order of the heads. No sum is left.
    Groups,
}

impl FlashKeys {
    /// The number of keys of a block.
    pub const KEYS: u32 = 64;

    const fn sizes(&self) -> Sizes {
        let Self { head_dim, op, .. } = *self;
        Sizes {
            head_dim,
            tensors: 2,
            owned: FlashKeys::KEYS,
            step: QUERIES,
            panels: op.panels(),
        }
    }
}

impl KernelDef for FlashKeys {
    type Args<S: Side> = FlashKeysArgs<S>;

    fn name(&self) -> String {
        let parts = match self.parts {
            SummedHeads::Heads => "",
            SummedHeads::Groups => "_groups",
        };
        format!(
            "train_flash_dkv{parts}_{}{}",
            self.head_dim,
            self.op.suffix()
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(2)
    }

    fn grid(&self, a: &FlashKeysArgs<Shape>) -> Result<Grid, ShapeError> {
        let &FlashKeysArgs { tokens, .. } = a;
        check(self, self.head_dim, [tokens, a.heads, a.kv_heads])?;
        check_op(self, self.op, self.head_dim)?;
        let inputs = [("q", a.q), ("grad", a.grad)];
        let keys = [("k", a.k), ("v", a.v)];
        let outputs = [("dk", a.dk), ("dv", a.dv)];
        let (of_heads, of_kv_heads) = match self.parts {
            SummedHeads::Heads => ([&inputs[..], &outputs].concat(), keys.to_vec()),
            SummedHeads::Groups => (inputs.to_vec(), [&keys[..], &outputs].concat()),
        };
        let sizes = [tokens, a.heads, a.kv_heads, self.head_dim];
        let of_queries = [("lse", a.lse), ("delta", a.delta)];
        check_buffers(self, sizes, &of_heads, &of_kv_heads, &of_queries)?;
        check_lengths! { self, a:
            starts == tokens,
        }
        let shared = self.sizes().shared() + 2 * STEP_BYTES;
        let heads = match self.parts {
            SummedHeads::Heads => a.heads,
            SummedHeads::Groups => a.kv_heads,
        };
        Ok(Grid {
            shared,
            ..Grid::plane(heads, tokens.div_ceil(FlashKeys::KEYS))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: FlashKeysArgs<Dev<'k>>) {
        k.section("train/flash/dkv_keys", "flash: keys and values");
        let sizes = self.sizes();
        let block = FlashBlock::new(k, sizes, k.ctaid_y() * FlashKeys::KEYS, a.tokens);
        let head = k.ctaid();
        let group = a.heads / a.kv_heads;

        // With `Heads`, a block takes one query head and reads the keys of its group.
        let kv_head = match self.parts {
            SummedHeads::Heads => head / group,
            SummedHeads::Groups => head,
        };
        for (i, tensor) in (0..).zip([a.k, a.v]) {
            block.copy_owned(
                i,
                TensorHead {
                    tensor,
                    heads: a.kv_heads,
                    head: kv_head,
                },
            );
        }

        let sums = match self.op {
            TensorOp::Mma => {
                let mut sums = [(); 2].map(|()| fragments::zeros(k, sizes.tiles(), self.head_dim));
                self.walk(&block, &a, |queries, step| {
                    self.step(queries, step, &mut sums)
                });
                sums
            }
            TensorOp::Wgmma => {
                let mut sums = [(); 2].map(|()| Accumulators::zero(k, self.head_dim));
                self.walk(&block, &a, |queries, step| {
                    self.step_together(queries, step, &mut sums)
                });
                sums.map(|sums| vec![fragments::of_warpgroup(sums)])
            }
        };
        let heads = match self.parts {
            SummedHeads::Heads => a.heads,
            SummedHeads::Groups => a.kv_heads,
        };

        k.section("train/flash/dkv_store", "flash: store dk and dv");
        for (sums, to) in sums.iter().zip([a.dk, a.dv]) {
            for (sums, tokens) in sums.iter().zip(block.lane_tokens()) {
                for (r, token) in tokens.into_iter().enumerate() {
                    let to = to
                        .row(token * heads + head, 4 * self.head_dim)
                        .at((k.lane() & 3) * 2);
                    k.when(token.le(block.last), || fragments::store(sums, r, to));
                }
            }
        }
    }

    fn reference(&self, a: FlashKeysArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = super::common::heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let [q, k, v, grad] = [a.q, a.k, a.v, a.grad].map(wide);
        let [lse, delta] = [a.lse, a.delta].map(wide_f32);
        let [_, dk, dv] = backward(
            &at,
            &Saved {
                q: &q,
                k: &k,
                v: &v,
                lse: &lse,
            },
            &grad,
            &delta,
        );
        let sum = |parts: Vec<f64>| match self.parts {
            SummedHeads::Heads => parts,
            SummedHeads::Groups => sum_groups(&at, &parts),
        };
        narrow(&sum(dk), a.dk);
        narrow(&sum(dv), a.dv);
    }
}

impl FlashKeys {
    /// Runs `body` for each step of queries of each query head of the block.
    fn walk<'k>(
        &self,
        block: &FlashBlock<'k>,
        a: &FlashKeysArgs<Dev<'k>>,
        body: impl FnOnce(&Queries<'_, 'k>, QueryStep<'k>),
    ) {
        let k = block.k;
        let head = k.ctaid();
        let group = a.heads / a.kv_heads;
        let walk = |head| {
            let queries = Queries::new(block, a, head);
            queries.each_step(|step| body(&queries, step));
        };
        match self.parts {
            SummedHeads::Heads => walk(head),
            SummedHeads::Groups => {
                k.for_each(head * group, head * group + group, 1, |head| {
                    // The steps of the next head overwrite the buffers, so all warps must have read
                    // the last step of the head before.
                    k.barrier();
                    walk(head);
                })
            }
        }
    }

    /// Adds the `dk` and `dv` of a step of queries, with `mma`.
    fn step<'k>(
        &self,
        queries: &Queries<'_, 'k>,
        step: QueryStep<'k>,
        [dk, dv]: &mut [Vec<Tile<'k>>; 2],
    ) {
        let block = queries.block;
        let head_dim = self.head_dim;
        let k = block.k;
        let [query_columns, grad_columns] = block.columns(step.odd);
        let mut scores = fragments::zeros(k, dk.len(), QUERIES);

        k.section(
            "train/flash/dkv_scores",
            "flash: scores, keys times queries",
        );
        fragments::add_transposed(&mut scores, &block.left(0), &query_columns, head_dim);
        queries.mask(&mut scores, step);

        k.section("train/flash/dkv_weights", "flash: weights of 16 keys");
        let lse = queries.columns(step, QueryField::Lse);
        let weigh = |tile: &Tile<'k>| {
            fragments::map(tile, |s, _, column| {
                s.fma(log2_scale(head_dim), lse(column)).ex2()
            })
        };
        let p: Vec<_> = scores.iter().map(weigh).collect();

        k.section("train/flash/dkv_dv", "flash: add the weighted gradients");

        // `dv` uses the rounded weights of the forward pass. `ds` below uses them unrounded.
        let left: Vec<_> = p.iter().map(|p| fragments::rounded(p)).collect();
        fragments::add(dv, &left, &block.right(step.odd, 1));

        k.section(
            "train/flash/dkv_dweights",
            "flash: gradients of the weights, values times those of queries",
        );
        let mut grads = fragments::zeros(k, dk.len(), QUERIES);
        fragments::add_transposed(&mut grads, &block.left(1), &grad_columns, head_dim);

        k.section(
            "train/flash/dkv_dscores",
            "flash: gradients of the scores of 16 keys",
        );
        let delta = queries.columns(step, QueryField::Delta);
        let left = grads.iter().zip(&p).map(|(grads, p)| {
            let of = |dp: F32<'k>, _, column| dp.fma(scale(head_dim) as f32, delta(column));
            let grads = fragments::map(grads, of);
            let ds = fragments::times(p, &grads);
            fragments::rounded(&ds)
        });
        let left: Vec<_> = left.collect();

        k.section("train/flash/dkv_dk", "flash: add the weighted queries");
        fragments::add(dk, &left, &block.right(step.odd, 0));
    }

    /// Adds the `dk` and `dv` of a step of queries, with `wgmma`.
    ///
    /// Matmuls overlap with computations that do not need their results: the gradients of the
    /// weights with the weights, and the weighted gradients with the gradients of the scores.
    fn step_together<'k>(
        &self,
        queries: &Queries<'_, 'k>,
        step: QueryStep<'k>,
        [dk, dv]: &mut [Accumulators<'k, f32>; 2],
    ) {
        let block = queries.block;
        let head_dim = self.head_dim;
        let k = block.k;
        let always = k.always();
        let [[query_columns, query_rows], [grad_columns, grad_rows]] = block.step_tiles(step.odd);
        let [mut scores, mut grads] = [(); 2].map(|()| Accumulators::zero(k, QUERIES));

        k.section(
            "train/flash/dkv_scores_wgmma",
            "flash: scores, keys times queries; gradients of the weights, values times those of \
             queries",
        );
        k.wgmma_fence();
        scores.multiply_tiles(block.owned_tile(0), query_columns, always);
        k.wgmma_commit();
        grads.multiply_tiles(block.owned_tile(1), grad_columns, always);
        k.wgmma_commit();

        // One of the two groups may still be running: the scores are ready.
        k.wgmma_wait(1);
        let mut scores = vec![fragments::of_warpgroup(scores)];
        queries.mask(&mut scores, step);

        k.section(
            "train/flash/dkv_dv_wgmma",
            "flash: weights of 64 keys; add the weighted gradients",
        );
        let lse = queries.columns(step, QueryField::Lse);
        let p = fragments::map(&scores[0], |s, _, column| {
            s.fma(log2_scale(head_dim), lse(column)).ex2()
        });
        fragments::add_together(k, dv, fragments::rounded(&p), grad_rows);

        // Groups end in order, so the gradients of the weights are ready.
        k.wgmma_wait(1);

        k.section(
            "train/flash/dkv_dk_wgmma",
            "flash: gradients of the scores of 64 keys; add the weighted queries",
        );
        let grads = fragments::of_warpgroup(grads);
        let delta = queries.columns(step, QueryField::Delta);
        let of = |dp: F32<'k>, _, column| dp.fma(scale(head_dim) as f32, delta(column));
        let left = fragments::rounded(&fragments::times(&p, &fragments::map(&grads, of)));
        fragments::add_together(k, dk, left, query_rows);
        k.wgmma_wait(0);
    }
}
