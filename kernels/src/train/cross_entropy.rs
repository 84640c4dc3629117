//! The loss of next tokens: the cross-entropy of the softmax of logits, and its gradient.
//!
//! ```text
//! lse  = log sum e^l
//! loss = sum (lse - l[label]) / n
//! dl   = (p - onehot(label)) / n,  p = e^(l - lse)
//! ```
//!
//! The sum is over the tokens that have a label. `n` counts them over all micro-batches of an
//! optimizer step, so the functions leave the factor `1 / n` to the caller. The row of a token does
//! not depend on other tokens. Tokens may therefore come in chunks, so that the logits of all
//! tokens need not be in memory at once.

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::reduce::{block_max, block_sum};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::{LN_2, LOG2_E};

/// Returns the natural logarithm of the sum of the exponentials of each row of `logits` `[tokens,
/// vocab]`.
pub fn lse(logits: &[f64], vocab: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + row.iter().map(|l| (l - max).exp()).sum::<f64>().ln()
    };
    logits.chunks_exact(vocab).map(row).collect()
}

/// Returns `n loss`: the sum over the tokens with a label. `labels` and `lse` are `[tokens]`.
///
/// # Example
///
/// With equal logits, the loss of a token is the logarithm of the vocabulary's size:
///
/// ```
/// use warpwright_kernels::train::cross_entropy::{loss, lse};
///
/// let logits = [0.0; 4];
/// let sum = loss(&logits, &lse(&logits, 4), &[Some(2)]);
/// assert!((sum - 4f64.ln()).abs() < 1e-12);
/// ```
pub fn loss(logits: &[f64], lse: &[f64], labels: &[Option<u32>]) -> f64 {
    let vocab = logits.len() / labels.len();
    let rows = logits.chunks_exact(vocab).zip(lse).zip(labels);
    rows.filter_map(|((row, lse), label)| Some(lse - row[(*label)? as usize]))
        .sum()
}

/// Returns `n dl` `[tokens, vocab]`, with zeros in rows without a label.
pub fn backward(logits: &[f64], lse: &[f64], labels: &[Option<u32>]) -> Vec<f64> {
    let vocab = logits.len() / labels.len();
    let mut dl = vec![0.0; logits.len()];
    let rows = logits.chunks_exact(vocab).zip(lse).zip(labels);
    for (dl, ((row, lse), label)) in dl.chunks_exact_mut(vocab).zip(rows) {
        if let Some(label) = *label {
            for (dl, l) in dl.iter_mut().zip(row) {
                *dl = (l - lse).exp();
            }
            dl[label as usize] -= 1.0;
        }
    }

    dl
}

/// The label of a token without one. Every negative label has this meaning.
pub const NO_LABEL: i32 = -100;

/// Returns the labels as `Option`s.
pub(super) fn optional(labels: &[i32]) -> Vec<Option<u32>> {
    labels
        .iter()
        .map(|&label| u32::try_from(label).ok())
        .collect()
}

args! {
    /// Arguments of [`TokenLosses`].
    pub struct TokenLossesArgs {
        /// `[tokens, vocab]`: the logits
        logits: In<f32>,
        /// `[tokens]`: the labels, negative for a token without one
        labels: In<i32>,
        /// `[tokens]`: the logarithms of the sums of exponentials
        lse: Out<f32>,
        /// `[tokens]`: the loss of each token, 0 without a label
        losses: Out<f32>,
        /// The length of a row, a multiple of 4.
        vocab: u32,
    }
}

/// Kernel for `lse` and the loss of each token, with a block per token. Its references are [`lse`]
/// and [`loss`].
///
/// A label outside the vocabulary gives NaN, so that the mistake shows.
pub struct TokenLosses {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for TokenLosses {
    type Args<S: Side> = TokenLossesArgs<S>;

    fn name(&self) -> String {
        format!("train_token_losses_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &TokenLossesArgs<Shape>) -> Result<Grid, ShapeError> {
        let &TokenLossesArgs { vocab, .. } = a;
        self.multiple("vocab", vocab, 4)?;
        let tokens = a.labels as u32;
        check_lengths! { self, a:
            logits == tokens * vocab,
            lse == tokens,
            losses == tokens,
        }
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: TokenLossesArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let step = self.threads * 4;
        let token = k.ctaid();
        let logits = a.logits.at(token * a.vocab);

        k.section(
            "train/cross_entropy/statistics",
            "of each thread's logits the maximum and the sum of e^(l - maximum), in one pass \
             (online softmax)",
        );

        // The maximum starts at a finite number. With negative infinity, a thread without logits
        // would compute infinity minus infinity.
        let mut max = k.var(f32::MIN);
        let mut sum = k.var(0.0);
        k.for_each(first, a.vocab, step, |i| {
            let four = logits.at(i).ld4();
            let largest = four.into_iter().fold(max.get(), |a, b| a.max(b));
            let e = |l: F32<'k>| ((l - largest) * LOG2_E).ex2();
            let terms = four.map(e).into_iter().reduce(|a, b| a + b).expect("four");
            let so_far = sum.get();
            let rescaled = e(max.get());
            sum.set(so_far.fma(rescaled, terms));
            max.set(largest);
        });

        k.section(
            "train/cross_entropy/lse",
            "lse = max + log(sum of e^(l - max)); a thread without logits adds 0",
        );
        let largest = block_max(k, self.threads / 32, max.get());
        let own = sum.get();
        let rescale = ((max.get() - largest) * LOG2_E).ex2();
        let sum = block_sum(k, self.threads / 32, own * rescale);
        let lse = sum.lg2().fma(LN_2, largest);

        k.section("train/cross_entropy/loss", "loss = lse - l[label]");
        k.when(k.tid().eq(0), || {
            a.lse.at(token).st(lse);
            let label = a.labels.at(token).ld();
            let mut loss = k.var(0.0);
            k.when(label.ge(0), || {
                let label = label.bits::<u32>();
                loss.set(f32::NAN);
                k.when(label.lt(a.vocab), || loss.set(lse - logits.at(label).ld()));
            });
            a.losses.at(token).st(loss.get());
        });
    }

    fn reference(&self, a: TokenLossesArgs<Cpu<'_>>) {
        let vocab = a.vocab as usize;
        let of = lse(&wide(a.logits), vocab);
        narrow(&of, a.lse);
        let rows = a.logits.chunks(vocab).zip(&of).zip(optional(a.labels));
        for (to, ((row, lse), label)) in a.losses.iter_mut().zip(rows) {
            *to = loss(&wide(row), &[*lse], &[label]) as f32;
        }
    }
}

args! {
    /// Arguments of [`LogitGradients`].
    pub struct LogitGradientsArgs {
        /// `[tokens, vocab]`: the logits, which become `n dl`
        logits: InOut<f32>,
        /// `[tokens]`: the labels, negative for a token without one
        labels: In<i32>,
        /// `[tokens]`: the logarithms of the sums of exponentials
        lse: In<f32>,
        /// The length of a row, a multiple of 4.
        vocab: u32,
    }
}

/// Kernel that turns logits into `n dl` in place, with a block per token. Its reference is
/// [`backward`].
pub struct LogitGradients {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for LogitGradients {
    type Args<S: Side> = LogitGradientsArgs<S>;

    fn name(&self) -> String {
        format!("train_logit_gradients_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &LogitGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LogitGradientsArgs { vocab, .. } = a;
        self.multiple("vocab", vocab, 4)?;
        let tokens = a.labels as u32;
        check_lengths! { self, a:
            logits == tokens * vocab,
            lse == tokens,
        }
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LogitGradientsArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let step = self.threads * 4;
        let token = k.ctaid();
        let logits = a.logits.at(token * a.vocab);
        let lse = a.lse.at(token).ld();
        let label = a.labels.at(token).ld();
        let labeled = label.ge(0);
        let label = label.bits::<u32>();
        k.for_each(first, a.vocab, step, |i| {
            let l = logits.at(i).ld4();
            logits.at(i).st4(from_fn(|j| {
                // A row without a label becomes zeros, so that it adds nothing to any gradient.
                let onehot = (i + j as u32).eq(label).select(1.0, 0.0);
                labeled.select(((l[j] - lse) * LOG2_E).ex2() - onehot, 0.0)
            }));
        });
    }

    fn reference(&self, a: LogitGradientsArgs<Cpu<'_>>) {
        let dl = backward(&wide(a.logits), &wide(a.lse), &optional(a.labels));
        narrow(&dl, a.logits);
    }
}

/// The number of tokens, the vocabulary and the magnitude of the logits. The rows are shorter than
/// a block, or longer than one step of it.
const CASES: [(usize, usize, f32); 4] = [
    (1, 4, 1.0),
    (5, 100, 10.0),
    (3, 1024, 30.0),
    (2, 2052, 30.0),
];

/// Returns logits and labels. Every third token has no label.
fn rows(seed: u64, tokens: usize, vocab: usize, magnitude: f32) -> (Vec<f32>, Vec<i32>) {
    let mut random = Random(seed);
    let logits = (0..tokens * vocab)
        .map(|_| random.unit() * magnitude)
        .collect();
    let label = |token| {
        if token % 3 == 1 {
            NO_LABEL
        } else {
            random.below(vocab as u32) as i32
        }
    };
    (logits, (0..tokens).map(label).collect())
}

fn case(tokens: usize, vocab: usize, magnitude: f32, args: Vec<CpuArg>) -> Case {
    // The exponent of 2 is at most 90. Its 4 roundings give `e^x` a relative error of 1e-5 where it
    // is small, and of 1e-6 where it matters.
    Case {
        label: format!("tokens={tokens} vocab={vocab} magnitude={magnitude}"),
        args,
        bound: 2e-6,
    }
}

impl Variant for TokenLosses {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, vocab, magnitude)| {
            let (logits, labels) = rows(seed, tokens, vocab, magnitude);
            let empty = || CpuArg::F32(vec![0.0; tokens]);
            let args = vec![
                CpuArg::F32(logits),
                CpuArg::S32(labels),
                empty(),
                empty(),
                CpuArg::scalar(vocab as u32),
            ];
            case(tokens, vocab, magnitude, args)
        };
        CASES.map(case).into()
    }
}

impl Variant for LogitGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, vocab, magnitude)| {
            let (logits, labels) = rows(seed, tokens, vocab, magnitude);
            let lse = lse(&wide(&logits), vocab)
                .into_iter()
                .map(|lse| lse as f32)
                .collect();
            let args = vec![
                CpuArg::F32(logits),
                CpuArg::S32(labels),
                CpuArg::F32(lse),
                CpuArg::scalar(vocab as u32),
            ];
            case(tokens, vocab, magnitude, args)
        };
        CASES.map(case).into()
    }
}
