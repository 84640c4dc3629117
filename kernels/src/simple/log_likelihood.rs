//! The log-likelihood of tokens: `y[r] = x[r, token[r]] - log(sum of e^x[r,:])`, the natural
//! logarithm of the softmax. One block processes one row.
//!
//! The result is NaN if a logit of the row is not finite, or if the row does not contain the token.

use crate::harness::{Case, Variant};
use crate::shared::reduce::{block_max, block_sum};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::argmax::key;
use ptx_gen::*;
use std::f32::consts::{LN_2, LOG2_E};

args! {
    /// Arguments of [`LogLikelihood`].
    pub struct LogLikelihoodArgs {
        /// `[rows, n]`: the logits
        x: In<f32>,
        /// `[rows]`: the token of each row
        token: In<u32>,
        /// `[rows]`: the log-likelihood of each token
        y: Out<f32>,
        /// The row length.
        n: u32,
    }
}

/// Kernel that computes the log-likelihood of one token per row.
pub struct LogLikelihood {
    /// The number of threads of a row's block.
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
        let &LogLikelihoodArgs { n, .. } = a;
        let rows = a.token.try_into().unwrap_or(u32::MAX);
        self.range("the length of token", rows, 1, 1 << 24)?;
        self.range("n", n, 1, 1 << 24)?;
        check_lengths! { self, a:
            x == rows * n,
            y == rows,
        }
        Ok(Grid::line(rows))
    }

    /// Emits a single pass over the row. Each thread keeps its largest logit and the sum of the
    /// exponentials relative to it (online softmax, Milakov and Gimelshein, 2018,
    /// arXiv:1805.02867).
    fn program<'k>(&self, k: Builder<'k>, a: LogLikelihoodArgs<Dev<'k>>) {
        let row = k.ctaid();
        let warps = self.threads / 32;
        let x = a.x.row(row, a.n * 4);

        k.section(
            "simple/log_likelihood/statistics",
            "per thread: largest logit and sum of e^(x - largest); NaN if a logit is not finite",
        );
        let mut max = k.var(f32::MIN);
        let mut sum = k.var(0.0);
        k.for_each(k.tid(), a.n, self.threads, |i| {
            let logit = key(x.at(i).ld());
            let largest = max.get().max(logit);
            let e = |v: F32<'k>| ((v - largest) * LOG2_E).ex2();
            let so_far = sum.get();
            let rescaled = e(max.get());
            let term = e(logit);
            sum.set(so_far.fma(rescaled, term));
            max.set(largest);
        });

        k.section(
            "simple/log_likelihood/result",
            "y = x[token] - (max + log(sum of e^(x - max))); a thread without logits adds 0",
        );
        let largest = block_max(k, warps, max.get());
        let own = sum.get();
        let rescale = ((max.get() - largest) * LOG2_E).ex2();
        let sum = block_sum(k, warps, own * rescale);
        let all = sum.lg2().fma(LN_2, largest);
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

            // NaN reports a logit that is not finite, or a token outside the vocabulary.
            let finite = x.iter().all(|x| x.is_finite());
            *y = match x.get(token as usize) {
                Some(&x) if finite => (f64::from(x) - f64::from(largest) - sum.ln()) as f32,
                _ => f32::NAN,
            };
        }
    }
}

impl Variant for LogLikelihood {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Rows of one element, shorter than a warp, shorter than the block, and of more than one
        // step with a partial last one. Flat rows and steep ones. Then values that are not finite,
        // and a token outside of the row.
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
    /// Creates a case. The second row contains `value`, and the token of the last row is at least
    /// `token`.
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
            // The bound of `train::cross_entropy`: rounding of an exponent of 2 of at most 120,
            // whose terms are small where it is large.
            bound: 2e-6,
        }
    }
}
