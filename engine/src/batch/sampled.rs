//! How the sequences of a batch are sampled.

use super::device::Device;
use super::engine::Batch;
use super::sequences::SequenceId;
use crate::Error;
use crate::sampling::options::{Sampling, TokenChoice};
use crate::sampling::probabilities::LogProbabilities;

impl Batch {
    /// Lets the next tokens of a sequence be drawn in this way. Nothing is compiled or recorded anew, and no other sequence
    /// changes.
    ///
    /// # Errors
    /// A sequence that is not in the batch; an option outside its range; a batch that was made to be greedy; driver errors.
    pub fn set_sampling(&mut self, sequence: SequenceId, sampling: &Sampling) -> Result<(), Error> {
        self.sequences.get(sequence)?;
        if self.options.choice == TokenChoice::Greedy {
            return Err(Error::NotSampled);
        }
        sampling.check(self.device.config.vocab)?;
        self.sample(sequence, sampling.clone())
    }

    /// The log-probabilities after a position of a sequence, whose step has chosen a token, if the sequence was asked for
    /// some then. Within a grammar they are those of the tokens that were allowed.
    ///
    /// # Errors
    /// A sequence that is not in the batch; a position that it has no room for.
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

    /// The same without a check.
    pub(super) fn sample(&mut self, sequence: SequenceId, sampling: Sampling) -> Result<(), Error> {
        let Device { head, stream, .. } = &mut self.device;
        if let Some(sampler) = &head.sampler {
            let params = sampler.set(stream, sequence.row, &sampling)?;
            head.allowed
                .iter_mut()
                .for_each(|allowed| allowed.set_params(sequence.row, params));
        }
        self.sampled[sequence.row as usize] = sampling;
        Ok(())
    }

    /// Lets the device know the tokens that penalties look back to, those that are given now among them.
    pub(super) fn write_latest<'w>(
        &self,
        work: impl Iterator<Item = (SequenceId, &'w [u32])>,
    ) -> Result<(), Error> {
        for (id, given) in work {
            let sampling = &self.sampled[id.row as usize];
            if !sampling.penalizes() {
                continue;
            }
            let tokens = [&self.sequences.get(id)?.tokens, given].concat();
            let latest = &tokens[tokens
                .len()
                .saturating_sub(sampling.penalty_window as usize)..];
            let place = (id.row, tokens.len() as u32);
            self.device
                .head
                .write_latest(&self.device.stream, &self.options, place, latest)?;
        }
        Ok(())
    }
}
