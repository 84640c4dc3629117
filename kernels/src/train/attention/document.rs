//! Attention within documents, forward.

use super::lanes::{Lanes, Sample, add, check, heads};
use super::{causal, forward};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::train::{narrow, wide};
use ptx_gen::*;
use std::f32::consts::{LN_2, LOG2_E};

args! {
    /// Arguments of [`DocumentAttention`].
    pub struct DocumentAttentionArgs {
        /// `[tokens, heads, head_dim]`, rotated
        q: In<f32>,
        /// `[tokens, kv_heads, head_dim]`, rotated
        k: In<f32>,
        /// `[tokens, kv_heads, head_dim]`
        v: In<f32>,
        /// `[tokens]`: the first token of each token's document; at most the token's own number
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`
        o: Out<f32>,
        /// `[tokens, heads]`, natural
        lse: Out<f32>,
        /// Query heads.
        heads: u32,
        /// Heads of keys and values; a divisor of `heads`.
        kv_heads: u32,
    }
}

/// The kernel: a warp for each query; the function is [`forward`]. The softmax is online: a new maximum rescales what
/// was summed under the old one.
pub struct DocumentAttention {
    /// Dimensions of a head, an even number up to 256.
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
        check(self, self.head_dim, a.heads, a.kv_heads)?;
        let tokens = a.starts as u32;
        self.length(
            "q",
            a.q,
            "tokens * heads * head_dim",
            &[tokens, a.heads, self.head_dim],
        )?;
        self.length(
            "k",
            a.k,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, self.head_dim],
        )?;
        self.length(
            "v",
            a.v,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, self.head_dim],
        )?;
        self.length(
            "o",
            a.o,
            "tokens * heads * head_dim",
            &[tokens, a.heads, self.head_dim],
        )?;
        self.length("lse", a.lse, "tokens * heads", &[tokens, a.heads])?;
        Ok(Grid::line(tokens * a.heads))
    }

    fn program<'k>(&self, k: Builder<'k>, a: DocumentAttentionArgs<Dev<'k>>) {
        let (query, lanes) = (
            k.ctaid(),
            Lanes {
                k,
                head_dim: self.head_dim,
            },
        );
        let (token, head) = (query / a.heads, query % a.heads);
        let kv_head = head / (a.heads / a.kv_heads);
        let q = lanes.load(a.q.at(query * self.head_dim));
        let (mut max, mut sum, mut acc) = (k.var(f32::NEG_INFINITY), k.var(0.0), lanes.zeros());
        k.for_each(a.starts.at(token).ld(), token + 1, 1, |j| {
            let at = (j * a.kv_heads + kv_head) * self.head_dim;
            let score = lanes.dot(&q, &lanes.load(a.k.at(at))) * lanes.scale();
            let new = max.get().max(score);
            let (kept, weight) = (
                ((max.get() - new) * LOG2_E).ex2(),
                ((score - new) * LOG2_E).ex2(),
            );
            sum.set(sum.get().fma(kept, weight));
            acc.iter_mut().for_each(|acc| acc.set(acc.get() * kept));
            add(&mut acc, weight, &lanes.load(a.v.at(at)));
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
            // Up to 40 weights and as many rescalings, each with the errors of two powers.
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
