//! The public type.

use std::collections::{BTreeMap, HashSet};

use warpwright_driver::{Context, View};
use warpwright_kernels::prompt::Item;
use warpwright_kernels::state::StepState;

use super::device::{Device, Input};
use super::memory;
use super::options::BatchOptions;
use super::sequences::{SequenceId, Sequences};
use crate::Error;
use crate::Model;
use crate::chunked::kernels;
use crate::chunked::products::Cores;
use crate::decode::finite::check_logits;
use crate::decode::in_flight::InFlight;
use crate::model::outline::Outline;
use crate::pipeline::resolved::{Resolved, ResolvedEmbed};
use crate::pipeline::tuning::Tuning;
use crate::sampling::options::Sampling;
use crate::weights::packed::{Packed, packed};
use crate::weights::random::Pools;
use crate::weights::upload;

/// Sequences that are stepped together over one copy of a model's weights.
///
/// ```no_run
/// use warpwright_driver::{Context, Driver};
/// use warpwright_engine::{Batch, BatchOptions, Model};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::open("model.gguf".as_ref())?;
/// let tokenizer = model.tokenizer()?;
/// let context = Context::new(&Driver::load()?.devices()?[0])?;
/// let mut batch = Batch::new(&context, &model, BatchOptions::new(8, 1024), |_bytes| ())?;
/// let prompts = ["The borrow checker", "A kernel"];
/// let ids: Vec<Vec<u32>> = prompts.iter().map(|text| tokenizer.encode(text)).collect::<Result<_, _>>()?;
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
    pub(super) device: Device,
    pub(super) sequences: Sequences,
    cores: Cores,
    pub(super) options: BatchOptions,
    /// Tokens that end a text.
    pub(super) stop: Vec<u32>,
    in_flight: InFlight,
    /// How the sequence of each row is sampled.
    pub(super) sampled: Vec<Sampling>,
    /// The sequences whose latest logits are there, and their rows of the head.
    pub(super) latest: Vec<(SequenceId, u32)>,
    /// Rows and positions whose choice, within a grammar, has recorded fewer best tokens than it was asked for, and how many.
    pub(super) fewer: BTreeMap<(u32, u32), u32>,
}

impl Batch {
    /// Loads the model. `progress` is called with the bytes of weights copied so far, from other threads.
    ///
    /// # Errors
    /// Options out of range, a model or a device without kernels for batches, too little memory, and driver errors.
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

    /// The same for a model without a file: its weights are random, its texts nonsense.
    ///
    /// # Errors
    /// As [`new`](Batch::new).
    pub fn random(
        context: &Context,
        outline: &Outline,
        options: BatchOptions,
    ) -> Result<Batch, Error> {
        let kernels = Batch::check(context, outline, options)?;
        let mut pools = Pools::of(context, outline)?;
        let weights = packed(outline).load(context, |job| pools.write(&job))?;
        pools.finish()?;
        Batch::assemble(context, outline, weights, kernels, options)
    }

    fn check(
        context: &Context,
        outline: &Outline,
        options: BatchOptions,
    ) -> Result<(Cores, ResolvedEmbed), Error> {
        options.check(outline.config.context)?;
        if outline.adapter.is_some() {
            let why = "its kernels add no adapter; a Decoder does".to_owned();
            return Err(Error::NoBatch { why });
        }
        let resolved = Resolved::of(outline, context.device(), Tuning::default(), 1);
        let resolved = resolved.map_err(|why| Error::NoBatch {
            why: why.to_string(),
        })?;
        let cores = kernels::check(context.device(), &outline.config)
            .map_err(|why| Error::NoBatch { why })?;
        memory::check(context, outline, &options)?;
        Ok((cores, resolved.single.embed))
    }

    fn assemble(
        context: &Context,
        outline: &Outline,
        weights: Packed<View<u8>>,
        (cores, embed): (Cores, ResolvedEmbed),
        options: BatchOptions,
    ) -> Result<Batch, Error> {
        Ok(Batch {
            device: Device::new(context, cores, outline, weights, embed, options)?,
            sequences: Sequences::new(options.sequences, options.pages(), options.ctx),
            cores,
            options,
            stop: outline.stop.clone(),
            in_flight: InFlight::new(context)?,
            sampled: vec![Sampling::greedy(); options.sequences as usize],
            latest: vec![],
            fewer: BTreeMap::new(),
        })
    }

    /// Adds a sequence without tokens. It is greedy, until [`set_sampling`](Batch::set_sampling) says otherwise.
    ///
    /// # Errors
    /// As many sequences as the options allow; driver errors.
    pub fn join(&mut self) -> Result<SequenceId, Error> {
        let joined = self.sequences.join()?;
        self.sample(joined, Sampling::greedy())?;
        Ok(joined)
    }

    /// Adds a sequence that begins with the first `len` tokens of another one, whose keys and values it shares, and is
    /// sampled as that one is.
    ///
    /// # Errors
    /// A sequence that is not in the batch or has fewer tokens, as many sequences as the options allow; driver errors.
    pub fn fork(&mut self, of: SequenceId, len: u32) -> Result<SequenceId, Error> {
        let forked = self.sequences.fork(of, len)?;
        self.sample(forked, self.sampled[of.row as usize].clone())?;
        Ok(forked)
    }

    /// Removes a sequence.
    ///
    /// # Errors
    /// A sequence that is not in the batch.
    pub fn leave(&mut self, sequence: SequenceId) -> Result<(), Error> {
        self.sequences.leave(sequence)
    }

    /// Keeps the first `len` tokens of a sequence.
    ///
    /// # Errors
    /// A sequence that is not in the batch or has fewer tokens.
    pub fn roll_back(&mut self, sequence: SequenceId, len: u32) -> Result<(), Error> {
        self.sequences.roll_back(sequence, len)
    }

    /// The tokens of a sequence whose keys and values are in the cache. The token that the latest step chose is not yet
    /// among them: it is what the next step is to be given.
    ///
    /// # Errors
    /// A sequence that is not in the batch.
    pub fn tokens(&self, sequence: SequenceId) -> Result<&[u32], Error> {
        Ok(&self.sequences.get(sequence)?.tokens)
    }

    /// The sequence that has the longest common beginning with these tokens, and the length of that; for
    /// [`fork`](Batch::fork).
    pub fn longest_prefix(&self, tokens: &[u32]) -> Option<(SequenceId, u32)> {
        self.sequences.longest_prefix(tokens)
    }

    /// Pages of 64 positions that no sequence has, and all pages.
    pub fn free_pages(&self) -> (u32, u32) {
        (
            self.sequences.pages().free(),
            self.sequences.pages().count(),
        )
    }

    /// Takes in more tokens of some sequences, one or many of each, and gives the next token after each. What another
    /// sequence is given changes no result, but for the bucket: see [`BatchOptions::bucket`].
    ///
    /// # Errors
    /// No tokens, more than the options allow, a sequence that is not in the batch or that is named twice, a token outside
    /// the vocabulary, too few free pages: then nothing has happened. Logits that are not finite: then
    /// the sequences have the tokens that they had. After a driver error the batch is of no more use.
    pub fn step(&mut self, work: &[(SequenceId, &[u32])]) -> Result<Vec<u32>, Error> {
        let (input, order) = self.begin(work)?;
        self.free(work.iter().map(|(id, _)| *id))?;
        self.device.step(&input)?;
        self.finish(work, &order)
    }

    /// Decodes up to `steps` tokens of each of these sequences, given the token that each goes on with: what
    /// [`step`](Batch::step) gave. A sequence ends after a token that ends a text. Steps are launched as graphs, several
    /// at a time, and the host sends nothing between them.
    ///
    /// # Errors
    /// As [`step`](Batch::step); more sequences than a step has tokens.
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
            .map(|((id, token), &first)| row_state(*id, *token, first, first + steps));
        let bucket = self.device.write_rows(states.collect())?;
        self.write_latest(
            work.iter()
                .map(|(id, token)| (*id, std::slice::from_ref(token))),
        )?;
        self.forget_latest(work.iter().map(|(id, _)| *id))?;
        self.free(work.iter().map(|(id, _)| *id))?;
        let mut decoding = Decoding {
            firsts,
            made: vec![vec![]; work.len()],
            lost: None,
        };
        let launched = self.launch_steps(work, bucket, steps, &mut decoding)?;
        if let Some(lost) = decoding.lost {
            work.iter()
                .for_each(|(id, _)| self.sequences.release_rest(*id));
            return Err(self.lost(lost)?);
        }
        for ((row, (id, token)), made) in (0..).zip(work).zip(&decoding.made) {
            let taken = made.split_last().map_or(&[][..], |(_, before)| before);
            self.sequences.append(*id, &[&[*token], taken].concat());
            // Steps after the end of a text overwrite its logits, and it has no need of the rest of its pages.
            match made.len() as u32 == launched {
                true => self.latest.push((*id, row)),
                false => self.sequences.release_rest(*id),
            }
        }
        Ok(decoding.made)
    }

    /// The logits after the last token of a sequence that was in the latest step.
    ///
    /// # Errors
    /// A sequence that was not, or that ended while others were decoded further; and driver errors.
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

/// What decoding has made so far.
struct Decoding {
    /// The position of each sequence's first token.
    firsts: Vec<u32>,
    made: Vec<Vec<u32>>,
    /// The first step found that chose no token.
    lost: Option<Lost>,
}

/// A step that chose no token: the token that it was given, and where.
#[derive(Clone, Copy)]
struct Lost {
    id: SequenceId,
    token: u32,
    position: u32,
}

impl Batch {
    /// Checks a step, makes room for it, and gives its rows and their order.
    pub(super) fn begin(
        &mut self,
        work: &[(SequenceId, &[u32])],
    ) -> Result<(Input, Vec<usize>), Error> {
        self.check_work(work.iter().copied())?;
        let counts: Vec<_> = work
            .iter()
            .map(|(id, tokens)| (*id, tokens.len() as u32))
            .collect();
        self.reserve(&counts)?;
        self.write_latest(work.iter().copied())?;
        self.forget_latest(work.iter().map(|(id, _)| *id))?;
        Ok(self.input(work))
    }

    /// Waits for a step, and gives the token after each sequence.
    pub(super) fn finish(
        &mut self,
        work: &[(SequenceId, &[u32])],
        order: &[usize],
    ) -> Result<Vec<u32>, Error> {
        self.device.stream.synchronize()?;
        let mut next = vec![0; work.len()];
        for (row, &index) in (0..).zip(order) {
            let (id, tokens) = work[index];
            let position = (self.sequences.get(id)?.tokens.len() + tokens.len()) as u32 - 1;
            next[index] = self
                .chosen(id, position)
                .ok_or_else(|| self.no_token(position, row))?;
        }
        work.iter()
            .for_each(|(id, tokens)| self.sequences.append(*id, tokens));
        self.latest = order.iter().map(|&index| work[index].0).zip(0..).collect();
        Ok(next)
    }

    /// What was known of steps that are overwritten now.
    fn forget_latest(&mut self, mut work: impl Iterator<Item = SequenceId>) -> Result<(), Error> {
        self.latest.clear();
        work.try_for_each(|id| {
            let len = self.sequences.get(id)?.tokens.len() as u32;
            self.fewer
                .retain(|(row, position), _| *row != id.row || *position < len);
            Ok(())
        })
    }

    /// Launches the steps, two launches in flight, and collects the tokens of those that have ended. Gives how many steps
    /// were launched.
    fn launch_steps(
        &mut self,
        work: &[(SequenceId, u32)],
        bucket: u32,
        steps: u32,
        decoding: &mut Decoding,
    ) -> Result<u32, Error> {
        let mut launched = 0;
        self.in_flight.clear();
        loop {
            while !self.in_flight.is_full() && launched < steps {
                let many = self.options.steps_per_launch;
                let taken = if steps - launched >= many { many } else { 1 };
                self.device.launch_graph(bucket, taken)?;
                launched += taken;
                self.in_flight.push(&self.device.stream, launched)?;
            }
            let Some(until) = self.in_flight.wait()? else {
                return Ok(launched);
            };
            if self.collect(work, until, decoding) {
                self.device.stream.synchronize()?;
                return Ok(launched);
            }
        }
    }

    /// Reads the tokens of the first `until` steps. Gives whether there is nothing more to wait for: all sequences have
    /// ended, or one is lost.
    fn collect(&self, work: &[(SequenceId, u32)], until: u32, decoding: &mut Decoding) -> bool {
        let ends = |made: &Vec<u32>| made.last().is_some_and(|token| self.stop.contains(token));
        for ((id, given), (first, made)) in work
            .iter()
            .zip(decoding.firsts.iter().zip(&mut decoding.made))
        {
            while !ends(made) && (made.len() as u32) < until {
                let position = first + made.len() as u32;
                match self.chosen(*id, position) {
                    Some(token) => made.push(token),
                    None => {
                        let token = *made.last().unwrap_or(given);
                        decoding.lost = Some(Lost {
                            id: *id,
                            token,
                            position,
                        });
                        return true;
                    }
                }
            }
        }
        decoding.made.iter().all(ends)
    }

    /// The token after a position whose step has completed, if it chose one.
    fn chosen(&self, id: SequenceId, position: u32) -> Option<u32> {
        let token = self
            .device
            .head
            .out
            .read((id.row * self.options.ctx + position) as usize);
        (token < self.device.config.vocab).then_some(token)
    }

    /// Why the latest step chose no token after a position; `row` is that of the head.
    fn no_token(&self, position: u32, row: u32) -> Error {
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

    /// The same of a decode step, whose logits later steps have overwritten: it is made again, alone.
    fn lost(
        &mut self,
        Lost {
            id,
            token,
            position,
        }: Lost,
    ) -> Result<Error, Error> {
        let states = vec![row_state(id, token, position, self.options.ctx)];
        self.device.step(&Input {
            states,
            singles: 1,
            items: vec![],
            selected: vec![0],
        })?;
        self.device.stream.synchronize()?;
        Ok(self.no_token(position, 0))
    }

    pub(super) fn check_work<'w>(
        &self,
        work: impl Iterator<Item = (SequenceId, &'w [u32])>,
    ) -> Result<(), Error> {
        let (mut named, mut all, vocab) = (HashSet::new(), 0, self.device.config.vocab);
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

    /// Makes room, and lets the device know of it.
    pub(super) fn reserve(&mut self, work: &[(SequenceId, u32)]) -> Result<(), Error> {
        let copies = self.sequences.reserve(work)?;
        self.device.copy_pages(&copies)?;
        self.device.write_pages(&self.sequences.take_changed())
    }

    /// The rows of a step: sequences with one token first, then the others, the longest first. Gives also the order.
    fn input(&self, work: &[(SequenceId, &[u32])]) -> (Input, Vec<usize>) {
        let mut order: Vec<usize> = (0..work.len()).collect();
        order.sort_by_key(|&index| match work[index].1.len() {
            1 => 0,
            tokens => u32::MAX - tokens as u32,
        });
        let queries = kernels::queries(self.cores, &self.device.config);
        let mut input = Input::default();
        let mut items = vec![];
        for &index in &order {
            let (id, tokens) = work[index];
            let first = self
                .sequences
                .get(id)
                .expect("the work was checked")
                .tokens
                .len() as u32;
            let (row, count) = (input.states.len() as u32, tokens.len() as u32);
            let limit = self.options.ctx;
            let states = (first..)
                .zip(tokens)
                .map(|(position, &token)| row_state(id, token, position, limit));
            input.states.extend(states);
            input.selected.push(row + count - 1);
            if count == 1 {
                input.singles += 1;
                continue;
            }
            items.extend(
                Item {
                    row,
                    rows: count,
                    position: first,
                    sequence: id.row,
                }
                .split(queries),
            );
        }
        // Those with most keys first.
        items.sort_by_key(|item| std::cmp::Reverse(item.position + item.rows));
        input.items = items;
        (input, order)
    }
}

/// Returns the state of a row whose sequence can hold `limit` positions.
pub(super) fn row_state(id: SequenceId, token: u32, position: u32, limit: u32) -> StepState {
    StepState {
        token,
        position,
        sequence: id.row,
        limit,
        ..StepState::default()
    }
}
