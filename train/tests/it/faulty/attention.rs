//! Faulty kernels of attention, for heads of at most 32 dimensions: a lane has one.

use std::f32::consts::{LN_2, LOG2_E};

use ptx_gen::{Builder, Dev, F32, Loads, Ptr, ReadOnly, U32, WriteOnly};
use warpwright_kernels::shared::reduce::warp_sum;
use warpwright_kernels::train::attention::{
    DocumentAttention, DocumentAttentionArgs, KeyGradients, KeyGradientsArgs, QueryGradients,
    QueryGradientsArgs,
};

use super::Program;

/// A token also sees the next one of its document.
pub(super) struct Forward;

/// What the backward does.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Backward {
    /// `D` is zero.
    NoDelta,
    /// `ds` without `1 / sqrt(head_dim)`
    Unscaled,
    /// A token also sees the next one of its document.
    SeesNext,
}

/// A head in the lanes of a warp.
struct Lanes<'k> {
    k: Builder<'k>,
    head_dim: u32,
}

impl<'k> Lanes<'k> {
    fn new(k: Builder<'k>, head_dim: u32) -> Lanes<'k> {
        assert!(head_dim <= 32, "a lane has one dimension");
        Lanes { k, head_dim }
    }

    fn load<A: Loads>(&self, from: Ptr<'k, f32, A>, head: U32<'k>) -> F32<'k> {
        let mut x = self.k.var(0.0);
        from.at(head * self.head_dim + self.k.lane())
            .ld_if(self.k.lane().lt(self.head_dim), &mut x);
        x.get()
    }

    fn store(&self, to: Ptr<'k, f32, WriteOnly>, head: U32<'k>, x: F32<'k>) {
        let lane = self.k.lane();
        self.k.when(lane.lt(self.head_dim), || {
            to.at(head * self.head_dim + lane).st(x)
        });
    }

    /// `q k^T / sqrt(head_dim)`
    fn score(&self, q: F32<'k>, key: F32<'k>) -> F32<'k> {
        warp_sum(q * key) * self.scale()
    }

    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }
}

/// The token after the last that a token of so many sees, if it sees one more than it should.
fn end<'k>(starts: Ptr<'k, u32, ReadOnly>, token: U32<'k>, tokens: U32<'k>) -> U32<'k> {
    let next = (token + 1).min(tokens - 1);
    let sees = next.gt(token) & starts.at(next).ld().le(token);
    token + 1 + sees.select(1u32, 0u32)
}

fn exp(x: F32<'_>) -> F32<'_> {
    (x * LOG2_E).ex2()
}

impl Program<DocumentAttention> for Forward {
    fn program<'k>(
        &self,
        of: &DocumentAttention,
        k: Builder<'k>,
        a: DocumentAttentionArgs<Dev<'k>>,
    ) {
        let (query, lanes) = (k.ctaid(), Lanes::new(k, of.head_dim));
        let (token, head) = (query / a.heads, query % a.heads);
        let kv_head = head / (a.heads / a.kv_heads);
        let q = lanes.load(a.q, query);
        let (mut max, mut sum, mut o) = (k.var(f32::NEG_INFINITY), k.var(0.0), k.var(0.0));
        let end = end(a.starts, token, k.nctaid() / a.heads);
        k.for_each(a.starts.at(token).ld(), end, 1, |j| {
            let key = j * a.kv_heads + kv_head;
            let score = lanes.score(q, lanes.load(a.k, key));
            let new = max.get().max(score);
            let (kept, weight) = (exp(max.get() - new), exp(score - new));
            sum.set(sum.get().fma(kept, weight));
            o.set(o.get().fma(kept, weight * lanes.load(a.v, key)));
            max.set(new);
        });
        lanes.store(a.o, query, o.get() / sum.get());
        k.when(k.lane().eq(0), || {
            a.lse.at(query).st(sum.get().lg2().fma(LN_2, max.get()))
        });
    }
}

impl Program<QueryGradients> for Backward {
    fn program<'k>(&self, of: &QueryGradients, k: Builder<'k>, a: QueryGradientsArgs<Dev<'k>>) {
        let (query, lanes) = (k.ctaid(), Lanes::new(k, of.head_dim));
        let (token, head) = (query / a.heads, query % a.heads);
        let kv_head = head / (a.heads / a.kv_heads);
        let [q, o, grad] = [a.q, a.o, a.grad].map(|x| lanes.load(x, query));
        let (lse, delta) = (a.lse.at(query).ld(), warp_sum(grad * o));
        let delta = if *self == Backward::NoDelta {
            k.val(0.0)
        } else {
            delta
        };
        k.when(k.lane().eq(0), || a.delta.at(query).st(delta));
        let end = match self {
            Backward::SeesNext => end(a.starts, token, k.nctaid() / a.heads),
            _ => token + 1,
        };
        let mut dq = k.var(0.0);
        k.for_each(a.starts.at(token).ld(), end, 1, |j| {
            let key = j * a.kv_heads + kv_head;
            let (key, value) = (lanes.load(a.k, key), lanes.load(a.v, key));
            let p = exp(lanes.score(q, key) - lse);
            dq.fma(
                p * (warp_sum(grad * value) - delta) * self.scale(&lanes),
                key,
            );
        });
        lanes.store(a.dq, query, dq.get());
    }
}

impl Program<KeyGradients> for Backward {
    fn program<'k>(&self, of: &KeyGradients, k: Builder<'k>, a: KeyGradientsArgs<Dev<'k>>) {
        let (token, head, lanes) = (k.ctaid(), k.ctaid_y(), Lanes::new(k, of.head_dim));
        let at = token * a.kv_heads + head / (a.heads / a.kv_heads);
        let (key, value) = (lanes.load(a.k, at), lanes.load(a.v, at));
        let (mut dk, mut dv) = (k.var(0.0), k.var(0.0));

        // The token before sees this one too if they are of one document.
        let before = token - token.min(1);
        let also = token.gt(0) & a.starts.at(token).ld().le(before);
        let first = match self {
            Backward::SeesNext => also.select(before, token),
            _ => token,
        };
        k.for_each(first, k.nctaid(), 1, |i| {
            let query = i * a.heads + head;
            let (q, grad) = (lanes.load(a.q, query), lanes.load(a.grad, query));
            let p = exp(lanes.score(q, key) - a.lse.at(query).ld());
            let p = a.starts.at(i).ld().le(token).select(p, 0.0);
            dk.fma(
                p * (warp_sum(grad * value) - a.delta.at(query).ld()) * self.scale(&lanes),
                q,
            );
            dv.fma(p, grad);
        });
        lanes.store(a.dk, token * a.heads + head, dk.get());
        lanes.store(a.dv, token * a.heads + head, dv.get());
    }
}

impl Backward {
    fn scale(self, lanes: &Lanes<'_>) -> f32 {
        if self == Backward::Unscaled {
            1.0
        } else {
            lanes.scale()
        }
    }
}
