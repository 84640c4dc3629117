//! Constrained decoding of sequences in a batch, next to others without a grammar.
//!
//! ```text
//! device   logits of all sequences ----------------------> choices -> logits of all sequences ...
//! host     |  which tokens may follow? of each | bits |              |
//! ```
//!
//! As for a single sequence (`crate::decode::constrained`), a step takes two launches. The second
//! one begins by copying the masks of the sequences that follow a grammar. All other sequences have
//! a mask that allows every token. The CPU works out one mask after the other, so its times add up.

use warpwright_model::Matcher;

use crate::Error;
use crate::batch::device::BatchDevice;
use crate::batch::engine::Batch;
use crate::batch::sequence_id::SequenceId;

/// The tokens of one sequence in a step, and the grammar of its next token.
pub struct ConstrainedSequence<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// The next tokens of the sequence, at least one.
    pub tokens: &'a [u32],
    /// The grammar that the sequence follows, at its current position, or `None`.
    pub matcher: Option<&'a mut Matcher>,
}

impl Batch {
    /// Processes the tokens of some sequences and generates up to `most` tokens for each, under its
    /// grammar if it has one.
    ///
    /// A sequence ends when its grammar allows nothing more, or after a token that ends texts.
    /// Forced tokens are processed together. The last generated token of a sequence is not in its
    /// cache yet, nor are forced tokens in front of it. [`tokens`](Batch::tokens) tells you how
    /// many are, and the next step must be given the rest.
    ///
    /// # Errors
    /// Returns the errors of [`step_constrained`](Batch::step_constrained).
    pub fn decode_constrained(
        &mut self,
        work: &mut [ConstrainedSequence<'_>],
        most: u32,
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.check_constrained()?;
        let matchers = work.iter().filter_map(|item| item.matcher.as_deref());
        self.check_matchers(matchers)?;
        self.check_work(work.iter().map(|item| (item.sequence, item.tokens)))?;
        if most == 0 {
            return Ok(vec![vec![]; work.len()]);
        }

        let counts = work
            .iter()
            .map(|item| (item.sequence, item.tokens.len() as u32 + (most - 1)));
        self.reserve(&counts.collect::<Vec<_>>())?;
        let texts = self.write_texts(work, most as usize);
        for item in work.iter() {
            self.sequences.release_rest(item.sequence);
        }

        texts
    }

    /// Generates the texts step by step. The pages for all of them are reserved.
    fn write_texts(
        &mut self,
        work: &mut [ConstrainedSequence<'_>],
        most: usize,
    ) -> Result<Vec<Vec<u32>>, Error> {
        let given: usize = work.iter().map(|item| item.tokens.len()).sum();
        let capacity = self.options.tokens as usize;

        // Each sequence may add an equal share of forced tokens to the first step, so that the step
        // fits.
        let share = (capacity - given) / self.options.sequences as usize;
        let mut texts = vec![];
        for item in work.iter_mut() {
            let mut text = ConstrainedText {
                given: item.tokens.to_vec(),
                ..ConstrainedText::default()
            };
            text.force(item.matcher.as_deref_mut(), most, share)?;
            texts.push(text);
        }

        // Later steps have one chosen token per sequence, and forced tokens after it.
        let share = (capacity / work.len()).saturating_sub(1);
        while texts.iter().any(|text| !text.over) {
            let next = {
                let going = work.iter_mut().zip(&texts).filter(|(_, text)| !text.over);
                let mut step: Vec<ConstrainedSequence<'_>> =
                    going.map(|(item, text)| text.next_step(item)).collect();
                self.step_constrained(&mut step)?
            };
            let going = work
                .iter_mut()
                .zip(&mut texts)
                .filter(|(_, text)| !text.over);
            for ((item, text), token) in going.zip(next) {
                text.push(token, self.stop.contains(&token));
                text.force(item.matcher.as_deref_mut(), most, share)?;
            }
        }

        Ok(texts.into_iter().map(|text| text.made).collect())
    }

    /// Returns an error if the batch cannot apply grammars.
    pub(super) fn check_constrained(&self) -> Result<(), Error> {
        if self.device.head.allowed.is_some() {
            Ok(())
        } else {
            Err(Error::NotConstrained)
        }
    }

    /// Returns an error if the batch cannot apply one of these grammars.
    pub(super) fn check_matchers<'m>(
        &self,
        matchers: impl Iterator<Item = &'m Matcher>,
    ) -> Result<(), Error> {
        let model = self.device.config.vocab;
        for matcher in matchers {
            self.check_constrained()?;
            let grammar = matcher.vocab();
            if grammar != model {
                return Err(Error::OtherVocabulary { grammar, model });
            }
        }
        Ok(())
    }

    /// Queues the copy of a sequence's mask to the device.
    pub(super) fn allow(
        &mut self,
        sequence: SequenceId,
        matcher: Option<&mut Matcher>,
    ) -> Result<(), Error> {
        let BatchDevice { head, stream, .. } = &mut self.device;
        let (Some(allowed), Some(sampler)) = (&mut head.allowed, &head.sampler) else {
            return Ok(());
        };

        let row = sequence.row;
        let Some(matcher) = matcher else {
            return Ok(allowed.free(stream, sampler, row)?);
        };

        allowed.write(stream, sampler, row, matcher.allowed()?)?;
        Ok(allowed.copy(&mut &*stream, row)?)
    }

    /// Allows these sequences every token again.
    pub(crate) fn free(
        &mut self,
        sequences: impl Iterator<Item = SequenceId>,
    ) -> Result<(), Error> {
        let BatchDevice { head, stream, .. } = &mut self.device;
        if let (Some(allowed), Some(sampler)) = (&mut head.allowed, &head.sampler) {
            for sequence in sequences {
                allowed.free(stream, sampler, sequence.row)?;
            }
        }
        Ok(())
    }

    /// Records the number of best tokens in the latest choice of a sequence, if it is below the
    /// requested number.
    pub(super) fn record_best(&mut self, sequence: SequenceId) -> Result<(), Error> {
        let position = self.sequences.get(sequence)?.tokens.len() as u32 - 1;
        let best = self
            .device
            .head
            .allowed
            .as_ref()
            .map_or(0, |allowed| allowed.best(sequence.row));
        if best < self.sampled[sequence.row as usize].logprobs {
            self.fewer.insert((sequence.row, position), best);
        }

        Ok(())
    }
}

/// A text that is being generated.
#[derive(Default)]
struct ConstrainedText {
    /// The tokens of the next step.
    given: Vec<u32>,
    /// The tokens generated so far.
    made: Vec<u32>,
    /// Whether the text has ended.
    over: bool,
}

impl ConstrainedText {
    /// Returns the work of the next step.
    fn next_step<'t>(&'t self, item: &'t mut ConstrainedSequence<'_>) -> ConstrainedSequence<'t> {
        ConstrainedSequence {
            sequence: item.sequence,
            tokens: &self.given,
            matcher: item.matcher.as_deref_mut(),
        }
    }

    /// Appends a chosen token, which ends the text if `over` is true.
    fn push(&mut self, token: u32, over: bool) {
        self.made.push(token);
        self.given = vec![token];
        self.over = over;
    }

    /// Appends the forced tokens, at most `share` of them.
    fn force(
        &mut self,
        matcher: Option<&mut Matcher>,
        most: usize,
        share: usize,
    ) -> Result<(), Error> {
        if let Some(matcher) = matcher
            && !self.over
        {
            let forced = matcher.forced((most - self.made.len()).min(share))?;
            self.made.extend(&forced);
            self.given.extend(&forced);
            self.over = matcher.is_over();
        }
        self.over |= self.made.len() >= most;
        Ok(())
    }
}
