//! Log-probabilities of tokens that are known already (teacher forcing).
//!
//! All rows of a prompt go through the LM head, as many at a time as it has room for. A kernel
//! computes the log-likelihood of the known token of each row. The sampling kernels record the most
//! likely tokens. They run with the parameters of a greedy sequence, because biases and penalties
//! must not change the result, and the tokens that they choose are discarded.

use std::sync::Arc;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::Buffer;
use warpwright_kernels::LogLikelihood;
use warpwright_kernels::simple::log_likelihood::LogLikelihoodArgs;

use crate::Error;
use crate::batch::engine::Batch;
use crate::batch::sequence_id::SequenceId;
use crate::chunked::products::ColumnSplits;
use crate::sampling::options::Sampling;
use crate::sampling::probabilities::LogProbabilities;
use crate::signed;

/// Known tokens to score.
pub(super) struct ScoreRequest {
    pub(super) sequence: SequenceId,
    /// The row of the pass before the first scored token.
    pub(super) row: u32,
    /// The position of that row.
    pub(super) position: u32,
    /// The tokens after this row and the following ones.
    pub(super) tokens: Vec<u32>,
    /// The number of most likely tokens to record.
    pub(super) best: u32,
    pub(super) splits: ColumnSplits,
    /// The log-likelihoods of the tokens, once they are launched.
    pub(super) likelihoods: Option<Buffer<f32>>,
}

/// The smallest vocabulary for which a block of 1024 threads is worthwhile.
const LARGE: u32 = 1 << 14;

impl Batch {
    /// Queues the scores of known tokens after the pass that has their rows.
    pub(super) fn launch_scores(&mut self, request: &mut ScoreRequest) -> Result<(), Error> {
        let kernel = self.score_kernel()?;
        let context = self.device.stream.context().clone();
        let tokens = Buffer::from_slice(&context, &request.tokens)?.labelled("scored");
        let likelihoods = Buffer::zeroed(&context, request.tokens.len())?.labelled("likelihoods");
        let row = request.sequence.row;
        if request.best > 0
            && let Some(sampler) = &self.device.head.sampler
        {
            let greedy = Sampling {
                logprobs: request.best,
                ..Sampling::greedy()
            };
            sampler.set(&self.device.stream, row, &greedy)?;
        }

        let capacity = self.device.head.capacity as usize;
        for (chunk, first) in request.tokens.chunks(capacity).zip((0..).step_by(capacity)) {
            let from = request.row + first as u32;
            let rows: Vec<u32> = (from..from + chunk.len() as u32).collect();
            self.device
                .score_rows(&rows, request.splits, request.best)?;
            let range = first..first + chunk.len();
            let args = LogLikelihoodArgs::<Host> {
                x: &self.device.head.first_logits(chunk.len() as u32),
                token: &tokens.view_range(range.clone()),
                y: &likelihoods.view_range(range),
                n: self.device.config.vocab,
            };
            self.device.stream.launch(&kernel, args)?;
        }

        // The sequence samples its next tokens with its own parameters again.
        if request.best > 0 {
            self.sample(request.sequence, self.sampled[row as usize].clone())?;
        }
        request.likelihoods = Some(likelihoods);
        Ok(())
    }

    /// Returns the scores of a completed launch, or the index of the first row with a logit that is
    /// not finite.
    pub(super) fn read_scores(
        &self,
        request: &ScoreRequest,
    ) -> Result<Result<Vec<LogProbabilities>, u32>, Error> {
        let likelihoods = request.likelihoods.as_ref();
        let likelihoods = likelihoods.expect("the scores were launched");
        let likelihoods = self.device.stream.read(likelihoods)?;
        let sampler = self.device.head.sampler.as_ref();
        let mut scores = vec![];
        for ((row, likelihood), token) in (0..).zip(likelihoods).zip(&request.tokens) {
            if !likelihood.is_finite() {
                return Ok(Err(row));
            }

            let position = request.position + row;
            let record = sampler.and_then(|sampler| {
                sampler.log_probabilities(request.sequence.row, position, request.best)
            });
            let best = record.map_or(vec![], |record| record.best);

            // Both kernels compute the value of a token among the best, with different rounding.
            // The list would look wrong with two values for one token.
            let listed = best.iter().find(|(listed, _)| listed == token);
            let chosen = listed.map_or(f64::from(likelihood), |(_, value)| *value);
            scores.push(LogProbabilities { chosen, best });
        }
        Ok(Ok(scores))
    }

    /// Returns the kernel that computes log-likelihoods, and compiles it on first use.
    fn score_kernel(&mut self) -> Result<Arc<Kernel<LogLikelihood>>, Error> {
        let threads = if self.device.config.vocab < LARGE {
            256
        } else {
            1024
        };
        if self.likelihood.is_none() {
            let context = self.device.stream.context();
            let kernel = signed::load(context, LogLikelihood { threads })?;
            self.likelihood = Some(Arc::new(kernel));
        }
        let kernel = self.likelihood.as_ref();
        Ok(kernel.expect("it was loaded if it was missing").clone())
    }
}
