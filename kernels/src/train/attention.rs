//! Attention with grouped heads, forward and backward, within documents.
//!
//! ```text
//! s   = q k^T / sqrt(d)                       keys that a token may see
//! o   = sum e^(s - max) v / sum e^(s - max)   lse = max + log sum e^(s - max)
//! D   = rowsum(do * o)                        P = e^(s - lse)
//! dv  = P^T do
//! ds  = P * (do v^T - D) / sqrt(d)
//! dq  = ds k                                  dk = ds^T q
//! ```
//!
//! The backward is FlashAttention-2's ([Dao, 2023](https://arxiv.org/abs/2307.08691)): it needs `lse` and `D` in place
//! of the matrix `P`. `dk` and `dv` are made for each query head and then summed over the heads of a group ([Ainslie et
//! al., 2023](https://arxiv.org/abs/2305.13245)), in the order of the heads, so that the sum is the same in every run.
//!
//! Numerators `e^(s - max)`, `P` and `ds` are operands of products and rounded as such; `do v^T`, `D` and sums are not.
//!
//! The kernels are naive: a warp takes one query, or one key of one query head, and goes through all that it sees.

mod document;
mod gradients;
mod lanes;

pub use document::{DocumentAttention, DocumentAttentionArgs};
pub use gradients::{
    KeyGradients, KeyGradientsArgs, QueryGradients, QueryGradientsArgs, SumGroups, SumGroupsArgs,
};

use super::Storage;
use super::products::{add_scaled, dot};
use std::ops::Range;

/// The shape of attention, and what its products take.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// `[tokens]`: the tokens that each token attends to. See [`causal`].
    pub visible: &'a [Range<usize>],
    /// The type of the products' operands.
    pub operands: Storage,
}

/// What the backward reads.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// `[tokens, heads, head_dim]`, rotated
    pub q: &'a [f64],
    /// `[tokens, kv_heads, head_dim]`, rotated
    pub k: &'a [f64],
    /// `[tokens, kv_heads, head_dim]`
    pub v: &'a [f64],
    /// `[tokens, heads]`, natural
    pub lse: &'a [f64],
}

/// Each token sees itself and what precedes it in its document. `starts` `[tokens]` is the number of the first token of
/// each token's document.
pub fn causal(starts: &[u32]) -> Vec<Range<usize>> {
    starts
        .iter()
        .enumerate()
        .map(|(i, &start)| start as usize..i + 1)
        .collect()
}

impl Heads<'_> {
    /// The range of a token's head in `[tokens, heads, head_dim]`.
    fn query(&self, token: usize, head: usize) -> Range<usize> {
        let first = (token * self.heads + head) * self.head_dim;
        first..first + self.head_dim
    }

    /// The range of the keys, or values, of a query head in `[tokens, kv_heads, head_dim]`.
    fn key(&self, token: usize, head: usize) -> Range<usize> {
        let first = (token * self.kv_heads + head * self.kv_heads / self.heads) * self.head_dim;
        first..first + self.head_dim
    }

    fn scale(&self) -> f64 {
        (self.head_dim as f64).sqrt().recip()
    }

    /// Every query: token and head.
    fn queries(&self) -> impl Iterator<Item = (usize, usize)> {
        let heads = self.heads;
        (0..self.visible.len()).flat_map(move |token| (0..heads).map(move |head| (token, head)))
    }

    /// `s` of a query and all that it sees.
    fn scores(&self, q: &[f64], k: &[f64], token: usize, head: usize) -> Vec<f64> {
        let q = &q[self.query(token, head)];
        self.visible[token]
            .clone()
            .map(|j| dot(q, &k[self.key(j, head)]) * self.scale())
            .collect()
    }
}

/// `o` `[tokens, heads, head_dim]` and `lse` `[tokens, heads]`. `q` is `[tokens, heads, head_dim]`, `k` and `v` are
/// `[tokens, kv_heads, head_dim]`.
pub fn forward(at: &Heads<'_>, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut o, mut lse) = (vec![0.0; q.len()], Vec::new());
    for (token, head) in at.queries() {
        let scores = at.scores(q, k, token, head);
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let o = &mut o[at.query(token, head)];
        for (j, &weight) in at.visible[token].clone().zip(&weights) {
            add_scaled(at.operands.round(weight), &v[at.key(j, head)], o);
        }
        o.iter_mut().for_each(|o| *o /= sum);
        lse.push(max + sum.ln());
    }
    (o, lse)
}

/// `D` `[tokens, heads]` of `do` and `o` `[tokens, heads, head_dim]`.
pub fn delta(at: &Heads<'_>, grad: &[f64], o: &[f64]) -> Vec<f64> {
    grad.chunks_exact(at.head_dim)
        .zip(o.chunks_exact(at.head_dim))
        .map(|(grad, o)| dot(grad, o))
        .collect()
}

/// `dq`, and the parts of `dk` and `dv` of each query head, all `[tokens, heads, head_dim]`. `grad` is `do`, of the same
/// shape; `delta` is `D` `[tokens, heads]`.
pub fn backward(at: &Heads<'_>, saved: &Saved<'_>, grad: &[f64], delta: &[f64]) -> [Vec<f64>; 3] {
    let [mut dq, mut dk, mut dv] = [(); 3].map(|()| vec![0.0; grad.len()]);
    for (token, head) in at.queries() {
        let (query, row) = (at.query(token, head), token * at.heads + head);
        let scores = at.scores(saved.q, saved.k, token, head);
        for (j, score) in at.visible[token].clone().zip(scores) {
            let (key, part) = (at.key(j, head), at.query(j, head));
            let p = (score - saved.lse[row]).exp();
            let dp = dot(&grad[query.clone()], &saved.v[key.clone()]);
            let ds = at.operands.round(p * (dp - delta[row]) * at.scale());
            add_scaled(ds, &saved.k[key], &mut dq[query.clone()]);
            add_scaled(ds, &saved.q[query.clone()], &mut dk[part.clone()]);
            add_scaled(at.operands.round(p), &grad[query.clone()], &mut dv[part]);
        }
    }
    [dq, dk, dv]
}

/// The sum of `parts` `[tokens, heads, head_dim]` over the query heads of each group: `[tokens, kv_heads, head_dim]`.
pub fn sum_groups(at: &Heads<'_>, parts: &[f64]) -> Vec<f64> {
    let group = at.heads / at.kv_heads * at.head_dim;
    let sum = |parts: &[f64]| {
        let mut sum = vec![0.0; at.head_dim];
        parts
            .chunks_exact(at.head_dim)
            .for_each(|part| add_scaled(1.0, part, &mut sum));
        sum
    };
    parts.chunks_exact(group).flat_map(sum).collect()
}
