//! The gradients of logits in bf16, with the formula of
//! [`cross_entropy`](crate::train::cross_entropy). The logits are `f32`.

use super::buffers::narrow;
use super::rows::{load_f32, store};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::buffers::wide;
use crate::train::cross_entropy::{backward, lse, optional};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`LogitGradients`].
    pub struct LogitGradientsArgs {
        /// `[tokens, vocab]`: the logits
        logits: In<f32>,
        /// `[tokens]`: the labels, negative for a token without one
        labels: In<i32>,
        /// `[tokens]`: the logarithms of the sums of exponentials
        lse: In<f32>,
        /// `[tokens, vocab]`: the gradients `n dl`
        dl: Out<bf16>,
        /// The length of a row, a multiple of 8.
        vocab: u32,
    }
}

/// Kernel for `n dl`, with a block per token.
pub struct LogitGradients {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for LogitGradients {
    type Args<S: Side> = LogitGradientsArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_logit_gradients_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &LogitGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LogitGradientsArgs { vocab, .. } = a;
        self.multiple("vocab", vocab, 8)?;
        let tokens = a.labels as u32;
        check_lengths! { self, a:
            logits == tokens * vocab,
            lse == tokens,
            dl == tokens * vocab,
        }
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LogitGradientsArgs<Dev<'k>>) {
        let token = k.ctaid();
        let logits = a.logits.at(token * a.vocab);
        let dl = a.dl.at(token * a.vocab);
        let lse = a.lse.at(token).ld();
        let label = a.labels.at(token).ld();
        let labeled = label.ge(0);
        let label = label.bits::<u32>();
        k.for_each(k.tid() * 8, a.vocab, self.threads * 8, |i| {
            let l = load_f32(logits.at(i));
            let gradients = from_fn(|j| {
                // A row without a label becomes zeros, so that it adds nothing to any gradient.
                let onehot = (i + j as u32).eq(label).select(1.0, 0.0);
                labeled.select(((l[j] - lse) * LOG2_E).ex2() - onehot, 0.0)
            });
            store(dl.at(i), gradients);
        });
    }

    fn reference(&self, a: LogitGradientsArgs<Cpu<'_>>) {
        narrow(
            &backward(&wide(a.logits), &wide(a.lse), &optional(a.labels)),
            a.dl,
        );
    }
}

impl Variant for LogitGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, vocab, magnitude): (usize, usize, f32)| {
            let mut random = Random(seed);
            let logits: Vec<f32> = (0..tokens * vocab)
                .map(|_| random.unit() * magnitude)
                .collect();
            let labels = (0..tokens).map(|t| {
                if t % 3 == 1 {
                    -1
                } else {
                    random.below(vocab as u32) as i32
                }
            });
            let labels = labels.collect();
            let lse = lse(&wide(&logits), vocab)
                .into_iter()
                .map(|lse| lse as f32)
                .collect();
            let args = vec![
                CpuArg::F32(logits),
                CpuArg::S32(labels),
                CpuArg::F32(lse),
                CpuArg::Bf16(vec![bf16(0); tokens * vocab]),
                CpuArg::scalar(vocab as u32),
            ];
            let label = format!("tokens={tokens} vocab={vocab} magnitude={magnitude}");
            Case {
                label,
                args,
                bound: 2e-6,
            }
        };
        [(1, 8, 1.0), (5, 104, 10.0), (2, 2056, 30.0)]
            .map(case)
            .into()
    }
}
