//! Test cases of the flash kernels: documents of several lengths, and heads in groups.

use super::common::heads;
use super::{FlashForward, FlashKeys, FlashQueries, SummedHeads};
use crate::harness::{Case, Variant};
use crate::shared::Random;
use crate::train::attention::{causal, forward};
use crate::train::half::buffers::wide;
use ptx_gen::{CpuArg, bf16};

/// The lengths of the documents, the number of query heads, and the number of key-value heads.
struct FlashCase(&'static [usize], u32, u32);

/// The cases have one token, documents that begin and end inside a step, a document that is longer
/// than two tiles, and groups of seven and of six heads.
const CASES: [FlashCase; 4] = [
    FlashCase(&[1], 1, 1),
    FlashCase(&[3, 1, 150, 2, 40], 1, 1),
    FlashCase(&[33], 7, 1),
    FlashCase(&[5, 2], 12, 2),
];

/// The inputs of a case, and the results of the forward pass.
struct Sample {
    label: String,
    starts: Vec<u32>,
    /// The numbers of tokens, query heads and key-value heads.
    sizes: [u32; 3],
    q: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
    grad: Vec<bf16>,
    o: Vec<bf16>,
    lse: Vec<f32>,
}

impl FlashCase {
    fn filled(&self, seed: u64, head_dim: u32) -> Sample {
        let &FlashCase(lengths, query_heads, kv_heads) = self;
        let mut random = Random(seed);
        let first = |i: usize| lengths[..i].iter().sum::<usize>() as u32;
        let starts: Vec<u32> = (0..lengths.len())
            .flat_map(|i| vec![first(i); lengths[i]])
            .collect();
        let mut numbers = |heads: u32, factor: f32| -> Vec<bf16> {
            let n = starts.len() * (heads * head_dim) as usize;
            random
                .units(n)
                .into_iter()
                .map(|x| bf16::from_f32(x * factor))
                .collect()
        };

        // Queries are large, so that the weights of a query differ by powers of ten.
        let q = numbers(query_heads, 4.0);
        let k = numbers(kv_heads, 1.0);
        let v = numbers(kv_heads, 1.0);
        let grad = numbers(query_heads, 1.0);
        let visible = causal(&starts);
        let at = heads(head_dim, query_heads, kv_heads, &visible);
        let (o, lse) = forward(&at, &wide(&q), &wide(&k), &wide(&v));
        let o = o.into_iter().map(|x| bf16::from_f32(x as f32)).collect();
        let lse = lse.into_iter().map(|x| x as f32).collect();
        let label = format!("lengths={lengths:?} heads={query_heads} kv_heads={kv_heads}");
        let sizes = [starts.len() as u32, query_heads, kv_heads];
        Sample {
            label,
            starts,
            sizes,
            q,
            k,
            v,
            grad,
            o,
            lse,
        }
    }
}

/// Returns the cases of a kernel. `args` returns the arguments for a sample, up to the sizes.
fn cases(seed: u64, head_dim: u32, bound: f64, args: impl Fn(&Sample) -> Vec<CpuArg>) -> Vec<Case> {
    let case = |case: &FlashCase| {
        let of = case.filled(seed, head_dim);
        let args = args(&of)
            .into_iter()
            .chain(of.sizes.map(CpuArg::scalar))
            .collect();
        Case {
            label: of.label,
            args,
            bound,
        }
    };
    CASES.iter().map(case).collect()
}

/// Returns the arguments for queries, keys, values and the first tokens of documents.
fn inputs(of: &Sample) -> Vec<CpuArg> {
    let [q, k, v] = [&of.q, &of.k, &of.v].map(|numbers| CpuArg::Bf16(numbers.clone()));
    vec![q, k, v, CpuArg::U32(of.starts.clone())]
}

fn singles(n: usize) -> CpuArg {
    CpuArg::F32(vec![0.0; n])
}

/// The bound of the forward pass.
///
/// A weight is rounded relative to the maximum so far, but in the reference relative to the final
/// one. The two differ by up to 2^-8 of the weight, in both directions. The `lse` is as exact as
/// sums in `f32`, which `kernels/tests/it/flash.rs` tests.
const FORWARD: f64 = 4e-3;

/// The bound of the backward pass.
///
/// Weights and `ds` are rounded like the reference. A few of them are next to a tie and become the
/// other neighbor, up to 2^-7 away. A result is a sum of many terms, of which rarely two are such.
const BACKWARD: f64 = 2e-3;

impl Variant for FlashForward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(seed, self.head_dim, FORWARD, |of| {
            let outputs = [
                CpuArg::Bf16(vec![bf16(0); of.o.len()]),
                singles(of.lse.len()),
            ];
            inputs(of).into_iter().chain(outputs).collect()
        })
    }
}

impl Variant for FlashQueries {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(seed, self.head_dim, BACKWARD, |of| {
            // Any `o` tests the kernel. With the true one, the gradients of a document with one
            // token are nothing but rounding errors.
            let o = Random(!seed)
                .units(of.o.len())
                .into_iter()
                .map(bf16::from_f32)
                .collect();
            let saved = [CpuArg::Bf16(o), CpuArg::F32(of.lse.clone())];
            let outputs = [singles(of.lse.len()), singles(of.q.len())];
            let all = inputs(of)
                .into_iter()
                .chain(saved)
                .chain([CpuArg::Bf16(of.grad.clone())]);
            all.chain(outputs).collect()
        })
    }
}

impl Variant for FlashKeys {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(seed, self.head_dim, BACKWARD, |of| {
            // Any `D` tests the kernel, as in the cases of the queries.
            let delta = CpuArg::F32(Random(!seed).units(of.lse.len()));
            let given = [
                CpuArg::F32(of.lse.clone()),
                CpuArg::Bf16(of.grad.clone()),
                delta,
            ];
            let len = match self.parts {
                SummedHeads::Heads => of.q.len(),
                SummedHeads::Groups => of.k.len(),
            };
            let outputs = [singles(len), singles(len)];
            inputs(of).into_iter().chain(given).chain(outputs).collect()
        })
    }
}
