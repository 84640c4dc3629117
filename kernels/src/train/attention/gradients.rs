//! The backward pass of attention within documents, in `f32` without tensor cores.
//!
//! One kernel computes `dq` by queries. Another computes `dk` and `dv` by keys and query heads, and
//! a third sums them over groups. No two blocks add to one element, so equal inputs give equal
//! bits.

use super::lanes::{Lanes, Sample, add, check, heads};
use super::reference::{Saved, backward, causal, delta, sum_groups};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::buffers::{narrow, wide};
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`QueryGradients`].
    pub struct QueryGradientsArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<f32>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`: the outputs of the forward pass
        o: In<f32>,
        /// `[tokens, heads]`: the logarithms of the forward pass
        lse: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of `o`
        grad: In<f32>,
        /// `[tokens, heads]`: `D`, which [`KeyGradients`] reads
        delta: Out<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of the rotated queries
        dq: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}

/// Kernel for `D` and `dq`, with a warp per query. Its references are [`delta`] and [`backward`].
pub struct QueryGradients {
    /// The number of dimensions of a head, an even number up to 256.
    pub head_dim: u32,
}

impl KernelDef for QueryGradients {
    type Args<S: Side> = QueryGradientsArgs<S>;

    fn name(&self) -> String {
        format!("train_attention_dq_{}", self.head_dim)
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &QueryGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &QueryGradientsArgs { heads, .. } = a;
        check(self, self.head_dim, heads, a.kv_heads)?;
        let tokens = a.starts as u32;
        let dim = self.head_dim;
        self.length("q", a.q, "tokens * heads * head_dim", &[tokens, heads, dim])?;
        self.length("o", a.o, "tokens * heads * head_dim", &[tokens, heads, dim])?;
        self.length(
            "grad",
            a.grad,
            "tokens * heads * head_dim",
            &[tokens, heads, dim],
        )?;
        self.length(
            "dq",
            a.dq,
            "tokens * heads * head_dim",
            &[tokens, heads, dim],
        )?;
        self.length(
            "k",
            a.k,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, dim],
        )?;
        self.length(
            "v",
            a.v,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, dim],
        )?;
        check_lengths! { self, a:
            lse == tokens * heads,
            delta == tokens * heads,
        }
        Ok(Grid::line(tokens * heads))
    }

    fn program<'k>(&self, k: Builder<'k>, a: QueryGradientsArgs<Dev<'k>>) {
        let query = k.ctaid();
        let lanes = Lanes {
            k,
            head_dim: self.head_dim,
        };
        let token = query / a.heads;
        let head = query % a.heads;
        let kv_head = head / (a.heads / a.kv_heads);
        let at = query * self.head_dim;
        let [q, o, grad] = [a.q, a.o, a.grad].map(|x| lanes.load(x.at(at)));
        let lse = a.lse.at(query).ld();
        let delta = lanes.dot(&grad, &o);
        k.when(k.lane().eq(0), || a.delta.at(query).st(delta));
        let mut dq = lanes.zeros();
        k.for_each(a.starts.at(token).ld(), token + 1, 1, |j| {
            let at = (j * a.kv_heads + kv_head) * self.head_dim;
            let key = lanes.load(a.k.at(at));
            let value = lanes.load(a.v.at(at));
            // The saved logarithm replaces a second pass for the maximum and the sum.
            let score = lanes.dot(&q, &key) * lanes.scale();
            let p = ((score - lse) * LOG2_E).ex2();
            let dp = lanes.dot(&grad, &value);
            let ds = p * (dp - delta) * lanes.scale();
            add(&mut dq, ds, &key);
        });
        lanes.store(a.dq.at(at), dq.iter().map(Var::get));
    }

    fn reference(&self, a: QueryGradientsArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let [q, k, v, lse, grad] = [a.q, a.k, a.v, a.lse, a.grad].map(wide);
        let d = delta(&at, &grad, &wide(a.o));
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

args! {
    /// Arguments of [`KeyGradients`].
    pub struct KeyGradientsArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<f32>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's
        starts: In<u32>,
        /// `[tokens, heads]`: the logarithms of the forward pass
        lse: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of `o`
        grad: In<f32>,
        /// `[tokens, heads]`: `D`, the result of [`QueryGradients`]
        delta: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of the rotated keys from each query head
        dk: Out<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of the values from each query head
        dv: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}

/// Kernel for the `dk` and `dv` of each query head, with a warp per key and query head. Its
/// reference is [`backward`].
pub struct KeyGradients {
    /// The number of dimensions of a head, an even number up to 256.
    pub head_dim: u32,
}

impl KernelDef for KeyGradients {
    type Args<S: Side> = KeyGradientsArgs<S>;

    fn name(&self) -> String {
        format!("train_attention_dkv_{}", self.head_dim)
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &KeyGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &KeyGradientsArgs { heads, .. } = a;
        check(self, self.head_dim, heads, a.kv_heads)?;
        let tokens = a.starts as u32;
        let dim = self.head_dim;
        self.length("q", a.q, "tokens * heads * head_dim", &[tokens, heads, dim])?;
        self.length(
            "grad",
            a.grad,
            "tokens * heads * head_dim",
            &[tokens, heads, dim],
        )?;
        self.length(
            "dk",
            a.dk,
            "tokens * heads * head_dim",
            &[tokens, heads, dim],
        )?;
        self.length(
            "dv",
            a.dv,
            "tokens * heads * head_dim",
            &[tokens, heads, dim],
        )?;
        self.length(
            "k",
            a.k,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, dim],
        )?;
        self.length(
            "v",
            a.v,
            "tokens * kv_heads * head_dim",
            &[tokens, a.kv_heads, dim],
        )?;
        check_lengths! { self, a:
            lse == tokens * heads,
            delta == tokens * heads,
        }
        Ok(Grid {
            y: heads,
            ..Grid::line(tokens)
        })
    }

    /// Generates the kernel.
    ///
    /// It goes through all later tokens, because it does not know where the document ends. A token
    /// sees the key if the token's document begins at the key or before it.
    fn program<'k>(&self, k: Builder<'k>, a: KeyGradientsArgs<Dev<'k>>) {
        let token = k.ctaid();
        let head = k.ctaid_y();
        let lanes = Lanes {
            k,
            head_dim: self.head_dim,
        };
        let kv_head = head / (a.heads / a.kv_heads);
        let at = (token * a.kv_heads + kv_head) * self.head_dim;
        let key = lanes.load(a.k.at(at));
        let value = lanes.load(a.v.at(at));
        let mut dk = lanes.zeros();
        let mut dv = lanes.zeros();
        k.for_each(token, k.nctaid(), 1, |i| {
            let query = i * a.heads + head;
            let [q, grad] = [a.q, a.grad].map(|x| lanes.load(x.at(query * self.head_dim)));
            let score = lanes.dot(&q, &key) * lanes.scale();
            let lse = a.lse.at(query).ld();
            let p = ((score - lse) * LOG2_E).ex2();

            // A token of a later document gets the weight 0 and adds nothing.
            let p = a.starts.at(i).ld().le(token).select(p, 0.0);
            let dp = lanes.dot(&grad, &value);
            let delta = a.delta.at(query).ld();
            let ds = p * (dp - delta) * lanes.scale();
            add(&mut dk, ds, &q);
            add(&mut dv, p, &grad);
        });
        let at = (token * a.heads + head) * self.head_dim;
        lanes.store(a.dk.at(at), dk.iter().map(Var::get));
        lanes.store(a.dv.at(at), dv.iter().map(Var::get));
    }

    fn reference(&self, a: KeyGradientsArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let [q, k, v, lse, grad, delta] = [a.q, a.k, a.v, a.lse, a.grad, a.delta].map(wide);
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
        narrow(&dk, a.dk);
        narrow(&dv, a.dv);
    }
}

args! {
    /// Arguments of [`SumGroups`].
    pub struct SumGroupsArgs {
        /// `[tokens, heads, head_dim]`: a gradient of keys or values from each query head
        parts: In<f32>,
        /// `[tokens, kv_heads, head_dim]`: the sums over groups
        sum: Out<f32>,
        /// The number of query heads of a group.
        group: u32,
        /// The number of dimensions of a head.
        head_dim: u32,
        /// The number of elements of `sum`.
        n: u32,
    }
}

/// Kernel that sums over the query heads of each group, with an element per thread. Its reference
/// is [`sum_groups`]. The order of the heads is the order of the additions.
pub struct SumGroups;

const THREADS: u32 = 256;

impl KernelDef for SumGroups {
    type Args<S: Side> = SumGroupsArgs<S>;

    fn name(&self) -> String {
        "train_sum_groups".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SumGroupsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SumGroupsArgs { group, n, .. } = a;
        self.range("group", group, 1, 1 << 16)?;
        self.range("head_dim", a.head_dim, 1, 1 << 16)?;
        self.multiple("n", n, a.head_dim)?;
        check_lengths! { self, a:
            parts == n * group,
            sum == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SumGroupsArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let head = i / a.head_dim;
            let dim = i % a.head_dim;
            let first = a.parts.at(head * a.group * a.head_dim + dim);
            let mut sum = k.var(0.0);
            k.for_each(0, a.group, 1, |j| {
                sum.set(sum.get() + first.at(j * a.head_dim).ld())
            });
            a.sum.at(i).st(sum.get());
        });
    }

    fn reference(&self, a: SumGroupsArgs<Cpu<'_>>) {
        let at = heads(a.head_dim, a.group, 1, &[]);
        narrow(&sum_groups(&at, &wide(a.parts)), a.sum);
    }
}

/// The bound of two dot products of `head_dim` terms, a power, and a sum of up to 40 terms.
const BOUND: f64 = 3e-6;

impl Variant for QueryGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |of: Sample| {
            let args = vec![
                CpuArg::F32(of.q),
                CpuArg::F32(of.k),
                CpuArg::F32(of.v),
                CpuArg::U32(of.starts),
                CpuArg::F32(of.o),
                CpuArg::F32(of.lse.clone()),
                CpuArg::F32(of.grad.clone()),
                CpuArg::F32(vec![0.0; of.lse.len()]),
                CpuArg::F32(vec![0.0; of.grad.len()]),
                CpuArg::scalar(of.heads),
                CpuArg::scalar(of.kv_heads),
            ];
            Case {
                label: of.label,
                args,
                bound: BOUND,
            }
        };
        Sample::all(seed, self.head_dim)
            .into_iter()
            .map(case)
            .collect()
    }
}

impl Variant for KeyGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |of: Sample| {
            // Any `D` tests the kernel. With the true one, the gradients of a document with one
            // token are nothing but rounding errors.
            let delta = Random(!seed).units(of.lse.len());
            let empty = || CpuArg::F32(vec![0.0; of.grad.len()]);
            let dk = empty();
            let dv = empty();
            let args = vec![
                CpuArg::F32(of.q),
                CpuArg::F32(of.k),
                CpuArg::F32(of.v),
                CpuArg::U32(of.starts),
                CpuArg::F32(of.lse),
                CpuArg::F32(of.grad),
                CpuArg::F32(delta),
                dk,
                dv,
                CpuArg::scalar(of.heads),
                CpuArg::scalar(of.kv_heads),
            ];
            Case {
                label: of.label,
                args,
                bound: BOUND,
            }
        };
        Sample::all(seed, self.head_dim)
            .into_iter()
            .map(case)
            .collect()
    }
}

impl Variant for SumGroups {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(heads, group, head_dim): (u32, u32, u32)| {
            let n = heads * head_dim;
            let args = vec![
                CpuArg::F32(Random(seed).units((n * group) as usize)),
                CpuArg::F32(vec![0.0; n as usize]),
                CpuArg::scalar(group),
                CpuArg::scalar(head_dim),
                CpuArg::scalar(n),
            ];
            // There are as many roundings as heads in a group.
            Case {
                label: format!("heads={heads} group={group} head_dim={head_dim}"),
                args,
                bound: 4e-7,
            }
        };
        [(1, 1, 2), (10, 3, 16), (6, 6, 128)].map(case).into()
    }
}
