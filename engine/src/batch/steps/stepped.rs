//! Steps of a batch: prompts, single tokens and grammars of any mix of sequences.
//!
//! A step is one pass of the model over all its rows. It is launched in one of these ways:
//! - Single tokens without a grammar are the graph of [`decode`](Batch::decode).
//! - Other rows are launched kernel by kernel.
//! - If a sequence follows a grammar, the choice of tokens is a second launch, which waits for the
//!   masks that the host works out during the pass.

use warpwright_kernels::prompt::Item;
use warpwright_model::Matcher;

use super::constrained::ConstrainedSequence;
use super::row_class::RowClass;
use super::scored::ScoreRequest;
use crate::Error;
use crate::batch::device::StepInput;
use crate::batch::engine::Batch;
use crate::batch::latest_tokens::LatestTokens;
use crate::batch::options::BatchRounding;
use crate::batch::sequence_id::SequenceId;
use crate::chunked::kernels;
use crate::chunked::products::ColumnSplits;
use crate::decode::finite::check_logits;
use crate::sampling::probabilities::LogProbabilities;

/// The work of a sequence in a step.
pub struct BatchItem<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// The next tokens of the sequence, at least one.
    pub tokens: &'a [u32],
    /// The origin of the tokens.
    pub class: RowClass,
    /// The results to return.
    pub wanted: BatchWanted,
    /// The grammar of the next token, at the end of the given tokens, or `None`. It consumes the
    /// chosen token. It is not used if no next token is wanted.
    pub matcher: Option<&'a mut Matcher>,
}

/// The results that a step returns for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchWanted {
    /// Nothing. The tokens do not go through the LM head.
    Nothing,
    /// The token after the given ones.
    Next,
    /// The tokens that are chosen after the first given token and after each of the following ones,
    /// which are drafts, up to the first draft that was not chosen. That draft and those after it
    /// are rejected: the sequence does not get them. See `verified`.
    Verified,
    /// The log-probabilities of tokens that are known already, such as those of a prompt.
    Scored {
        /// The number of most likely tokens to return with each one. It must not exceed the number
        /// that the batch was created for: see [`TokenChoice`](crate::TokenChoice).
        best: u32,
        /// The token after the given ones, if it is known. It is scored too. If it is `None`, the
        /// step chooses a token as for [`Next`](BatchWanted::Next).
        following: Option<u32>,
    },
}

/// The results of a step for a sequence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchStepped {
    /// The chosen token, if one was wanted.
    pub next: Option<u32>,
    /// The tokens for [`BatchWanted::Verified`]: the accepted drafts and the token after them. The
    /// sequence gets the first given token and the accepted drafts. The list is empty otherwise.
    pub verified: Vec<u32>,
    /// The log-probabilities of the given tokens but the first, and of the following one if it was
    /// given. They are taken at temperature 1, without biases, penalties and grammars. The list is
    /// empty unless [`BatchWanted::Scored`] was given.
    pub scored: Vec<LogProbabilities>,
}

impl<'a> BatchItem<'a> {
    /// Returns the work that chooses the next token after `tokens`, without a grammar. Several
    /// tokens are taken as a prompt, and a single one as a chosen token.
    pub fn next(sequence: SequenceId, tokens: &'a [u32]) -> BatchItem<'a> {
        let class = if tokens.len() == 1 {
            RowClass::Decode
        } else {
            RowClass::Prompt
        };
        BatchItem {
            sequence,
            tokens,
            class,
            wanted: BatchWanted::Next,
            matcher: None,
        }
    }

    /// Returns the class of the pass that processes the tokens. Several tokens go the way of a
    /// prompt, unless they are drafts.
    fn pass_class(&self) -> RowClass {
        if self.tokens.len() == 1 || self.wanted == BatchWanted::Verified {
            self.class
        } else {
            RowClass::Prompt
        }
    }

    /// Returns true if each token is a row like the only token of a sequence.
    fn has_single_rows(&self) -> bool {
        self.tokens.len() == 1 || self.wanted == BatchWanted::Verified
    }

    /// Returns true if a token is chosen after the given ones.
    fn chooses(&self) -> bool {
        match self.wanted {
            BatchWanted::Nothing => false,
            BatchWanted::Next | BatchWanted::Verified => true,
            BatchWanted::Scored { following, .. } => following.is_none(),
        }
    }

    /// Returns the number of best tokens and the tokens to score, the first of which follows the
    /// first given one.
    fn scores(&self) -> Option<(u32, Vec<u32>)> {
        match self.wanted {
            BatchWanted::Nothing | BatchWanted::Next | BatchWanted::Verified => None,
            BatchWanted::Scored { best, following } => {
                let known = self.tokens.iter().copied().skip(1).chain(following);
                Some((best, known.collect()))
                    .filter(|(_, tokens): &(u32, Vec<u32>)| !tokens.is_empty())
            }
        }
    }
}

/// The rows of a pass.
struct PassRows {
    input: StepInput,
    /// The item of each selected row.
    heads: Vec<usize>,
    /// The item of each row that is like the only one of its sequence. These rows come first.
    singles: Vec<usize>,
    /// The first row of each item of the pass, with the item.
    firsts: Vec<(usize, u32)>,
}

/// A pass whose results are not read yet.
struct LaunchedPass {
    /// The items whose rows went through the LM head, with their rows of the pass. The index is the
    /// row of the head. An item with drafts has consecutive rows.
    heads: Vec<(usize, u32)>,
    /// The known tokens that are scored, by item.
    scores: Vec<(usize, ScoreRequest)>,
    splits: ColumnSplits,
}

impl Batch {
    /// Processes one or more tokens of some sequences, and returns the next token after each
    /// sequence.
    ///
    /// It is [`step_items`](Batch::step_items) with [`BatchItem::next`]. The results of a sequence
    /// do not depend on the other sequences in the step, apart from the bucket: see
    /// [`BatchOptions::bucket`](crate::BatchOptions::bucket).
    ///
    /// # Errors
    /// Returns the errors of [`step_items`](Batch::step_items).
    pub fn step(&mut self, work: &[(SequenceId, &[u32])]) -> Result<Vec<u32>, Error> {
        let items = work
            .iter()
            .map(|(sequence, tokens)| BatchItem::next(*sequence, tokens));
        self.step_next(&mut items.collect::<Vec<_>>())
    }

    /// Processes the tokens of some sequences and returns the next token of each, where sequences
    /// may follow grammars.
    ///
    /// It works like [`step`](Batch::step). Each matcher consumes the token that was chosen for its
    /// sequence. Pass a matcher at the end of the text so far: a new one with the tokens of a
    /// prompt, and later one that has consumed all tokens after the prompt. The
    /// [logits](Batch::logits) of forbidden tokens are lowered to -2^100.
    ///
    /// # Errors
    /// - [`Error::NotConstrained`] if the batch was not made with
    ///   [`TokenChoice::Constrained`](crate::TokenChoice).
    /// - The errors of [`step_items`](Batch::step_items).
    pub fn step_constrained(
        &mut self,
        work: &mut [ConstrainedSequence<'_>],
    ) -> Result<Vec<u32>, Error> {
        self.check_constrained()?;
        let items = work.iter_mut().map(|item| BatchItem {
            matcher: item.matcher.as_deref_mut(),
            ..BatchItem::next(item.sequence, item.tokens)
        });
        self.step_next(&mut items.collect::<Vec<_>>())
    }

    /// Runs a step whose items all choose a token.
    fn step_next(&mut self, items: &mut [BatchItem<'_>]) -> Result<Vec<u32>, Error> {
        let stepped = self.step_items(items)?;
        let next = stepped.into_iter().map(|stepped| stepped.next);
        Ok(next.map(|token| token.expect("it was wanted")).collect())
    }

    /// Processes tokens of some sequences, and returns the results that each wants.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] or [`Error::SequenceTwice`] if a sequence is not in the batch or
    ///   appears twice.
    /// - [`Error::NoPrompt`], [`Error::PromptToken`] or [`Error::StepTokens`] if a sequence has no
    ///   tokens, an id is not in the vocabulary, or the step is too large.
    /// - [`Error::NotConstrained`] or [`Error::OtherVocabulary`] if a grammar cannot be applied.
    /// - [`Error::DraftsConstrained`] or [`Error::DraftRows`] if drafts cannot be verified.
    /// - [`Error::BestTokens`] if more best tokens are wanted than the batch was created for.
    /// - [`Error::SequenceLength`] or [`Error::NoPages`] if a sequence or the cache has too little
    ///   space left.
    /// - [`Error::InSequence`] if the step fails because of one sequence: a logit is not finite
    ///   ([`Error::Logit`]), or its grammar allows no token ([`Error::Model`]). The others can be
    ///   stepped without it.
    /// - [`Error::Driver`] if a driver call fails. You cannot use the batch afterwards.
    ///
    /// After all errors but the last, the sequences have the tokens that they had before, and no
    /// grammar has advanced.
    pub fn step_items(&mut self, work: &mut [BatchItem<'_>]) -> Result<Vec<BatchStepped>, Error> {
        self.step_items_with(work, || ())
    }

    /// Works like [`step_items`](Batch::step_items), and calls `meanwhile` on this thread while the
    /// device computes.
    ///
    /// The masks of grammars are worked out before that. `meanwhile` is not called if the step
    /// fails before its first launch. The host otherwise waits for the device, so the call costs
    /// nothing as long as it is shorter than the step. It pays for work of 0.1 ms and more per
    /// step, such as sending tokens to many clients: a step of 64 sequences of an 8B model takes
    /// about 5 ms. Steps of [`decode`](Batch::decode) do not need it, because two launches are
    /// always in flight there.
    ///
    /// # Errors
    /// Returns the errors of [`step_items`](Batch::step_items).
    pub fn step_items_with(
        &mut self,
        work: &mut [BatchItem<'_>],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<BatchStepped>, Error> {
        self.check_items(work)?;
        let counts = work
            .iter()
            .map(|item| (item.sequence, item.tokens.len() as u32));
        self.reserve(&counts.collect::<Vec<_>>())?;
        self.write_latest(work.iter().map(|item| LatestTokens {
            sequence: item.sequence,
            given: item.tokens,
            chosen: match item.wanted {
                BatchWanted::Verified => item.tokens.len(),
                BatchWanted::Nothing | BatchWanted::Next | BatchWanted::Scored { .. } => 1,
            },
        }))?;
        self.forget_latest(work.iter().map(|item| item.sequence))?;

        // All results are read before any sequence grows, so a failed step changes no sequence.
        let mut stepped = vec![BatchStepped::default(); work.len()];
        let mut meanwhile = Some(meanwhile);
        for (class, items) in self.passes(work) {
            let launched = self.launch_pass(work, class, &items)?;
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            self.read_pass(work, &launched, &mut stepped)?;
        }
        for (item, stepped) in work.iter().zip(&stepped) {
            if item.wanted == BatchWanted::Verified {
                // Rejected drafts leave nothing: their pages are released, and their keys and values
                // in the last page are overwritten before they are read.
                let kept = &item.tokens[..stepped.verified.len()];
                self.sequences.append(item.sequence, kept);
                self.sequences.release_rest(item.sequence);
            } else {
                self.sequences.append(item.sequence, item.tokens);
            }
        }
        for (item, stepped) in work.iter_mut().zip(&stepped) {
            let (Some(matcher), Some(token)) = (&mut item.matcher, stepped.next) else {
                continue;
            };
            matcher.take_chosen(token)?;
            self.record_best(item.sequence)?;
        }

        Ok(stepped)
    }

    /// Checks the work of a step.
    fn check_items(&self, work: &[BatchItem<'_>]) -> Result<(), Error> {
        self.check_work(work.iter().map(|item| (item.sequence, item.tokens)))?;
        let matchers = work.iter().filter_map(|item| item.matcher.as_deref());
        self.check_matchers(matchers)?;
        self.check_drafts(work)?;
        let most = self.options.choice.logprobs().unwrap_or(0);
        let vocab = self.device.config.vocab;
        for item in work {
            let BatchWanted::Scored { best, following } = item.wanted else {
                continue;
            };
            if best > most {
                return Err(Error::BestTokens { best, most });
            }
            if let Some(id) = following.filter(|token| *token >= vocab) {
                let index = item.tokens.len();
                return Err(Error::PromptToken { index, id, vocab });
            }
        }
        Ok(())
    }

    /// Checks the drafts of a step.
    fn check_drafts(&self, work: &[BatchItem<'_>]) -> Result<(), Error> {
        let with_drafts = |item: &&BatchItem<'_>| item.wanted == BatchWanted::Verified;
        if !work.iter().any(|item| with_drafts(&item)) {
            return Ok(());
        }
        if work
            .iter()
            .filter(with_drafts)
            .any(|item| item.matcher.is_some())
        {
            return Err(Error::DraftsConstrained);
        }
        // Attention of single rows and the LM head have buffers for this many rows.
        let rows = work.iter().map(|item| {
            if item.has_single_rows() {
                item.tokens.len()
            } else {
                1
            }
        });
        let rows = rows.sum();
        let most = self.verified_per_step();
        if rows > most as usize {
            return Err(Error::DraftRows { rows, most });
        }
        Ok(())
    }

    /// Returns the maximum number of tokens that a step with drafts chooses, over all sequences:
    /// see [`BatchWanted::Verified`]. It is at least the number of sequences, and at least 64.
    pub fn verified_per_step(&self) -> u32 {
        self.device.head.capacity
    }

    /// Returns the passes of a step, with the indices of their items. If all steps must round in the
    /// same way, each class has its own pass.
    fn passes(&self, work: &[BatchItem<'_>]) -> Vec<(RowClass, Vec<usize>)> {
        let of = |class: RowClass| {
            let items = (0..work.len()).filter(|&item| work[item].pass_class() == class);
            (class, items.collect::<Vec<_>>())
        };
        match self.options.rounding {
            BatchRounding::Fastest => vec![(RowClass::Prompt, (0..work.len()).collect())],
            BatchRounding::Same => {
                let mut passes = vec![of(RowClass::Decode), of(RowClass::Prompt)];
                passes.retain(|(_, items)| !items.is_empty());
                passes
            }
        }
    }

    /// Launches a pass over some items, and the choice of their tokens.
    fn launch_pass(
        &mut self,
        work: &mut [BatchItem<'_>],
        class: RowClass,
        items: &[usize],
    ) -> Result<LaunchedPass, Error> {
        let splits = self.options.splits(class);
        let PassRows {
            input,
            heads,
            singles,
            firsts,
        } = self.pass_rows(work, class, items);
        let scores = self.score_requests(work, splits, &firsts);
        let constrained = heads.iter().any(|&item| work[item].matcher.is_some());
        let drafted = items
            .iter()
            .any(|&item| work[item].has_single_rows() && work[item].tokens.len() > 1);

        // There is no graph of drafts without the choice of tokens.
        let single = input.items.is_empty() && scores.is_empty() && !(drafted && constrained);

        // A graph processes all its rows alike, so tokens are chosen even for items that want none.
        let heads: Vec<(usize, u32)> = if single {
            singles.into_iter().zip(0..).collect()
        } else {
            heads
                .into_iter()
                .zip(input.selected.iter().copied())
                .collect()
        };
        if !constrained {
            self.free(heads.iter().map(|(item, _)| work[*item].sequence))?;
        }

        let sizes = match (single, constrained) {
            (true, false) if drafted => self.device.draft_graph(input.states)?,
            (true, false) => self.device.step_graph(input.states)?,
            (true, true) => self.device.logits_graph(input.states)?,
            (false, _) => self.device.logits(&input)?,
        };
        if constrained {
            // The device computes the logits while the host works out the masks.
            for (item, _) in &heads {
                let BatchItem {
                    sequence, matcher, ..
                } = &mut work[*item];
                self.allow(*sequence, matcher.as_deref_mut())
                    .map_err(|error| in_sequence(*sequence, error))?;
            }
            self.device.choose_constrained(sizes)?;
        } else if !single {
            self.device.choose(sizes)?;
        }

        let scores = scores.into_iter().map(|(item, mut request)| {
            self.launch_scores(&mut request)?;
            Ok((item, request))
        });
        let scores = scores.collect::<Result<_, Error>>()?;
        Ok(LaunchedPass {
            heads,
            scores,
            splits,
        })
    }

    /// Waits for a pass, and reads the results of its items.
    fn read_pass(
        &mut self,
        work: &[BatchItem<'_>],
        launched: &LaunchedPass,
        stepped: &mut [BatchStepped],
    ) -> Result<(), Error> {
        self.device.stream.synchronize()?;
        for (head, &(item, row)) in (0..).zip(&launched.heads) {
            let BatchItem {
                sequence,
                tokens,
                wanted,
                ..
            } = &work[item];
            if !work[item].chooses() {
                continue;
            }

            // Rows after a rejected draft have no meaning, not even if their logits are not finite.
            let verified = stepped[item].verified.len();
            let is_rejected = tokens.get(verified) != stepped[item].verified.last();
            if *wanted == BatchWanted::Verified && verified > 0 && is_rejected {
                continue;
            }

            let rows = match wanted {
                BatchWanted::Verified => verified + 1,
                BatchWanted::Nothing | BatchWanted::Next | BatchWanted::Scored { .. } => {
                    tokens.len()
                }
            };
            let position = (self.sequences.get(*sequence)?.tokens.len() + rows) as u32 - 1;
            let Some(token) = self.chosen(*sequence, position) else {
                // Scores overwrite the logits of the head.
                let reason = if launched.scores.is_empty() {
                    self.no_token(position, head)
                } else {
                    self.no_token_in_row(row, position, launched.splits)?
                };
                return Err(in_sequence(*sequence, reason));
            };
            match wanted {
                BatchWanted::Verified => stepped[item].verified.push(token),
                BatchWanted::Nothing | BatchWanted::Next | BatchWanted::Scored { .. } => {
                    stepped[item].next = Some(token);
                }
            }
        }

        for (item, request) in &launched.scores {
            stepped[*item].scored = match self.read_scores(request)? {
                Ok(scores) => scores,
                Err(row) => {
                    let position = request.position + row;
                    let row = request.row + row;
                    let reason = self.no_token_in_row(row, position, launched.splits)?;
                    return Err(in_sequence(request.sequence, reason));
                }
            };
        }

        // Scores overwrite the logits of the chosen tokens.
        self.latest = if launched.scores.is_empty() {
            let mut latest = vec![];
            let mut previous = None;
            for (head, &(item, _)) in (0..).zip(&launched.heads) {
                // The logits after the last accepted draft are those of the latest token.
                let first = previous.replace(item) != Some(item);
                if first && work[item].chooses() {
                    let accepted = stepped[item].verified.len().saturating_sub(1) as u32;
                    latest.push((work[item].sequence, head + accepted));
                }
            }
            latest
        } else {
            vec![]
        };
        Ok(())
    }

    /// Returns the reason why no token was chosen after a position. `row` is its row of the latest
    /// pass.
    fn no_token_in_row(
        &mut self,
        row: u32,
        position: u32,
        splits: ColumnSplits,
    ) -> Result<Error, Error> {
        self.device.logits_of_rows(&[row], splits)?;
        let logits = self.device.stream.read(&self.device.head.logits(0))?;
        let finite = check_logits(position, &logits);
        Ok(finite.err().unwrap_or(Error::NoToken { position }))
    }

    /// Returns the known tokens that are scored in a pass, with their items.
    fn score_requests(
        &self,
        work: &[BatchItem<'_>],
        splits: ColumnSplits,
        firsts: &[(usize, u32)],
    ) -> Vec<(usize, ScoreRequest)> {
        let request = |&(item, row): &(usize, u32)| {
            let sequence = work[item].sequence;
            let (best, tokens) = work[item].scores()?;
            let request = ScoreRequest {
                sequence,
                row,
                position: self.first_position(sequence),
                tokens,
                best,
                splits,
                likelihoods: None,
            };
            Some((item, request))
        };
        firsts.iter().filter_map(request).collect()
    }

    /// Returns the position of a sequence's next token. The sequence must be in the batch.
    fn first_position(&self, sequence: SequenceId) -> u32 {
        let sequence = self.sequences.get(sequence);
        sequence.expect("the work was checked").tokens.len() as u32
    }

    /// Returns the rows of a pass over some items. Items with one token or with drafts come first,
    /// and then the others, the longest first.
    fn pass_rows(&self, work: &[BatchItem<'_>], class: RowClass, items: &[usize]) -> PassRows {
        // The attention of single tokens rounds differently from that of several. A single token of
        // a prompt therefore goes the way of the other ones if all steps must round alike.
        let single_attention = match self.options.rounding {
            BatchRounding::Fastest => true,
            BatchRounding::Same => class == RowClass::Decode,
        };
        let mut order = items.to_vec();
        order.sort_by_key(|&index| {
            if work[index].has_single_rows() {
                0
            } else {
                u32::MAX - work[index].tokens.len() as u32
            }
        });
        let queries = kernels::queries(self.cores, &self.device.config);
        let mut pass = PassRows {
            input: StepInput::new(self.options.splits(class)),
            heads: vec![],
            singles: vec![],
            firsts: vec![],
        };
        let mut items = vec![];
        for index in order {
            let BatchItem {
                sequence, tokens, ..
            } = work[index];
            let first = self.first_position(sequence);
            let row = pass.input.states.len() as u32;
            let count = tokens.len() as u32;
            let limit = self.options.ctx;
            let states = (first..)
                .zip(tokens)
                .map(|(position, &token)| self.row_state(sequence, token, position, limit));
            pass.input.states.extend(states);
            pass.firsts.push((index, row));

            // Only the last token of a sequence can need logits, except for drafts.
            let first_head = match work[index].wanted {
                BatchWanted::Verified => row,
                BatchWanted::Nothing | BatchWanted::Next | BatchWanted::Scored { .. } => {
                    row + count - 1
                }
            };
            if work[index].chooses() {
                for head in first_head..row + count {
                    pass.input.selected.push(head);
                    pass.heads.push(index);
                }
            }
            if work[index].has_single_rows() && single_attention {
                pass.input.singles += count;
                pass.singles.extend((0..count).map(|_| index));
                continue;
            }

            let item = Item {
                row,
                rows: count,
                position: first,
                sequence: sequence.row,
            };
            items.extend(item.split(queries));
        }

        // The items with the most keys start first, because they take longest.
        items.sort_by_key(|item| std::cmp::Reverse(item.position + item.rows));
        pass.input.items = items;
        pass
    }
}

/// Returns an error that names the sequence that caused it. Errors of the driver concern all
/// sequences.
pub(super) fn in_sequence(sequence: SequenceId, error: Error) -> Error {
    match error {
        error @ Error::Driver(_) => error,
        error => Error::InSequence {
            sequence,
            error: Box::new(error),
        },
    }
}
