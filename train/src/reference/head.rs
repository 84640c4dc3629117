//! The last norm, the LM head and the loss, computed for a chunk of tokens at a time.

use super::ops::Norm;
use super::run::MicroBatchRun;
use warpwright_kernels::train::linear::Weight;

/// The results of the LM head.
#[derive(Clone, Debug)]
pub struct HeadResult {
    /// The sum of the losses of the labelled tokens.
    pub loss: f64,
    /// The output of the last norm, `[tokens, hidden]`.
    pub x: Vec<f64>,
    /// The log-sum-exp of the logits, `[tokens]`.
    pub lse: Vec<f64>,
    /// The gradient of the residual stream after the last layer, `[tokens, hidden]`.
    pub dh: Vec<f64>,
}

impl MicroBatchRun<'_> {
    pub(super) fn head(&self, h: &[f64]) -> HeadResult {
        let weights = &self.model.weights;
        let hidden = self.model.config.hidden;
        let (x, inv) = self.norm(Norm::Last, h, &weights.norm);
        let mut loss = 0.0;
        let mut lse = vec![];
        let mut dx = vec![];

        // All logits together would need `tokens * vocab` numbers, so they are computed in chunks.
        let chunks = x.chunks(self.model.head_chunk * hidden);
        for (x, labels) in chunks.zip(self.micro.labels.chunks(self.model.head_chunk)) {
            let (chunk_loss, chunk_lse, chunk_dx) = self.head_chunk(x, labels);
            loss += chunk_loss;
            lse.extend(chunk_lse);
            dx.extend(chunk_dx);
        }

        let mut dh = vec![0.0; h.len()];
        self.model
            .ops
            .rms_norm_backward(Norm::Last, &dx, h, &weights.norm, &inv, &mut dh);
        HeadResult {
            loss,
            x,
            lse,
            dh: self.store(dh),
        }
    }

    /// Returns the sum of losses, the log-sum-exps and `dx` of the tokens whose outputs of the last
    /// norm are `x`.
    fn head_chunk(&self, x: &[f64], labels: &[Option<u32>]) -> (f64, Vec<f64>, Vec<f64>) {
        let ops = self.model.ops;
        let vocab = self.model.config.vocab;
        let weight = Weight {
            w: self.model.weights.head(),
            bias: None,
            n: vocab,
        };
        let logits = ops.linear(x, &weight, None);
        let lse = ops.lse(&logits, vocab);
        let loss = ops.loss(&logits, &lse, labels);
        let dl = self.store(ops.loss_backward(&logits, &lse, labels));
        let dx = ops.linear_backward(&dl, &weight, None);

        // `dl` belongs to the sum of losses. The loss is their mean over the labelled tokens.
        let n = self.micro.n as f64;
        (
            loss,
            lse,
            self.store(dx.into_iter().map(|dx| dx / n).collect()),
        )
    }
}
