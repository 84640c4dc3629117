//! The sampling parameters of the sequences in a batch, and their log-probabilities.

use super::device::BatchDevice;
use super::engine::Batch;
use super::latest_tokens::LatestTokens;
use super::sequence_id::SequenceId;
use crate::Error;
use crate::sampling::options::{Sampling, TokenChoice};
use crate::sampling::probabilities::LogProbabilities;

impl Batch {
    /// Sets the sampling parameters of a sequence for its next tokens.
    ///
    /// Other sequences keep theirs. The parameters are data on the device, so no kernel is compiled
    /// and no graph is rebuilt.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the sequence is not in the batch.
    /// - [`Error::NotSampled`] if the batch was made for greedy decoding.
    /// - An error that names the option if a value is outside its range.
    /// - [`Error::Driver`] if the copy to the device fails.
    pub fn set_sampling(&mut self, sequence: SequenceId, sampling: &Sampling) -> Result<(), Error> {
        self.sequences.get(sequence)?;
        if self.options.choice == TokenChoice::Greedy {
            return Err(Error::NotSampled);
        }
        sampling.check(self.device.config.vocab)?;
        self.sample(sequence, sampling.clone())
    }

    /// Returns the log-probabilities of the token chosen after a position of a sequence.
    ///
    /// They are `None` unless the sequence was sampled with `logprobs` above 0 at that time. In
    /// constrained decoding they cover only the allowed tokens.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the sequence is not in the batch.
    /// - [`Error::SequenceLength`] if the position is outside the context.
    pub fn log_probabilities(
        &self,
        sequence: SequenceId,
        position: u32,
    ) -> Result<Option<LogProbabilities>, Error> {
        self.sequences.get(sequence)?;
        let ctx = self.options.ctx;
        if position >= ctx {
            return Err(Error::SequenceLength {
                len: position,
                more: 1,
                ctx,
            });
        }

        let asked = self.sampled[sequence.row as usize].logprobs;
        let count = self
            .fewer
            .get(&(sequence.row, position))
            .map_or(asked, |count| asked.min(*count));
        let sampler = self.device.head.sampler.as_ref();
        Ok(sampler.and_then(|sampler| sampler.log_probabilities(sequence.row, position, count)))
    }

    /// Sets the sampling parameters of a sequence, which must be in the batch, without checking
    /// them.
    pub(super) fn sample(&mut self, sequence: SequenceId, sampling: Sampling) -> Result<(), Error> {
        let BatchDevice { head, stream, .. } = &mut self.device;
        if let Some(sampler) = &head.sampler {
            let params = sampler.set(stream, sequence.row, &sampling)?;
            if let Some(allowed) = &mut head.allowed {
                allowed.set_params(sequence.row, params);
            }
        }
        self.sampled[sequence.row as usize] = sampling;
        Ok(())
    }

    /// Writes the tokens that penalties look back to, including those given in this step, to the
    /// device.
    pub(super) fn write_latest<'w>(
        &self,
        work: impl Iterator<Item = LatestTokens<'w>>,
    ) -> Result<(), Error> {
        for LatestTokens {
            sequence: id,
            given,
            chosen,
        } in work
        {
            let sampling = &self.sampled[id.row as usize];
            if !sampling.penalizes() {
                continue;
            }

            let tokens = [&self.sequences.get(id)?.tokens, given].concat();

            // The first chosen token looks back from an earlier position than the last one.
            let window = (sampling.penalty_window as usize).saturating_add(chosen - 1);
            let latest = &tokens[tokens.len().saturating_sub(window)..];
            let device = &self.device;
            device.head.write_latest(
                &device.stream,
                &self.options,
                id.row,
                tokens.len() as u32,
                latest,
            )?;
        }
        Ok(())
    }
}
