//! The public batch type.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::View;
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::{LogLikelihood, RmsNorm};
use warpwright_model::{Model, Outline};

use super::adapters::loaded::BatchAdapters;
use super::adapters::prepared::AdapterPreparer;
use super::device::{BatchDevice, StepInput, StepRows};
use super::latest_tokens::LatestTokens;
use super::memory;
use super::options::BatchOptions;
use super::sequence_id::SequenceId;
use super::sequences::Sequences;
use super::steps::row_class::RowClass;
use super::stored::known_pages::KnownPages;
use crate::Error;
use crate::chunked::kernels;
use crate::chunked::products::TensorCores;
use crate::decode::finite::check_logits;
use crate::decode::in_flight::InFlight;
use crate::pipeline::resolved::{ResolvedEmbed, ResolvedPipeline, check_whole_rows};
use crate::pipeline::tuning::Tuning;
use crate::sampling::options::Sampling;
use crate::weights::packed::{Packed, packed};
use crate::weights::random::RandomPools;
use crate::weights::upload;

/// Sequences that are stepped together over one copy of a model's weights.
///
/// Add sequences with [`join`](Batch::join) or [`fork`](Batch::fork). [`step`](Batch::step)
/// processes prompts and single tokens of any mix of sequences. [`decode`](Batch::decode) generates
/// several tokens of each without returning to the host in between.
///
/// # Example: two prompts
///
/// ```no_run
/// use warpwright_driver::{Context, Driver};
/// use warpwright_engine::{Batch, BatchOptions};
/// use warpwright_model::Model;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::open("model.gguf".as_ref())?;
/// let tokenizer = model.tokenizer()?;
/// let context = Context::new(&Driver::load()?.devices()?[0])?;
/// let mut batch = Batch::new(&context, &model, BatchOptions::new(8, 1024), |_bytes| ())?;
/// let prompts = ["The borrow checker", "A kernel"];
/// let ids = prompts.map(|text| tokenizer.encode(text));
/// let ids: Vec<Vec<u32>> = ids.into_iter().collect::<Result<_, _>>()?;
/// let joined = ids.iter().map(|_| batch.join()).collect::<Result<Vec<_>, _>>()?;
/// let work: Vec<_> = joined.iter().copied().zip(ids.iter().map(Vec::as_slice)).collect();
/// let next = batch.step(&work)?;
/// let work: Vec<_> = joined.iter().copied().zip(next).collect();
/// for tokens in batch.decode(&work, 48)? {
///     println!("{}", tokenizer.decode(&tokens));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Batch {
    pub(super) device: BatchDevice,
    pub(super) sequences: Sequences,
    pub(super) cores: TensorCores,
    pub(super) options: BatchOptions,
    /// The tokens that end a text.
    pub(super) stop: Vec<u32>,
    in_flight: InFlight,
    /// The sampling parameters of each row's sequence.
    pub(super) sampled: Vec<Sampling>,
    pub(super) adapters: BatchAdapters,
    /// The sequences whose latest logits are available, with their rows of the head.
    pub(super) latest: Vec<(SequenceId, u32)>,
    /// The saved pages that prompts can use.
    pub(super) stored: Option<KnownPages>,
    /// The number of best tokens recorded at a row and position, where a grammar left fewer than
    /// requested.
    pub(super) fewer: BTreeMap<(u32, u32), u32>,
    /// The kernel that scores known tokens, once it is needed.
    pub(super) likelihood: Option<Arc<Kernel<LogLikelihood>>>,
    /// The kernel that norms the hidden states of texts, once it is needed.
    pub(super) norm: Option<Kernel<RmsNorm>>,
}

impl Batch {
    /// Uploads the weights of `model` and prepares a batch without sequences.
    ///
    /// `progress` is called from other threads with the number of bytes copied so far.
    ///
    /// # Errors
    /// - [`Error::BatchOption`], [`Error::BatchBucket`] or [`Error::BatchReuse`] if an option is out
    ///   of range.
    /// - [`Error::NoBatch`] if there are no kernels for batches of this model on this device.
    /// - [`Error::BatchMemory`] if the device has too little free memory.
    /// - [`Error::Model`] if the model's files cannot be read any more.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn new(
        context: &Context,
        model: &Model,
        options: BatchOptions,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Batch, Error> {
        let outline = &model.outline;
        let kernels = Batch::check(context, outline, options)?;
        let (weights, _) = upload::with_uploader(context, model, progress, |jobs| {
            packed(outline).load(context, jobs.sink())
        })?;
        Batch::assemble(context, outline, weights, kernels, options)
    }

    /// Creates a batch with random weights for a model that has no file. Its texts are nonsense.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Batch::new) that do not concern files.
    pub fn random(
        context: &Context,
        outline: &Outline,
        options: BatchOptions,
    ) -> Result<Batch, Error> {
        let kernels = Batch::check(context, outline, options)?;
        let mut pools = RandomPools::for_model(context, outline)?;
        let weights = packed(outline).load(context, |job| pools.write(&job))?;
        pools.finish()?;
        Batch::assemble(context, outline, weights, kernels, options)
    }

    /// Checks that the batch can be created, and returns the decisions about its kernels.
    fn check(
        context: &Context,
        outline: &Outline,
        options: BatchOptions,
    ) -> Result<(TensorCores, ResolvedEmbed), Error> {
        options.check(outline.config.context)?;
        if outline.adapter.is_some() {
            let why =
                "an adapter of the whole batch is not supported: open the model without it, and \
                       pass it to Batch::load_adapter"
                    .to_owned();
            return Err(Error::NoBatch { why });
        }

        let resolved = ResolvedPipeline::for_model(outline, context.device(), Tuning::default(), 1);
        let resolved = resolved.map_err(|why| Error::NoBatch {
            why: why.to_string(),
        })?;
        let cores = kernels::check(context.device(), &outline.config)
            .map_err(|why| Error::NoBatch { why })?;
        check_whole_rows(outline).map_err(|why| Error::NoBatch {
            why: why.to_string(),
        })?;
        memory::check(context, outline, &options)?;
        Ok((cores, resolved.single.embed))
    }

    fn assemble(
        context: &Context,
        outline: &Outline,
        weights: Packed<View<u8>>,
        (cores, embed): (TensorCores, ResolvedEmbed),
        options: BatchOptions,
    ) -> Result<Batch, Error> {
        let device = BatchDevice::new(context, cores, outline, weights, embed, options)?;
        let preparer = AdapterPreparer::new(device.chunked.lora_shapes());
        Ok(Batch {
            device,
            sequences: Sequences::new(options.sequences, options.pages(), options.ctx),
            cores,
            options,
            stop: outline.stop.clone(),
            in_flight: InFlight::new(context)?,
            sampled: vec![Sampling::greedy(); options.sequences as usize],
            adapters: BatchAdapters::new(options.sequences, preparer),
            latest: vec![],
            stored: None,
            fewer: BTreeMap::new(),
            likelihood: None,
            norm: None,
        })
    }

    /// Adds a sequence without tokens and returns its id. It is greedy until
    /// [`set_sampling`](Batch::set_sampling) is called.
    ///
    /// # Errors
    /// Returns [`Error::BatchFull`] if the batch has as many sequences as its options allow, or a
    /// driver error.
    pub fn join(&mut self) -> Result<SequenceId, Error> {
        let joined = self.sequences.join()?;
        self.adapters.set(joined, None);
        self.sample(joined, Sampling::greedy())?;
        Ok(joined)
    }

    /// Adds a sequence that starts with the first `len` tokens of another one, and returns its id.
    ///
    /// The two share the keys and values of these tokens. The new sequence has the sampling
    /// parameters and the adapter of the other one.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the other sequence is not in the batch.
    /// - [`Error::SequenceShort`] if it has fewer than `len` tokens.
    /// - [`Error::BatchFull`] if the batch has as many sequences as its options allow.
    /// - [`Error::Driver`] if the copy of the parameters fails.
    pub fn fork(&mut self, of: SequenceId, len: u32) -> Result<SequenceId, Error> {
        let forked = self.sequences.fork(of, len)?;
        let adapter = self.adapters.of_sequence(of);
        self.adapters.set(forked, adapter);
        self.sample(forked, self.sampled[of.row as usize].clone())?;
        Ok(forked)
    }

    /// Removes a sequence and frees its pages, except those that other sequences share. If it joined
    /// with [`join_prompt`](Batch::join_prompt), its pages are kept until they are needed.
    ///
    /// # Errors
    /// Returns [`Error::NoSequence`] if the sequence is not in the batch.
    pub fn leave(&mut self, sequence: SequenceId) -> Result<(), Error> {
        self.sequences.leave(sequence)?;
        self.adapters.set(sequence, None);
        Ok(())
    }

    /// Removes all tokens of a sequence but the first `len`.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the sequence is not in the batch.
    /// - [`Error::SequenceShort`] if it has fewer than `len` tokens.
    pub fn roll_back(&mut self, sequence: SequenceId, len: u32) -> Result<(), Error> {
        self.sequences.roll_back(sequence, len)
    }

    /// Returns the tokens of a sequence whose keys and values are in the cache.
    ///
    /// The token that the latest step chose is not among them. Pass it to the next step.
    ///
    /// # Errors
    /// Returns [`Error::NoSequence`] if the sequence is not in the batch.
    pub fn tokens(&self, sequence: SequenceId) -> Result<&[u32], Error> {
        Ok(&self.sequences.get(sequence)?.tokens)
    }

    /// Returns the sequence without an adapter that has the longest common prefix with `tokens`, and
    /// the length of the prefix. Pass both to [`fork`](Batch::fork) to reuse the prefix.
    pub fn longest_prefix(&self, tokens: &[u32]) -> Option<(SequenceId, u32)> {
        let plain = |id| self.adapters.of_sequence(id).is_none();
        self.sequences.longest_prefix(tokens, plain)
    }

    /// Returns the number of pages that a step can take, free or [kept](Batch::page_counts), and of
    /// all pages. A page has 64 positions.
    pub fn free_pages(&self) -> (u32, u32) {
        (
            self.sequences.pages().available(),
            self.sequences.pages().count(),
        )
    }

    /// Generates up to `steps` tokens of each sequence, which is given with its next token, and
    /// returns the tokens by sequence.
    ///
    /// The next token is the one that [`step`](Batch::step) returned. A sequence ends after a token
    /// that ends texts. Several steps are launched as one graph, and the host transfers nothing
    /// between them.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Batch::step). Each sequence counts as one token of the step.
    pub fn decode(
        &mut self,
        work: &[(SequenceId, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.check_work(
            work.iter()
                .map(|(id, token)| (*id, std::slice::from_ref(token))),
        )?;
        if steps == 0 {
            return Ok(vec![vec![]; work.len()]);
        }

        let counts: Vec<_> = work.iter().map(|(id, _)| (*id, steps)).collect();
        self.reserve(&counts)?;
        let firsts = work
            .iter()
            .map(|(id, _)| Ok(self.sequences.get(*id)?.tokens.len() as u32));
        let firsts = firsts.collect::<Result<Vec<_>, Error>>()?;
        let states = work
            .iter()
            .zip(&firsts)
            .map(|((id, token), &first)| self.row_state(*id, *token, first, first + steps));
        let rows = self.device.write_rows(states.collect())?;
        self.write_latest(work.iter().map(|(id, token)| LatestTokens {
            sequence: *id,
            given: std::slice::from_ref(token),
            chosen: 1,
        }))?;
        self.forget_latest(work.iter().map(|(id, _)| *id))?;
        self.free(work.iter().map(|(id, _)| *id))?;
        let mut progress = DecodeProgress {
            firsts,
            made: vec![vec![]; work.len()],
            failed: None,
        };
        let launched = self.launch_steps(work, rows, steps, &mut progress)?;
        if let Some(failed) = progress.failed {
            for (id, _) in work {
                self.sequences.release_rest(*id);
            }
            return Err(self.explain_failure(failed)?);
        }

        for ((row, (id, token)), made) in (0..).zip(work).zip(&progress.made) {
            // The last token made was chosen but not processed.
            let processed = made.split_last().map_or(&[][..], |(_, before)| before);
            self.sequences.append(*id, &[&[*token], processed].concat());
            // Steps after the end of a text overwrite its logits, and it needs no further pages.
            if made.len() as u32 == launched {
                self.latest.push((*id, row));
            } else {
                self.sequences.release_rest(*id);
            }
        }

        Ok(progress.made)
    }

    /// Returns the logits after the last token of a sequence that was in the latest step.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the sequence is not in the batch.
    /// - [`Error::NoLogits`] if it was not in the latest step, or ended while other sequences were
    ///   decoded further.
    /// - [`Error::Driver`] if the copy fails.
    pub fn logits(&self, sequence: SequenceId) -> Result<Vec<f32>, Error> {
        self.sequences.get(sequence)?;
        let (_, row) = self
            .latest
            .iter()
            .find(|(id, _)| *id == sequence)
            .ok_or(Error::NoLogits)?;
        Ok(self.device.stream.read(&self.device.head.logits(*row))?)
    }
}

/// The progress of several decode steps.
struct DecodeProgress {
    /// The position of each sequence's first token.
    firsts: Vec<u32>,
    /// The tokens generated so far, by sequence.
    made: Vec<Vec<u32>>,
    /// The first step that chose no token.
    failed: Option<FailedStep>,
}

/// A step that chose no token: its sequence, the token that it processed, and its position.
#[derive(Clone, Copy)]
struct FailedStep {
    id: SequenceId,
    token: u32,
    position: u32,
}

impl Batch {
    /// Discards records about steps that are overwritten now.
    pub(super) fn forget_latest(
        &mut self,
        work: impl Iterator<Item = SequenceId>,
    ) -> Result<(), Error> {
        self.latest.clear();
        for id in work {
            let len = self.sequences.get(id)?.tokens.len() as u32;
            self.fewer
                .retain(|(row, position), _| *row != id.row || *position < len);
        }
        Ok(())
    }

    /// Launches the steps with two launches in flight, collects the tokens of completed launches,
    /// and returns the number of steps launched.
    fn launch_steps(
        &mut self,
        work: &[(SequenceId, u32)],
        rows: StepRows,
        steps: u32,
        progress: &mut DecodeProgress,
    ) -> Result<u32, Error> {
        let mut launched = 0;
        self.in_flight.clear();
        loop {
            while !self.in_flight.is_full() && launched < steps {
                let many = self.options.steps_per_launch;
                // Graphs exist for `many` steps and for one, so the rest is launched one by one.
                let count = if steps - launched >= many { many } else { 1 };
                self.device.launch_graph(rows, count)?;
                launched += count;
                self.in_flight.push(&self.device.stream, launched)?;
            }
            let Some(until) = self.in_flight.wait()? else {
                return Ok(launched);
            };
            if self.collect(work, until, progress) {
                // A launch in flight still writes to the pages that the caller is about to release.
                self.device.stream.synchronize()?;
                return Ok(launched);
            }
        }
    }

    /// Reads the tokens of the first `until` steps. Returns true if all sequences have ended or a
    /// step has failed, so that no further step is needed.
    fn collect(
        &self,
        work: &[(SequenceId, u32)],
        until: u32,
        progress: &mut DecodeProgress,
    ) -> bool {
        let ends = |made: &Vec<u32>| made.last().is_some_and(|token| self.stop.contains(token));
        for ((id, given), (first, made)) in work
            .iter()
            .zip(progress.firsts.iter().zip(&mut progress.made))
        {
            while !ends(made) && (made.len() as u32) < until {
                let position = first + made.len() as u32;
                match self.chosen(*id, position) {
                    Some(token) => made.push(token),
                    None => {
                        // The failed step had the previous token as its input.
                        let token = *made.last().unwrap_or(given);
                        progress.failed = Some(FailedStep {
                            id: *id,
                            token,
                            position,
                        });
                        return true;
                    }
                }
            }
        }
        progress.made.iter().all(ends)
    }

    /// Returns the token chosen after a position, whose step must have completed, or `None` if no
    /// token was chosen.
    pub(super) fn chosen(&self, id: SequenceId, position: u32) -> Option<u32> {
        let token = self
            .device
            .head
            .out
            .read((id.row * self.options.ctx + position) as usize);
        // A step whose logits are not all finite leaves an id outside the vocabulary.
        if token >= self.device.config.vocab {
            return None;
        }
        Some(token)
    }

    /// Returns the reason why the latest step chose no token after a position. `row` is the row of
    /// the head.
    pub(super) fn no_token(&self, position: u32, row: u32) -> Error {
        let logits = self
            .device
            .stream
            .read(&self.device.head.logits(row))
            .map_err(Error::from);
        match logits.and_then(|logits| check_logits(position, &logits)) {
            Ok(()) => Error::NoToken { position },
            Err(error) => error,
        }
    }

    /// Returns the reason why a decode step chose no token. Later steps have overwritten its
    /// logits, so it is repeated for this sequence only.
    fn explain_failure(&mut self, failed: FailedStep) -> Result<Error, Error> {
        let FailedStep {
            id,
            token,
            position,
        } = failed;
        let states = vec![self.row_state(id, token, position, self.options.ctx)];
        self.device.step(&StepInput {
            states,
            singles: 1,
            selected: vec![0],
            ..StepInput::new(self.options.splits(RowClass::Decode))
        })?;
        self.device.stream.synchronize()?;
        Ok(Error::InSequence {
            sequence: id,
            error: Box::new(self.no_token(position, 0)),
        })
    }

    /// Checks the sequences and tokens of a step.
    pub(super) fn check_work<'w>(
        &self,
        work: impl Iterator<Item = (SequenceId, &'w [u32])>,
    ) -> Result<(), Error> {
        let vocab = self.device.config.vocab;
        let mut named = HashSet::new();
        let mut all = 0;
        for (id, tokens) in work {
            self.sequences.get(id)?;
            if !named.insert(id) {
                return Err(Error::SequenceTwice);
            }
            if tokens.is_empty() {
                return Err(Error::NoPrompt);
            }

            if let Some(index) = tokens.iter().position(|token| *token >= vocab) {
                return Err(Error::PromptToken {
                    index,
                    id: tokens[index],
                    vocab,
                });
            }

            all += tokens.len();
        }

        let most = self.options.tokens;
        if all == 0 || all > most as usize {
            return Err(Error::StepTokens { tokens: all, most });
        }

        Ok(())
    }

    /// Reserves pages and writes the changes of the page table to the device.
    pub(super) fn reserve(&mut self, work: &[(SequenceId, u32)]) -> Result<(), Error> {
        let copies = self.sequences.reserve(work)?;
        self.device.copy_pages(&copies)?;
        self.device.write_pages(&self.sequences.take_changed())
    }

    /// Returns the state of a row whose sequence can hold `limit` positions.
    pub(super) fn row_state(
        &self,
        id: SequenceId,
        token: u32,
        position: u32,
        limit: u32,
    ) -> StepState {
        StepState {
            token,
            position,
            sequence: id.row,
            limit,
            adapter: self.adapters.device_index(id),
            ..StepState::default()
        }
    }
}
