//! How likely a token was: `y[r] = x[r, token[r]] - log(sum of e^x[r,:])`, the natural logarithm of its softmax. One
//! block per row.
//!
//! A row with a logit that is not finite gives NaN, and so does a token that the row does not have.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::reduce::{block_max, block_sum};
use crate::simple::argmax::key;
use ptx_gen::*;
use std::f32::consts::{LN_2, LOG2_E};

args! {
    /// Arguments of [`LogLikelihood`].
    pub struct LogLikelihoodArgs {
        /// `[rows, n]`: logits
        x: In<f32>,
        /// `[rows]`
        token: In<u32>,
        /// `[rows]`
        y: Out<f32>,
        /// Row length.
        n: u32,
    }
}

/// The kernel.
pub struct LogLikelihood {
    /// Threads of a row's block.
    pub threads: u32,
}

impl KernelDef for LogLikelihood {
    type Args<S: Side> = LogLikelihoodArgs<S>;

    fn name(&self) -> String {
        format!("log_likelihood_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &LogLikelihoodArgs<Shape>) -> Result<Grid, ShapeError> {
        let rows = a.token.try_into().unwrap_or(u32::MAX);
        self.range("the length of token", rows, 1, 1 << 24)?;
        self.range("n", a.n, 1, 1 << 24)?;
        self.length("x", a.x, "rows * n", &[rows, a.n])?;
        self.length("y", a.y, "rows", &[rows])?;
        Ok(Grid::line(rows))
    }

    /// One pass: each thread keeps the largest of its logits, and the sum of exponentials below it.
    fn program<'k>(&self, k: Builder<'k>, a: LogLikelihoodArgs<Dev<'k>>) {
        let (row, warps) = (k.ctaid(), self.threads / 32);
        let x = a.x.row(row, a.n * 4);

        k.section("simple/log_likelihood/statistics", "of each thread's logits the largest, and the sum of e^(x - largest); NaN with one that is not finite");
        let (mut max, mut sum) = (k.var(f32::MIN), k.var(0.0));
        k.for_each(k.tid(), a.n, self.threads, |i| {
            let logit = key(x.at(i).ld());
            let largest = max.get().max(logit);
            let e = |v: F32<'k>| ((v - largest) * LOG2_E).ex2();
            sum.set(sum.get().fma(e(max.get()), e(logit)));
            max.set(largest);
        });

        k.section(
            "simple/log_likelihood/result",
            "y = x[token] - (max + log(sum of e^(x - max))); a thread without logits adds 0",
        );
        let largest = block_max(k, warps, max.get());
        let sum = sum.get() * ((max.get() - largest) * LOG2_E).ex2();
        let all = block_sum(k, warps, sum).lg2().fma(LN_2, largest);
        k.when(k.tid().eq(0), || {
            let token = a.token.at(row).ld();
            let mut y = k.var(f32::NAN);
            k.when(token.lt(a.n), || y.set(x.at(token).ld() - all));
            a.y.at(row).st(y.get());
        });
    }

    fn reference(&self, a: LogLikelihoodArgs<Cpu<'_>>) {
        let rows = a.x.chunks(a.n as usize).zip(a.token);
        for (y, (x, &token)) in a.y.iter_mut().zip(rows) {
            let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = x
                .iter()
                .map(|&x| (f64::from(x) - f64::from(largest)).exp())
                .sum();
            let known = x
                .iter()
                .all(|x| x.is_finite())
                .then(|| x.get(token as usize))
                .flatten();
            *y = known.map_or(f32::NAN, |&x| {
                (f64::from(x) - f64::from(largest) - sum.ln()) as f32
            });
        }
    }
}

impl Variant for LogLikelihood {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Rows of one number, shorter than a warp and than the block, and of more than one step with a partial last one;
        // flat rows and steep ones. Then what is not finite, and a token that there is not.
        let shapes = [
            (1, 1, 1.0),
            (5, 21, 1.0),
            (3, 1000, 30.0),
            (2, 2051, 0.0),
            (7, 4096, 10.0),
            (1, 30_001, 80.0),
        ];
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(Some);
        let plain = shapes
            .into_iter()
            .map(|shape| self.case(seed, shape, None, 0));
        let others = special
            .into_iter()
            .map(|value| self.case(seed, (3, 1500, 10.0), value, 0));
        let no_token = self.case(seed, (3, 1500, 10.0), None, u32::MAX);
        plain.chain(others).chain([no_token]).collect()
    }
}

impl LogLikelihood {
    /// The second row has `value` in it; the last row's token is at least `token`.
    fn case(
        &self,
        seed: u64,
        (rows, n, magnitude): (u32, u32, f32),
        value: Option<f32>,
        token: u32,
    ) -> Case {
        let mut random = Random(seed);
        let mut x: Vec<f32> = (0..rows * n).map(|_| random.unit() * magnitude).collect();
        if let Some(value) = value {
            x[n as usize + 1234] = value;
        }
        let mut tokens: Vec<u32> = (0..rows).map(|_| random.below(n)).collect();
        let last = tokens.len() - 1;
        tokens[last] = tokens[last].max(token);
        Case {
            label: format!("rows={rows} n={n} magnitude={magnitude} value={value:?} token={token}"),
            args: vec![
                CpuArg::F32(x),
                CpuArg::U32(tokens),
                CpuArg::F32(vec![0.0; rows as usize]),
                CpuArg::scalar(n),
            ],
            // As in `train::cross_entropy`: roundings of an exponent of 2 of at most 120, whose terms are small where it is
            // large.
            bound: 2e-6,
        }
    }
}
