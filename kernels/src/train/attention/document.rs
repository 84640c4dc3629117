//! The forward pass of attention within documents, in `f32` without tensor cores.

use super::lanes::{Lanes, Sample, add, check, heads};
use super::reference::{causal, forward};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, check_lengths};
use crate::train::buffers::{narrow, wide};
use ptx_gen::*;
use std::f32::consts::{LN_2, LOG2_E};

args! {
    /// Arguments of [`DocumentAttention`].
    pub struct DocumentAttentionArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<f32>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`: the outputs
        o: Out<f32>,
        /// `[tokens, heads]`: the natural logarithm of the sum of the exponentials of the scores
        lse: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}

/// Kernel of the forward pass, with a warp per query. Its reference is [`forward`].
///
/// The softmax is online (Milakov and Gimelshein 2018): a new maximum rescales the sums so far.
pub struct DocumentAttention {
    /// The number of dimensions of a head, an even number up to 256.
    pub head_dim: u32,
}

impl KernelDef for DocumentAttention {
    type Args<S: Side> = DocumentAttentionArgs<S>;

    fn name(&self) -> String {
        format!("train_attention_{}", self.head_dim)
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &DocumentAttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        let &DocumentAttentionArgs {
            heads, kv_heads, ..
        } = a;
        let head_dim = self.head_dim;
        check(self, head_dim, heads, kv_heads)?;
        let tokens = a.starts as u32;
        check_lengths! { self, a:
            q == tokens * heads * head_dim,
            k == tokens * kv_heads * head_dim,
            v == tokens * kv_heads * head_dim,
            o == tokens * heads * head_dim,
            lse == tokens * heads,
        }
        Ok(Grid::line(tokens * heads))
    }

    fn program<'k>(&self, k: Builder<'k>, a: DocumentAttentionArgs<Dev<'k>>) {
        let query = k.ctaid();
        let lanes = Lanes {
            k,
            head_dim: self.head_dim,
        };
        let token = query / a.heads;
        let head = query % a.heads;
        let kv_head = head / (a.heads / a.kv_heads);
        let q = lanes.load(a.q.at(query * self.head_dim));
        let mut max = k.var(f32::NEG_INFINITY);
        let mut sum = k.var(0.0);
        let mut acc = lanes.zeros();
        k.for_each(a.starts.at(token).ld(), token + 1, 1, |j| {
            let at = (j * a.kv_heads + kv_head) * self.head_dim;
            let key = lanes.load(a.k.at(at));
            let score = lanes.dot(&q, &key) * lanes.scale();
            let new = max.get().max(score);

            // The first score replaces negative infinity, so `kept` is 0 then.
            let kept = ((max.get() - new) * LOG2_E).ex2();
            let weight = ((score - new) * LOG2_E).ex2();
            sum.set(sum.get().fma(kept, weight));
            for acc in &mut acc {
                acc.set(acc.get() * kept);
            }

            let value = lanes.load(a.v.at(at));
            add(&mut acc, weight, &value);
            max.set(new);
        });
        lanes.store(
            a.o.at(query * self.head_dim),
            acc.iter().map(|acc| acc.get() / sum.get()),
        );
        k.when(k.lane().eq(0), || {
            a.lse.at(query).st(sum.get().lg2().fma(LN_2, max.get()))
        });
    }

    fn reference(&self, a: DocumentAttentionArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let (o, lse) = forward(&at, &wide(a.q), &wide(a.k), &wide(a.v));
        narrow(&o, a.o);
        narrow(&lse, a.lse);
    }
}

impl Variant for DocumentAttention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |of: Sample| {
            let args = vec![
                CpuArg::F32(of.q),
                CpuArg::F32(of.k),
                CpuArg::F32(of.v),
                CpuArg::U32(of.starts),
                CpuArg::F32(vec![0.0; of.o.len()]),
                CpuArg::F32(vec![0.0; of.lse.len()]),
                CpuArg::scalar(of.heads),
                CpuArg::scalar(of.kv_heads),
            ];
            // There are up to 40 weights and as many rescalings, each with the errors of two
            // powers.
            Case {
                label: of.label,
                args,
                bound: 3e-6,
            }
        };
        Sample::all(seed, self.head_dim)
            .into_iter()
            .map(case)
            .collect()
    }
}
