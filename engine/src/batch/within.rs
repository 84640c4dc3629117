//! Sequences that follow grammars, beside others that follow none.
//!
//! ```text
//! device   logits of all sequences ----------------------> choices -> logits of all sequences ...
//! host     |  which tokens may follow? of each | bits |              |
//! ```
//!
//! As for one sequence (`crate::decode::guided`), a step is two launches, and the second begins with a copy of the bits
//! of those that follow a grammar. To the others everything is allowed. The host finds the bits of one sequence after the
//! other, so its times add up.

use super::device::Device;
use super::engine::Batch;
use super::sequences::SequenceId;
use crate::Error;
use crate::grammar::matcher::Matcher;

/// What a sequence is given in a step, and what its next token is to be within.
pub struct Within<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// Its next tokens, at least one.
    pub tokens: &'a [u32],
    /// The grammar that it follows, as far as the text has come; or none.
    pub matcher: Option<&'a mut Matcher>,
}

impl Batch {
    /// As [`step`](Batch::step), where sequences may follow grammars. A matcher has taken the token that was chosen
    /// within it; it is given before the tokens of the prompt, or after what it has taken. The
    /// [logits](Batch::logits) of tokens that were not allowed are lowered.
    ///
    /// # Errors
    /// As [`step`](Batch::step); a batch not made with [`TokenChoice::Within`](crate::TokenChoice); a grammar for another
    /// vocabulary; a grammar in which no token goes on, or that is [over](Matcher::is_over): then no sequence and no
    /// matcher has taken anything.
    pub fn step_within(&mut self, work: &mut [Within<'_>]) -> Result<Vec<u32>, Error> {
        self.check_within(work)?;
        let given: Vec<(SequenceId, &[u32])> = work
            .iter()
            .map(|part| (part.sequence, part.tokens))
            .collect();
        let (input, order) = self.begin(&given)?;
        let sizes = self.device.step_logits(&input)?;
        work.iter_mut().try_for_each(|part| self.allow(part))?;
        self.device.choose_within(sizes)?;
        let next = self.finish(&given, &order)?;
        for (part, token) in work.iter_mut().zip(&next) {
            let Some(matcher) = &mut part.matcher else {
                continue;
            };
            matcher.take_chosen(*token)?;
            self.record_best(part.sequence)?;
        }
        Ok(next)
    }

    /// Takes in the tokens of each of these sequences, and makes up to `most` tokens of each: within its grammar, if it
    /// follows one, until nothing may follow, and until a token that ends texts. Tokens that must follow in a grammar are
    /// taken in together. A sequence lacks the last of its tokens, and perhaps those that were forced before it:
    /// [`tokens`](Batch::tokens) says how many it has, and what the next step is to be given.
    ///
    /// # Errors
    /// As [`step_within`](Batch::step_within).
    pub fn decode_within(
        &mut self,
        work: &mut [Within<'_>],
        most: u32,
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.check_within(work)?;
        self.check_work(work.iter().map(|part| (part.sequence, part.tokens)))?;
        if most == 0 {
            return Ok(vec![vec![]; work.len()]);
        }
        let counts = work
            .iter()
            .map(|part| (part.sequence, part.tokens.len() as u32 + (most - 1)));
        self.reserve(&counts.collect::<Vec<_>>())?;
        let texts = self.write_texts(work, most as usize);
        work.iter()
            .for_each(|part| self.sequences.release_rest(part.sequence));
        texts
    }

    fn write_texts(
        &mut self,
        work: &mut [Within<'_>],
        most: usize,
    ) -> Result<Vec<Vec<u32>>, Error> {
        let given: usize = work.iter().map(|part| part.tokens.len()).sum();
        let room = self.options.tokens as usize;
        let mut texts = vec![];
        for part in work.iter_mut() {
            let mut text = Text {
                given: part.tokens.to_vec(),
                ..Text::default()
            };
            text.force(
                part.matcher.as_deref_mut(),
                most,
                (room - given) / self.options.sequences as usize,
            )?;
            texts.push(text);
        }
        let room = (room / work.len()).saturating_sub(1);
        while texts.iter().any(|text| !text.over) {
            let next = {
                let going = work.iter_mut().zip(&texts).filter(|(_, text)| !text.over);
                let mut step: Vec<Within<'_>> = going.map(|(part, text)| text.part(part)).collect();
                self.step_within(&mut step)?
            };
            let going = work
                .iter_mut()
                .zip(&mut texts)
                .filter(|(_, text)| !text.over);
            for ((part, text), token) in going.zip(next) {
                text.push(token, self.stop.contains(&token));
                text.force(part.matcher.as_deref_mut(), most, room)?;
            }
        }
        Ok(texts.into_iter().map(|text| text.made).collect())
    }

    fn check_within(&self, work: &[Within<'_>]) -> Result<(), Error> {
        let model = self.device.config.vocab;
        if self.device.head.allowed.is_none() {
            return Err(Error::NotWithin);
        }
        let grammars = work
            .iter()
            .filter_map(|part| part.matcher.as_ref().map(|matcher| matcher.vocab()));
        match grammars.into_iter().find(|grammar| *grammar != model) {
            Some(grammar) => Err(Error::OtherVocabulary { grammar, model }),
            None => Ok(()),
        }
    }

    /// Lets the device know what a sequence may choose.
    fn allow(&mut self, part: &mut Within<'_>) -> Result<(), Error> {
        let Device { head, stream, .. } = &mut self.device;
        let (Some(allowed), Some(sampler)) = (&mut head.allowed, &head.sampler) else {
            return Ok(());
        };
        let row = part.sequence.row;
        let Some(matcher) = &mut part.matcher else {
            return Ok(allowed.free(stream, sampler, row)?);
        };
        allowed.write(stream, sampler, row, matcher.allowed()?)?;
        Ok(allowed.copy(&mut &*stream, row)?)
    }

    /// Allows these sequences everything again.
    pub(super) fn free(
        &mut self,
        sequences: impl Iterator<Item = SequenceId>,
    ) -> Result<(), Error> {
        let Device { head, stream, .. } = &mut self.device;
        if let (Some(allowed), Some(sampler)) = (&mut head.allowed, &head.sampler) {
            for sequence in sequences {
                allowed.free(stream, sampler, sequence.row)?;
            }
        }
        Ok(())
    }

    /// Remembers how many best tokens the latest choice of a sequence had, if fewer than it was asked for.
    fn record_best(&mut self, sequence: SequenceId) -> Result<(), Error> {
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

/// A text that is written.
#[derive(Default)]
struct Text {
    /// What the next step is to be given.
    given: Vec<u32>,
    made: Vec<u32>,
    over: bool,
}

impl Text {
    fn part<'t>(&'t self, part: &'t mut Within<'_>) -> Within<'t> {
        Within {
            sequence: part.sequence,
            tokens: &self.given,
            matcher: part.matcher.as_deref_mut(),
        }
    }

    /// A token that was chosen, and whether it ends texts.
    fn push(&mut self, token: u32, over: bool) {
        self.made.push(token);
        (self.given, self.over) = (vec![token], over);
    }

    /// Goes on with what must follow, `room` tokens at most.
    fn force(
        &mut self,
        matcher: Option<&mut Matcher>,
        most: usize,
        room: usize,
    ) -> Result<(), Error> {
        if let Some(matcher) = matcher.filter(|_| !self.over) {
            let forced = matcher.forced((most - self.made.len()).min(room))?;
            self.made.extend(&forced);
            self.given.extend(&forced);
            self.over = matcher.is_over();
        }
        self.over |= self.made.len() >= most;
        Ok(())
    }
}
