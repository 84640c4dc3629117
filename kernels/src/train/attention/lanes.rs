//! A head distributed over the lanes of a warp, and the test cases of the kernels of attention.

use super::reference::{Heads, causal, forward};
use crate::shared::reduce::warp_sum;
use crate::shared::{Contract, Random};
use crate::train::Storage;
use crate::train::buffers::wide;
use ptx_gen::*;
use std::ops::Range;

/// A head in the lanes of a warp: lane `l` has the dimensions `l`, `l + 32` and so on.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'k> {
    pub(super) k: Builder<'k>,
    pub(super) head_dim: u32,
}

impl<'k> Lanes<'k> {
    /// Returns the dimensions of this lane, each with a predicate that is true inside the head.
    fn dims(self) -> impl Iterator<Item = (U32<'k>, Pred<'k>)> {
        let dims = (0..self.head_dim.div_ceil(32)).map(move |i| self.k.lane() + 32 * i);
        dims.map(move |dim| (dim, dim.lt(self.head_dim)))
    }

    /// Loads the elements of this lane, with zeros past the end of the head.
    pub(super) fn load<A: Loads>(self, head: Ptr<'k, f32, A>) -> Vec<F32<'k>> {
        let load = |(dim, inside): (U32<'k>, Pred<'k>)| {
            let mut x = self.k.var(0.0);
            head.at(dim).ld_if(inside, &mut x);
            x.get()
        };
        self.dims().map(load).collect()
    }

    /// Stores the elements of this lane.
    pub(super) fn store(
        self,
        head: Ptr<'k, f32, WriteOnly>,
        numbers: impl IntoIterator<Item = F32<'k>>,
    ) {
        for ((dim, inside), x) in self.dims().zip(numbers) {
            self.k.when(inside, || head.at(dim).st(x));
        }
    }

    /// Returns sums of zero for the elements of this lane.
    pub(super) fn zeros(self) -> Vec<Var<'k, f32>> {
        self.dims().map(|_| self.k.var(0.0)).collect()
    }

    /// Returns the dot product of two heads, in every lane.
    pub(super) fn dot(self, x: &[F32<'k>], y: &[F32<'k>]) -> F32<'k> {
        let mut sum = self.k.var(0.0);
        for (&x, &y) in x.iter().zip(y) {
            sum.fma(x, y);
        }
        warp_sum(sum.get())
    }

    /// Returns `1 / sqrt(head_dim)`.
    pub(super) fn scale(self) -> f32 {
        scale(self.head_dim)
    }
}

/// Adds `factor x[i]` to each `sum[i]`.
pub(super) fn add<'k>(sum: &mut [Var<'k, f32>], factor: F32<'k>, x: &[F32<'k>]) {
    for (sum, &x) in sum.iter_mut().zip(x) {
        sum.fma(factor, x);
    }
}

fn scale(head_dim: u32) -> f32 {
    f64::from(head_dim).sqrt().recip() as f32
}

/// Checks the parts of the launch contract that all kernels of attention share.
pub(super) fn check<K: Contract>(
    kernel: &K,
    head_dim: u32,
    heads: u32,
    kv_heads: u32,
) -> Result<(), ShapeError> {
    kernel.require(
        (2..=256).contains(&head_dim) && head_dim.is_multiple_of(2),
        || format!("the kernel's head_dim is {head_dim}, must be an even number up to 256"),
    )?;
    kernel.range("kv_heads", kv_heads, 1, 1 << 16)?;
    kernel.range("heads", heads, 1, 1 << 16)?;
    kernel.multiple("heads", heads, kv_heads)
}

/// Returns the heads for the reference.
pub(super) fn heads(
    head_dim: u32,
    heads: u32,
    kv_heads: u32,
    visible: &[Range<usize>],
) -> Heads<'_> {
    Heads::of_case(head_dim, heads, kv_heads, visible, Storage::F64)
}

/// The inputs of a case, and the results of the reference.
pub(super) struct Sample {
    pub(super) label: String,
    pub(super) starts: Vec<u32>,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    pub(super) grad: Vec<f32>,
    pub(super) o: Vec<f32>,
    pub(super) lse: Vec<f32>,
}

impl Sample {
    /// Returns all samples: one token, documents of several lengths with groups of heads, and a
    /// document that is longer than a warp.
    pub(super) fn all(seed: u64, head_dim: u32) -> Vec<Sample> {
        let documents: [(&[usize], u32, u32); 3] =
            [(&[1], 1, 1), (&[3, 1, 6], 6, 2), (&[5, 40], 2, 2)];
        documents
            .into_iter()
            .map(|(lengths, heads, kv)| Sample::new(seed, head_dim, lengths, heads, kv))
            .collect()
    }

    fn new(seed: u64, head_dim: u32, lengths: &[usize], query_heads: u32, kv_heads: u32) -> Sample {
        let mut random = Random(seed);
        let first = |i: usize| lengths[..i].iter().sum::<usize>() as u32;
        let starts: Vec<u32> = (0..lengths.len())
            .flat_map(|i| vec![first(i); lengths[i]])
            .collect();
        let mut numbers = |heads: u32| random.units(starts.len() * (heads * head_dim) as usize);
        let q = numbers(query_heads);
        let k = numbers(kv_heads);
        let v = numbers(kv_heads);
        let grad = numbers(query_heads);
        let visible = causal(&starts);
        let at = heads(head_dim, query_heads, kv_heads, &visible);
        let (o, lse) = forward(&at, &wide(&q), &wide(&k), &wide(&v));
        let [o, lse] = [o, lse].map(|numbers| numbers.into_iter().map(|x| x as f32).collect());
        let label = format!("lengths={lengths:?} heads={query_heads} kv_heads={kv_heads}");
        Sample {
            label,
            starts,
            heads: query_heads,
            kv_heads,
            q,
            k,
            v,
            grad,
            o,
            lse,
        }
    }
}
