//! The formulas in `f64`, which are the reference of the kernels.

use crate::train::Storage;
use crate::train::products::{add_scaled, dot};
use std::ops::Range;

/// The shape of attention, the visible tokens, and the type of its operands.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The number of query heads.
    pub heads: usize,
    /// The number of key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// The number of dimensions of a head.
    pub head_dim: usize,
    /// `[tokens]`: the tokens that each token attends to, for example from [`causal`].
    pub visible: &'a [Range<usize>],
    /// The type of the operands of matmuls.
    pub operands: Storage,
}

/// The tensors of the forward pass that the backward pass reads.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// `[tokens, heads, head_dim]`: the rotated queries.
    pub q: &'a [f64],
    /// `[tokens, kv_heads, head_dim]`: the rotated keys.
    pub k: &'a [f64],
    /// `[tokens, kv_heads, head_dim]`: the values.
    pub v: &'a [f64],
    /// `[tokens, heads]`: natural logarithms of the sums of exponentials.
    pub lse: &'a [f64],
}

/// Returns the tokens that each token sees: itself and the earlier tokens of its document.
///
/// `starts` `[tokens]` has the index of the first token of each token's document.
///
/// # Example
///
/// Two documents with two tokens and one token:
///
/// ```
/// use warpwright_kernels::train::attention::causal;
///
/// assert_eq!(causal(&[0, 0, 2]), [0..1, 0..2, 2..3]);
/// ```
pub fn causal(starts: &[u32]) -> Vec<Range<usize>> {
    starts
        .iter()
        .enumerate()
        .map(|(i, &start)| start as usize..i + 1)
        .collect()
}

impl<'a> Heads<'a> {
    /// Creates the heads of a kernel's case.
    pub(crate) fn of_case(
        head_dim: u32,
        heads: u32,
        kv_heads: u32,
        visible: &'a [Range<usize>],
        operands: Storage,
    ) -> Heads<'a> {
        Heads {
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            head_dim: head_dim as usize,
            visible,
            operands,
        }
    }
}

impl Heads<'_> {
    /// Returns the range of a token's head in `[tokens, heads, head_dim]`.
    fn query(&self, token: usize, head: usize) -> Range<usize> {
        let first = (token * self.heads + head) * self.head_dim;
        first..first + self.head_dim
    }

    /// Returns the range of a query head's keys or values in `[tokens, kv_heads, head_dim]`.
    fn key(&self, token: usize, head: usize) -> Range<usize> {
        let first = (token * self.kv_heads + head * self.kv_heads / self.heads) * self.head_dim;
        first..first + self.head_dim
    }

    fn scale(&self) -> f64 {
        (self.head_dim as f64).sqrt().recip()
    }

    /// Returns the token and the head of every query.
    fn queries(&self) -> impl Iterator<Item = (usize, usize)> {
        let heads = self.heads;
        (0..self.visible.len()).flat_map(move |token| (0..heads).map(move |head| (token, head)))
    }

    /// Returns the scores `s` of a query and all tokens that it sees.
    fn scores(&self, q: &[f64], k: &[f64], token: usize, head: usize) -> Vec<f64> {
        let q = &q[self.query(token, head)];
        self.visible[token]
            .clone()
            .map(|j| dot(q, &k[self.key(j, head)]) * self.scale())
            .collect()
    }
}

/// Returns `o` `[tokens, heads, head_dim]` and `lse` `[tokens, heads]`.
///
/// `q` is `[tokens, heads, head_dim]`. `k` and `v` are `[tokens, kv_heads, head_dim]`.
pub fn forward(at: &Heads<'_>, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut o = vec![0.0; q.len()];
    let mut lse = Vec::new();
    for (token, head) in at.queries() {
        let scores = at.scores(q, k, token, head);
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let o = &mut o[at.query(token, head)];
        for (j, &weight) in at.visible[token].clone().zip(&weights) {
            // Only the numerator is rounded, like the operand of a kernel. The denominator is not.
            let numerator = at.operands.round(weight);
            add_scaled(numerator, &v[at.key(j, head)], o);
        }

        for o in o {
            *o /= sum;
        }

        lse.push(max + sum.ln());
    }

    (o, lse)
}

/// Returns `D` `[tokens, heads]` of `do` and `o` `[tokens, heads, head_dim]`.
pub fn delta(at: &Heads<'_>, grad: &[f64], o: &[f64]) -> Vec<f64> {
    grad.chunks_exact(at.head_dim)
        .zip(o.chunks_exact(at.head_dim))
        .map(|(grad, o)| dot(grad, o))
        .collect()
}

/// Returns `dq`, `dk` and `dv` for each query head, all `[tokens, heads, head_dim]`.
///
/// `grad` is `do` with the same shape, and `delta` is `D` `[tokens, heads]`.
pub fn backward(at: &Heads<'_>, saved: &Saved<'_>, grad: &[f64], delta: &[f64]) -> [Vec<f64>; 3] {
    let [mut dq, mut dk, mut dv] = [(); 3].map(|()| vec![0.0; grad.len()]);
    for (token, head) in at.queries() {
        let query = at.query(token, head);
        let row = token * at.heads + head;
        let scores = at.scores(saved.q, saved.k, token, head);
        for (j, score) in at.visible[token].clone().zip(scores) {
            let key = at.key(j, head);
            let summand = at.query(j, head);

            // The weights follow from `lse`, so the forward pass does not store them.
            let p = (score - saved.lse[row]).exp();
            let grad = &grad[query.clone()];
            let dp = dot(grad, &saved.v[key.clone()]);
            let ds = p * (dp - delta[row]) * at.scale();

            // The operands of the kernels' matmuls are rounded.
            let ds = at.operands.round(ds);
            let p = at.operands.round(p);
            let q = &saved.q[query.clone()];
            add_scaled(ds, &saved.k[key], &mut dq[query.clone()]);
            add_scaled(ds, q, &mut dk[summand.clone()]);
            add_scaled(p, grad, &mut dv[summand]);
        }
    }
    [dq, dk, dv]
}

/// Returns the sums of `parts` `[tokens, heads, head_dim]` over the query heads of each group, as
/// `[tokens, kv_heads, head_dim]`.
pub fn sum_groups(at: &Heads<'_>, parts: &[f64]) -> Vec<f64> {
    let group = at.heads / at.kv_heads * at.head_dim;
    let sum = |parts: &[f64]| {
        let mut sum = vec![0.0; at.head_dim];
        for part in parts.chunks_exact(at.head_dim) {
            add_scaled(1.0, part, &mut sum);
        }
        sum
    };
    parts.chunks_exact(group).flat_map(sum).collect()
}
