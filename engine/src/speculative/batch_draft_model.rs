//! A drafter that runs a smaller model for several texts at a time.

use std::collections::BTreeMap;

use warpwright_driver::Context;
use warpwright_model::{Model, Outline};

use crate::Error;
use crate::batch::{
    Batch, BatchItem, BatchOptions, BatchWanted, PrefixScope, RowClass, SequenceId,
};
use crate::sampling::options::{Sampling, TokenChoice};
use crate::speculative::draft_model::{draft_cost, draft_sampling};

/// A drafter that guesses the tokens of several texts with a smaller model, which has the same
/// vocabulary.
///
/// The draft model has its own [`Batch`], so each text keeps its keys and values between two calls.
/// A call processes only the tokens that were added since the last one. The first call for a text
/// processes all of it, except for a prefix that an earlier text of the same salt had.
///
/// Guesses never change a text, because the model that verifies chooses each token itself.
pub struct BatchDraftModel {
    batch: Batch,
    options: BatchDraftOptions,
    vocab: u32,
    cost: f64,
    texts: BTreeMap<u64, DraftedText>,
    /// The number of calls of `draft`.
    calls: u64,
}

/// The sizes of a [`BatchDraftModel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchDraftOptions {
    /// The maximum number of texts that are guessed at a time: 1 to 256.
    pub texts: u32,
    /// The maximum number of tokens of a text. It is reduced to the context length of the draft
    /// model. Longer texts have no guesses.
    pub ctx: u32,
    /// The maximum number of tokens of texts that one call of [`BatchDraftModel::draft`] processes,
    /// because the caller waits for them: `texts` to 2,048. A longer prompt is processed over
    /// several calls and has no guesses until then.
    pub tokens_per_call: u32,
}

/// A text whose next tokens are to be guessed.
#[derive(Debug, Clone, Copy)]
pub struct BatchDraftRequest<'a> {
    /// The number of the text. The caller chooses it, and never uses it for another text.
    pub text: u64,
    /// All tokens of the text.
    pub tokens: &'a [u32],
    /// The maximum number of guesses.
    pub most: u32,
    /// The sampling parameters of the model that verifies. The two models then draw the same random
    /// words at the same positions, so they choose the same token more often.
    pub sampling: &'a Sampling,
    /// A number that texts with a common prefix must share to share its keys and values.
    pub salt: u64,
}

/// A text that the draft model follows.
struct DraftedText {
    state: DraftedTextState,
    /// The number of the latest call that named the text.
    used: u64,
}

#[derive(Clone, Copy)]
enum DraftedTextState {
    Following(SequenceId),
    /// The draft model has failed in this text, for example because a logit is not finite.
    Failed,
}

/// A text whose next token is about to be guessed.
struct Guessing {
    /// The index of the request.
    index: usize,
    id: SequenceId,
    /// The number of the first token that the draft model has not processed.
    first: usize,
}

impl BatchDraftModel {
    /// Uploads the weights of the model `draft`, which guesses for the model `verified_by`.
    ///
    /// `progress` is called from other threads with the number of bytes copied so far.
    ///
    /// # Errors
    /// Returns the errors of [`Batch::new`].
    pub fn load(
        context: &Context,
        draft: &Model,
        verified_by: &Outline,
        options: BatchDraftOptions,
        progress: impl FnMut(u64) + Send,
    ) -> Result<BatchDraftModel, Error> {
        let config = &draft.outline.config;
        let ctx = options.ctx.min(config.context);
        let batch_options = BatchOptions {
            tokens: options.tokens_per_call,
            choice: TokenChoice::Sampled { logprobs: 0 },
            // The number of guesses changes from step to step.
            steps_per_launch: 1,
            ..BatchOptions::new(options.texts, ctx)
        };
        Ok(BatchDraftModel {
            batch: Batch::new(context, draft, batch_options, progress)?,
            options: BatchDraftOptions { ctx, ..options },
            vocab: config.vocab,
            cost: draft_cost(&draft.outline, verified_by),
            texts: BTreeMap::new(),
            calls: 0,
        })
    }

    /// Compiles the kernels of all steps: see [`Batch::compile`].
    ///
    /// # Errors
    /// Returns a driver error if a kernel cannot be compiled.
    pub fn compile(&mut self, progress: impl FnMut(usize, usize)) -> Result<(), Error> {
        self.batch.compile(progress)
    }

    /// Returns the time of one guess, as a fraction of a step of the model that verifies.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Returns guesses of the tokens after each text, in the order of `work`.
    ///
    /// A text has no guesses if it is longer than the context of the draft model, if it contains a
    /// token that the draft model does not have, or as long as its prompt is not processed. If more
    /// texts are named over time than the options allow, the text that was named least recently
    /// starts again when it is named the next time.
    ///
    /// # Errors
    /// - [`Error::BatchFull`] if `work` has more texts than the options allow.
    /// - [`Error::SequenceTwice`] if a text is named twice.
    /// - [`Error::Driver`] if a driver call fails. You cannot use the drafter afterwards.
    pub fn draft(&mut self, work: &[BatchDraftRequest<'_>]) -> Result<Vec<Vec<u32>>, Error> {
        self.calls += 1;
        let mut drafts = vec![vec![]; work.len()];
        let steps = work.iter().map(|request| request.most).max().unwrap_or(0);
        let mut texts = vec![];
        for (index, request) in work.iter().enumerate() {
            if self.can_guess(request, steps) {
                texts.extend(self.follow(index, request)?);
            }
        }
        if texts.is_empty() || steps == 0 {
            return Ok(drafts);
        }

        let guessed = self.guess(work, texts, steps, &mut drafts);
        match guessed {
            Err(Error::InSequence { sequence, .. }) => self.fail(sequence)?,
            guessed => guessed?,
        }
        for (drafts, request) in drafts.iter_mut().zip(work) {
            drafts.truncate(request.most as usize);
        }
        Ok(drafts)
    }

    /// Forgets a text that has ended. Its keys and values are kept for texts with the same prefix
    /// until the memory is needed. A text that was never named is ignored.
    pub fn forget(&mut self, text: u64) {
        let forgotten = self.texts.remove(&text);
        if let Some(DraftedTextState::Following(id)) = forgotten.map(|text| text.state) {
            let left = self.batch.leave(id);
            left.expect("the batch has the texts that are followed");
        }
    }

    /// Returns true if the draft model can process the text and `steps` more tokens.
    fn can_guess(&self, request: &BatchDraftRequest<'_>, steps: u32) -> bool {
        let fits = request.tokens.len() + steps as usize <= self.options.ctx as usize;
        request.most > 0
            && fits
            && !request.tokens.is_empty()
            && request.tokens.iter().all(|token| *token < self.vocab)
    }

    /// Returns the state of a text whose wrong guesses are removed, or `None` if the draft model has
    /// failed in it.
    fn follow(
        &mut self,
        index: usize,
        request: &BatchDraftRequest<'_>,
    ) -> Result<Option<Guessing>, Error> {
        let state = match self.texts.get(&request.text) {
            Some(text) => text.state,
            None => DraftedTextState::Following(self.join(request)?),
        };
        self.texts.insert(
            request.text,
            DraftedText {
                state,
                used: self.calls,
            },
        );
        let DraftedTextState::Following(id) = state else {
            return Ok(None);
        };

        // The last token of the text is always processed, because its step makes the first guess.
        let before = &request.tokens[..request.tokens.len() - 1];
        let had = self.batch.tokens(id)?;
        let first = had.iter().zip(before).take_while(|(a, b)| a == b).count();
        self.batch.roll_back(id, first as u32)?;
        Ok(Some(Guessing { index, id, first }))
    }

    /// Adds a text to the batch, in place of the least recently used one if it is full.
    fn join(&mut self, request: &BatchDraftRequest<'_>) -> Result<SequenceId, Error> {
        let scope = PrefixScope::salted(request.salt);
        let joined = match self.batch.join_prompt(request.tokens, scope) {
            Err(Error::BatchFull { .. }) => {
                self.drop_oldest();
                self.batch.join_prompt(request.tokens, scope)
            }
            joined => joined,
        };
        let (id, _) = joined?;
        let sampling = draft_sampling(request.sampling, self.vocab);
        if let Err(error) = self.batch.set_sampling(id, &sampling) {
            self.batch.leave(id)?;
            return Err(error);
        }
        Ok(id)
    }

    /// Removes the text that was named least recently.
    fn drop_oldest(&mut self) {
        let following = self.texts.iter().filter(|(_, text)| {
            matches!(text.state, DraftedTextState::Following(_)) && text.used < self.calls
        });
        let oldest = following.min_by_key(|(_, text)| text.used);
        // There is none if all texts of the batch are named in this call.
        if let Some((&number, _)) = oldest {
            self.forget(number);
        }
    }

    /// Processes what is missing of the texts, and appends the guesses of those that are complete.
    fn guess(
        &mut self,
        work: &[BatchDraftRequest<'_>],
        texts: Vec<Guessing>,
        steps: u32,
        drafts: &mut [Vec<u32>],
    ) -> Result<(), Error> {
        let next = |text: &Guessing| {
            let tokens = work[text.index].tokens;
            (text.id, tokens[tokens.len() - 1])
        };

        // Usually only the last token of each text is missing. All guesses are then decode steps.
        let is_ready = |text: &Guessing| text.first + 1 == work[text.index].tokens.len();
        if texts.iter().all(is_ready) {
            let given: Vec<_> = texts.iter().map(next).collect();
            let made = self.batch.decode(&given, steps)?;
            for (text, made) in texts.iter().zip(made) {
                drafts[text.index] = made;
            }
            return Ok(());
        }

        // Otherwise, a step of several tokens makes the first guess.
        let mut left = self.options.tokens_per_call as usize;
        let mut items = vec![];
        let mut guessing = vec![];
        for text in texts {
            let missing = &work[text.index].tokens[text.first..];
            let count = missing.len().min(left);
            if count == 0 {
                continue;
            }
            left -= count;
            let is_complete = count == missing.len();
            items.push(BatchItem {
                sequence: text.id,
                tokens: &missing[..count],
                class: RowClass::Prompt,
                wanted: if is_complete {
                    BatchWanted::Next
                } else {
                    BatchWanted::Nothing
                },
                matcher: None,
            });
            guessing.push((text, is_complete));
        }

        let stepped = self.batch.step_items(&mut items)?;
        let mut given = vec![];
        let mut complete = vec![];
        for ((text, is_complete), stepped) in guessing.into_iter().zip(stepped) {
            if !is_complete {
                continue;
            }
            let token = stepped.next.expect("it was wanted");
            drafts[text.index].push(token);
            given.push((text.id, token));
            complete.push(text.index);
        }
        if given.is_empty() || steps == 1 {
            return Ok(());
        }
        let made = self.batch.decode(&given, steps - 1)?;
        for (index, made) in complete.into_iter().zip(made) {
            drafts[index].extend(made);
        }
        Ok(())
    }

    /// Records that the draft model has failed in a text.
    fn fail(&mut self, failed: SequenceId) -> Result<(), Error> {
        self.batch.leave(failed)?;
        for text in self.texts.values_mut() {
            if matches!(text.state, DraftedTextState::Following(id) if id == failed) {
                text.state = DraftedTextState::Failed;
            }
        }
        Ok(())
    }
}
