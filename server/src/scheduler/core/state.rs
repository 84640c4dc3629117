//! The state of a scheduler, and its turns.
//!
//! A [`SchedulerCore`] knows nothing of threads. Each [`turn`](SchedulerCore::turn) plans a step,
//! executes it on the engine, and applies its results. Events go to an [`Outbox`].

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use super::super::adapter::AdapterJob;
use super::super::embedding::EmbeddingJob;
use super::super::execute::{StepResults, execute};
use super::super::metrics;
use super::super::options::SchedulerOptions;
use super::super::outbox::Outbox;
use super::super::plan::{LatestRows, PlanInput, PlannedRow, StepPlan, plan};
use super::super::request::{EndReason, GenerationError, SubmitError};
use super::super::retry::EndRate;
use super::super::sequence::{RunningSequence, SequencePhase, ServedRequest};
use super::super::status::{SchedulerStatus, SequenceStatus};
use crate::engine::{
    ChosenToken, DraftRequest, Engine, EngineError, EngineLimits, Joined, SequenceKey,
    SequenceStart, Stepped, TokenOrigin, Wanted,
};

/// The state of a scheduler.
pub(crate) struct SchedulerCore {
    engine: Box<dyn Engine>,
    limits: EngineLimits,
    options: SchedulerOptions,
    /// The sequences in the engine, the oldest request first.
    pub(super) running: Vec<RunningSequence>,
    /// The requests without a slot, the oldest first.
    pub(super) waiting: VecDeque<ServedRequest>,
    embeddings: VecDeque<EmbeddingJob>,
    loading: Vec<AdapterJob>,
    /// The keys of adapters to unload when no request uses them any more.
    unloading: Vec<String>,
    /// The first waiting request, if it did not fit into the cache when this many pages were
    /// available.
    blocked: Option<BlockedRequest>,
    latest: LatestRows,
    pub(super) steps: u64,
    counts: SchedulerCounts,
    rate: EndRate,
    /// The events of this turn.
    outbox: Outbox,
    /// The events of earlier turns, whose state is published.
    earlier: Outbox,
}

/// A request that waits for pages.
#[derive(Clone, Copy)]
struct BlockedRequest {
    number: u64,
    available: u32,
}

/// The counts of a scheduler's status.
#[derive(Default)]
struct SchedulerCounts {
    prompt_tokens: u64,
    cached_tokens: u64,
    generated_tokens: u64,
    drafted_tokens: u64,
    accepted_tokens: u64,
    ended: u64,
    evicted: u64,
    /// The number of requests so far.
    accepted: u64,
    /// The number of times that a request got a slot.
    started: u64,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnResult {
    /// There is nothing to do.
    Idle,
    /// There may be more to do.
    Worked,
}

/// The device has failed, for this reason.
#[derive(Debug)]
pub(crate) struct DeviceLost(pub(crate) String);

impl SchedulerCore {
    /// Returns a scheduler without requests.
    pub(crate) fn new(engine: Box<dyn Engine>, options: SchedulerOptions) -> SchedulerCore {
        let limits = engine.limits();
        SchedulerCore {
            engine,
            limits,
            options: SchedulerOptions {
                exact_chunk: options
                    .exact_chunk
                    .map(|chunk| chunk.clamp(1, limits.tokens_per_step)),
                ..options
            },
            running: vec![],
            waiting: VecDeque::new(),
            embeddings: VecDeque::new(),
            loading: vec![],
            unloading: vec![],
            blocked: None,
            latest: LatestRows::default(),
            steps: 0,
            counts: SchedulerCounts::default(),
            rate: EndRate::default(),
            outbox: Outbox::default(),
            earlier: Outbox::default(),
        }
    }

    /// Puts a request at the end of the queue.
    pub(crate) fn accept(&mut self, request: ServedRequest) {
        self.counts.accepted += 1;
        self.waiting.push_back(request);
    }

    /// Queues texts whose embeddings are wanted.
    pub(crate) fn accept_embedding(&mut self, job: EmbeddingJob) {
        self.embeddings.push_back(job);
    }

    /// Loads an adapter in the next turn. The engine of a lost device must not be used here.
    pub(crate) fn load_adapter(&mut self, job: AdapterJob) {
        self.loading.push(job);
    }

    fn load_waiting_adapters(&mut self) {
        for job in mem::take(&mut self.loading) {
            let loaded = self.engine.load_adapter(job.adapter);
            if let Err(Ok(key)) = job.sender.send(loaded) {
                // The client has gone.
                self.unload_adapter(key);
            }
        }
    }

    /// Unloads an adapter when no request uses it any more.
    pub(crate) fn unload_adapter(&mut self, key: String) {
        self.unloading.push(key);
    }

    /// Unloads the adapters that no request uses any more.
    fn unload_unused(&mut self) -> Result<(), DeviceLost> {
        for key in mem::take(&mut self.unloading) {
            let running = self.running.iter().map(|sequence| &sequence.request);
            let mut requests = running.chain(&self.waiting);
            if requests.any(|request| request.adapter.as_deref() == Some(&key)) {
                self.unloading.push(key);
                continue;
            }
            match self.engine.unload_adapter(&key) {
                Ok(()) => tracing::info!(key, "unloaded an adapter"),
                Err(EngineError::Lost(reason)) => return Err(DeviceLost(reason)),
                Err(error) => tracing::error!(key, %error, "cannot unload an adapter"),
            }
        }
        Ok(())
    }

    /// Returns the number of requests that wait or run.
    pub(crate) fn load(&self) -> usize {
        self.running.len() + self.waiting.len() + self.embeddings.len()
    }

    /// Returns a number that changes when a sequence joins or leaves, or a request waits.
    pub(crate) fn changes(&self) -> u64 {
        self.counts.accepted + self.counts.started + self.counts.ended + self.counts.evicted
    }

    /// Returns an estimate of the time until a request ends.
    pub(crate) fn retry_after(&self, now: Instant) -> Duration {
        self.rate.interval(now)
    }

    /// Removes cancelled requests, fills free slots, and executes one step.
    ///
    /// The events of the previous turn are sent before anything that takes long, or while the device
    /// computes. The state after that turn must have been published.
    ///
    /// # Errors
    /// Returns the reason if the device is lost.
    pub(crate) fn turn(&mut self) -> Result<TurnResult, DeviceLost> {
        self.earlier.append(&mut self.outbox);
        self.remove_cancelled();
        self.load_waiting_adapters();
        self.unload_unused()?;
        if !self.embeddings.is_empty() || !self.waiting.is_empty() {
            self.earlier.send();
        }
        let embedded = self.embed()?;
        self.admit()?;

        self.propose()?;

        // A step that fails has changed nothing. Every failure removes a sequence or shortens the
        // step, so that this ends.
        let mut options = self.options;
        loop {
            let plan = plan(&PlanInput {
                running: &self.running,
                waiting: self.waiting.len() + self.embeddings.len(),
                limits: self.limits,
                options,
                pages: self.engine.pages(),
                latest: self.latest,
                verified_per_step: self.engine.verified_per_step() as usize,
            });
            if plan == StepPlan::Idle {
                let idle = self.waiting.is_empty() && embedded == TurnResult::Idle;
                return Ok(if idle {
                    TurnResult::Idle
                } else {
                    TurnResult::Worked
                });
            }

            let started = Instant::now();
            let results = execute(&mut *self.engine, &mut self.running, &plan, &mut || {
                self.earlier.send();
            });
            metrics::stepped(started.elapsed());
            match results {
                Ok(results) => {
                    self.apply(&plan, results);
                    return Ok(TurnResult::Worked);
                }
                Err(EngineError::NoPages { .. }) if plan.has_drafts() => self.drop_drafts(),
                Err(EngineError::NoPages { .. }) if matches!(plan, StepPlan::Decode { .. }) => {
                    options.steps_per_launch = 1;
                }
                Err(EngineError::NoPages { .. }) => self.free_pages(),
                Err(EngineError::Sequence { key, reason }) => {
                    self.fail_sequence(key, GenerationError::Sequence(reason))?;
                }
                Err(EngineError::Unsupported(reason)) => {
                    self.step_singly(&plan, reason)?;
                    return Ok(TurnResult::Worked);
                }
                Err(EngineError::Lost(reason)) => return Err(DeviceLost(reason)),
            }
        }
    }

    /// Gets drafts for the sequences whose next step verifies some.
    fn propose(&mut self) -> Result<(), DeviceLost> {
        self.drop_drafts();
        let Some(options) = self.options.speculation else {
            return Ok(());
        };
        let recompute = self.options.recompute();
        let phases = self.running.iter().map(|running| running.phase(recompute));
        let generating = phases.filter(|phase| *phase != SequencePhase::Prompt);
        if self.engine.verified_per_step() == 0 || generating.count() > options.sequences as usize {
            return Ok(());
        }

        let cost = self.engine.draft_cost();
        let mut indices = vec![];
        let mut work = vec![];
        for (index, running) in self.running.iter_mut().enumerate() {
            if running.phase(recompute) != SequencePhase::Decode {
                continue;
            }
            let request = &mut running.request;
            let most = request
                .history
                .wanted(&options, request.most_drafts(), cost);
            if most == 0 {
                // Old failures count less with every step, so that drafts are tried again.
                request.history.record(0, 0);
                continue;
            }
            indices.push(index);
            work.push(DraftRequest {
                key: running.key,
                tokens: &running.request.tokens,
                most,
            });
        }
        if work.is_empty() {
            return Ok(());
        }

        // A draft model computes for some time, and the clients need not wait for it.
        if cost > 0.0 {
            self.earlier.send();
        }
        let mosts: Vec<usize> = work.iter().map(|request| request.most).collect();
        let drafts = match self.engine.draft(&work) {
            Ok(drafts) => drafts,
            Err(EngineError::Lost(reason)) => return Err(DeviceLost(reason)),
            Err(error) => {
                tracing::warn!(%error, "a step has no drafts");
                return Ok(());
            }
        };
        for ((index, most), mut drafts) in indices.into_iter().zip(mosts).zip(drafts) {
            drafts.truncate(most);
            let running = &mut self.running[index];
            let request = &running.request;
            request.cut_drafts(&mut drafts, self.engine.stop(), self.limits.vocab);
            running.drafts = drafts;
        }
        Ok(())
    }

    fn drop_drafts(&mut self) {
        for running in &mut self.running {
            running.drafts.clear();
        }
    }

    /// Sends all events. The state must have been published.
    pub(crate) fn send_events(&mut self) {
        self.earlier.send();
        self.outbox.send();
    }

    /// Ends all requests for this reason.
    pub(crate) fn end_all(&mut self, reason: EndReason) {
        let now = Instant::now();
        for sequence in mem::take(&mut self.running) {
            self.engine.leave(sequence.key);
            self.counts.ended += 1;
            sequence.request.end(reason, now, &mut self.outbox);
        }
        for request in mem::take(&mut self.waiting) {
            self.counts.ended += 1;
            request.end(reason, now, &mut self.outbox);
        }
        for job in mem::take(&mut self.embeddings) {
            job.finish(Err(GenerationError::Refused(SubmitError::ShuttingDown)));
        }
    }

    /// Saves what outlives the process, after all requests have ended.
    pub(crate) fn save(&mut self) {
        if let Err(reason) = self.engine.save() {
            tracing::error!(reason, "the engine could not save its state");
        }
    }

    /// Fails all requests, because the device is lost. The engine is not used any more.
    pub(crate) fn lose(&mut self, reason: &str) {
        let error = GenerationError::Lost(reason.to_owned());
        let running = mem::take(&mut self.running).into_iter();
        let running = running.map(|sequence| sequence.request);
        for request in running.chain(mem::take(&mut self.waiting)) {
            self.counts.ended += 1;
            request.fail(error.clone(), &mut self.outbox);
        }
        for job in mem::take(&mut self.embeddings) {
            job.finish(Err(error.clone()));
        }
        for job in mem::take(&mut self.loading) {
            // A client that has gone does not need the error.
            job.sender
                .send(Err(EngineError::Lost(reason.to_owned())))
                .ok();
        }
    }

    /// Returns the state to show after the device was lost. The engine is not asked.
    pub(crate) fn lost_status(&self, reason: &str) -> SchedulerStatus {
        SchedulerStatus {
            lost: Some(reason.to_owned()),
            ..self.counted()
        }
    }

    /// Returns the state to show.
    pub(crate) fn status(&self) -> SchedulerStatus {
        let sequence = |sequence: &RunningSequence| SequenceStatus {
            request_id: sequence.request.request_id.clone(),
            prompt: sequence.request.prompt as u32,
            processed: sequence.processed.min(sequence.request.prompt) as u32,
            generated: sequence.request.generated() as u32,
        };
        SchedulerStatus {
            sequences: self.running.iter().map(sequence).collect(),
            waiting: self.waiting.len(),
            pages: self.engine.pages(),
            ..self.counted()
        }
    }

    fn counted(&self) -> SchedulerStatus {
        SchedulerStatus {
            prompt_tokens: self.counts.prompt_tokens,
            cached_tokens: self.counts.cached_tokens,
            generated_tokens: self.counts.generated_tokens,
            drafted_tokens: self.counts.drafted_tokens,
            accepted_tokens: self.counts.accepted_tokens,
            ended: self.counts.ended,
            evicted: self.counts.evicted,
            ..SchedulerStatus::default()
        }
    }

    fn remove_cancelled(&mut self) {
        for index in (0..self.running.len()).rev() {
            if self.running[index].request.is_cancelled() {
                let sequence = self.running.remove(index);
                self.engine.leave(sequence.key);
                self.count_cancelled();
            }
        }
        for index in (0..self.waiting.len()).rev() {
            if self.waiting[index].is_cancelled() {
                self.waiting.remove(index);
                self.count_cancelled();
            }
        }
        self.embeddings.retain(|job| !job.is_cancelled());
    }

    fn count_cancelled(&mut self) {
        self.counts.ended += 1;
        metrics::cancelled();
        self.rate.record(Instant::now());
    }

    /// Computes the embeddings of the next texts, as many as fit into a step.
    fn embed(&mut self) -> Result<TurnResult, DeviceLost> {
        let Some(mut job) = self.embeddings.pop_front() else {
            return Ok(TurnResult::Idle);
        };
        let texts = job.next_texts(self.limits.tokens_per_step as usize);
        let mut vectors = self.engine.embed(texts);
        while matches!(vectors, Err(EngineError::NoPages { .. })) && !self.running.is_empty() {
            self.evict_youngest();
            vectors = self.engine.embed(texts);
        }
        match vectors {
            Ok(vectors) => job.append(vectors),
            Err(EngineError::Lost(reason)) => {
                self.embeddings.push_front(job);
                return Err(DeviceLost(reason));
            }
            Err(error @ (EngineError::NoPages { .. } | EngineError::Unsupported(_))) => {
                job.finish(Err(GenerationError::Unsupported(error.to_string())));
                return Ok(TurnResult::Worked);
            }
            Err(EngineError::Sequence { reason, .. }) => {
                job.finish(Err(GenerationError::Sequence(reason)));
                return Ok(TurnResult::Worked);
            }
        }

        if job.is_complete() {
            job.finish_complete();
        } else {
            // The other jobs get a turn, so that a large one does not delay them.
            self.embeddings.push_back(job);
        }
        Ok(TurnResult::Worked)
    }

    /// Gives free slots to waiting requests, the oldest first.
    fn admit(&mut self) -> Result<(), DeviceLost> {
        while self.running.len() < self.limits.sequences as usize {
            let Some(request) = self.waiting.front() else {
                return Ok(());
            };
            if self.is_blocked(request) {
                return Ok(());
            }

            let joined = self.engine.join(&SequenceStart {
                prompt: request.prefix(self.options.recompute()),
                salt: request.salt,
                sampling: &request.sampling,
                adapter: request.adapter.as_deref(),
            });
            match joined {
                Ok(joined) if self.running.is_empty() || self.fits(request, joined) => {
                    self.start_first(joined);
                }
                Ok(joined) => {
                    self.engine.leave(joined.key);
                    self.block_first();
                    return Ok(());
                }
                Err(EngineError::NoPages { .. }) if self.running.is_empty() => {
                    self.end_first(EndReason::Context);
                }
                Err(EngineError::NoPages { .. }) => {
                    self.block_first();
                    return Ok(());
                }
                Err(EngineError::Unsupported(reason)) => {
                    self.fail_first(GenerationError::Unsupported(reason));
                }
                Err(EngineError::Sequence { reason, .. }) => {
                    self.fail_first(GenerationError::Sequence(reason));
                }
                Err(EngineError::Lost(reason)) => return Err(DeviceLost(reason)),
            }
        }
        Ok(())
    }

    /// Returns true if a request waits for pages, and none was freed since it did not fit.
    fn is_blocked(&self, request: &ServedRequest) -> bool {
        let Some(blocked) = self.blocked else {
            return false;
        };
        !self.running.is_empty()
            && blocked.number == request.number
            && self.available_pages() <= blocked.available
    }

    fn available_pages(&self) -> u32 {
        let pages = self.engine.pages();
        pages.free + pages.kept
    }

    /// Returns true if the cache has pages for all known tokens of a request that has joined, and
    /// for the running sequences.
    fn fits(&self, request: &ServedRequest, joined: Joined) -> bool {
        let page = self.limits.page_len as usize;
        // The pages of the known tokens and of the next one, without those already taken.
        let rest = |known: usize, taken: usize| (known + 1).div_ceil(page) - taken.div_ceil(page);
        let promised: usize = self
            .running
            .iter()
            .map(|sequence| rest(sequence.request.tokens.len(), sequence.processed))
            .sum();

        // Without a page for each running sequence, the request would soon be evicted again.
        let spare = self.running.len();
        let needed = rest(request.tokens.len(), joined.cached as usize);
        needed + promised + spare <= self.available_pages() as usize
    }

    fn block_first(&mut self) {
        let available = self.available_pages();
        self.blocked = self.waiting.front().map(|request| BlockedRequest {
            number: request.number,
            available,
        });
    }

    /// Moves the first waiting request to the slot that it has joined.
    fn start_first(&mut self, joined: Joined) {
        let Some(mut request) = self.waiting.pop_front() else {
            return;
        };
        // Recomputed tokens are not counted again.
        if request.is_new() {
            self.counts.prompt_tokens += request.prompt as u64;
            self.counts.cached_tokens += u64::from(joined.cached);
        }
        self.counts.started += 1;
        request.start(joined.cached, Instant::now(), &mut self.outbox);
        self.running.push(RunningSequence {
            request,
            key: joined.key,
            processed: joined.cached as usize,
            last_step: self.steps,
            drafts: vec![],
        });
    }

    fn end_first(&mut self, reason: EndReason) {
        if let Some(request) = self.waiting.pop_front() {
            self.count_ended();
            request.end(reason, Instant::now(), &mut self.outbox);
        }
    }

    fn fail_first(&mut self, error: GenerationError) {
        if let Some(request) = self.waiting.pop_front() {
            self.count_ended();
            request.fail(error, &mut self.outbox);
        }
    }

    fn count_ended(&mut self) {
        self.counts.ended += 1;
        self.rate.record(Instant::now());
    }

    /// Frees pages for a step that found none.
    fn free_pages(&mut self) {
        if self.running.len() > 1 {
            self.evict_youngest();
        } else if let Some(sequence) = self.running.pop() {
            self.engine.leave(sequence.key);
            self.count_ended();
            let now = Instant::now();
            sequence
                .request
                .end(EndReason::Context, now, &mut self.outbox);
        }
    }

    /// Moves the youngest sequence back to the front of the queue.
    fn evict_youngest(&mut self) {
        let Some(mut sequence) = self.running.pop() else {
            return;
        };
        self.engine.leave(sequence.key);
        self.counts.evicted += 1;
        metrics::evicted();
        sequence.request.forget_processed();
        self.waiting.push_front(sequence.request);
    }

    /// Fails a sequence. The engine names only sequences of the step.
    fn fail_sequence(
        &mut self,
        key: SequenceKey,
        error: GenerationError,
    ) -> Result<(), DeviceLost> {
        let named = self.running.iter().position(|running| running.key == key);
        let Some(index) = named else {
            let reason = format!("the engine failed for an unknown sequence: {error}");
            return Err(DeviceLost(reason));
        };
        let sequence = self.running.remove(index);
        self.engine.leave(key);
        self.count_ended();
        sequence.request.fail(error, &mut self.outbox);
        Ok(())
    }

    /// Executes the rows of a step one by one, because the engine does not support all of them, and
    /// fails those that it does not support.
    fn step_singly(&mut self, plan: &StepPlan, reason: String) -> Result<(), DeviceLost> {
        let rows: Vec<PlannedRow> = match plan {
            StepPlan::Idle => vec![],
            StepPlan::Step(rows) => rows.clone(),
            StepPlan::Decode { .. } => (0..self.running.len())
                .map(|index| PlannedRow {
                    index,
                    tokens: 1,
                    drafts: 0,
                    origin: TokenOrigin::Model,
                    wanted: Wanted::Next,
                })
                .collect(),
        };
        if let [row] = rows[..] {
            let key = self.running[row.index].key;
            return self.fail_sequence(key, GenerationError::Unsupported(reason));
        }

        // From the last to the first, because rows are removed.
        for row in rows.into_iter().rev() {
            let key = self.running[row.index].key;
            let single = StepPlan::Step(vec![row]);
            match execute(&mut *self.engine, &mut self.running, &single, &mut || ()) {
                Ok(results) => self.apply(&single, results),
                Err(EngineError::Unsupported(reason)) => {
                    self.fail_sequence(key, GenerationError::Unsupported(reason))?;
                }
                Err(EngineError::Sequence { key, reason }) => {
                    self.fail_sequence(key, GenerationError::Sequence(reason))?;
                }
                // The next turn finds the same.
                Err(EngineError::NoPages { .. }) => {}
                Err(EngineError::Lost(reason)) => return Err(DeviceLost(reason)),
            }
        }
        Ok(())
    }

    /// Applies the results of a step.
    fn apply(&mut self, plan: &StepPlan, results: StepResults) {
        let now = Instant::now();
        self.steps += 1;
        let mut ended = vec![];
        match (plan, results) {
            (StepPlan::Step(rows), StepResults::Stepped(results)) => {
                assert_eq!(
                    rows.len(),
                    results.len(),
                    "one result per sequence of a step"
                );
                self.latest = Self::rows_kind(rows);
                for (row, stepped) in rows.iter().zip(results) {
                    if let Some(reason) = self.apply_row(row, stepped, now) {
                        ended.push((row.index, reason));
                    }
                }
            }
            (StepPlan::Decode { .. }, StepResults::Decoded(results)) => {
                assert_eq!(self.running.len(), results.len(), "one result per sequence");
                self.latest = LatestRows::Tokens;
                for (index, chosen) in results.into_iter().enumerate() {
                    assert!(
                        !chosen.is_empty(),
                        "a decode returns tokens of each sequence"
                    );
                    self.running[index].processed += chosen.len();
                    self.running[index].last_step = self.steps;
                    if let Some(reason) = self.append(index, chosen, now) {
                        ended.push((index, reason));
                    }
                }
            }
            (StepPlan::Idle | StepPlan::Step(_) | StepPlan::Decode { .. }, _) => {
                unreachable!("the results are those of the plan")
            }
        }

        for (index, reason) in ended.into_iter().rev() {
            let sequence = self.running.remove(index);
            self.engine.leave(sequence.key);
            self.count_ended();
            sequence.request.end(reason, now, &mut self.outbox);
        }
    }

    /// Returns whether a step processed prompts or tokens. A step of both counts as one of prompts.
    fn rows_kind(rows: &[PlannedRow]) -> LatestRows {
        let is_prompt = |row: &PlannedRow| row.origin == TokenOrigin::Prompt;
        if rows.iter().any(is_prompt) {
            LatestRows::Prompts
        } else {
            LatestRows::Tokens
        }
    }

    /// Applies the result of a sequence, and returns the reason if it has ended.
    fn apply_row(&mut self, row: &PlannedRow, stepped: Stepped, now: Instant) -> Option<EndReason> {
        let sequence = &mut self.running[row.index];
        sequence.last_step = self.steps;
        if row.wanted == Wanted::Verified {
            return self.apply_verified(row, stepped.verified, now);
        }
        sequence.processed += row.tokens;
        let request = &mut sequence.request;
        if let Some(scores) = &mut request.scores {
            scores.collected.extend(stepped.scored);
        }
        if sequence.processed >= request.prompt {
            request.send_scores(&mut self.outbox);
        }
        if !row.wanted.chooses() {
            let complete = sequence.processed == request.tokens.len();
            return request.end_without_tokens().filter(|_| complete);
        }
        if let Some(reason) = request.end_without_tokens() {
            return Some(reason);
        }
        let next = stepped.next.expect("a step returns the wanted token");
        self.append(row.index, vec![next], now)
    }

    /// Applies the accepted drafts of a sequence and the token after them.
    fn apply_verified(
        &mut self,
        row: &PlannedRow,
        verified: Vec<ChosenToken>,
        now: Instant,
    ) -> Option<EndReason> {
        let drafted = row.drafts;
        assert!(
            (1..=drafted + 1).contains(&verified.len()),
            "a step returns at most one token more than it has drafts"
        );
        let accepted = verified.len() - 1;
        let sequence = &mut self.running[row.index];

        // The engine has processed the known token and the accepted drafts. The last token is not
        // processed.
        sequence.processed += row.tokens + accepted;
        sequence.request.history.record(drafted, accepted);
        metrics::verified(drafted as u64, accepted as u64);
        self.counts.drafted_tokens += drafted as u64;
        self.counts.accepted_tokens += accepted as u64;
        self.append(row.index, verified, now)
    }

    /// Appends chosen tokens to a sequence, and returns the reason if it has ended.
    fn append(
        &mut self,
        index: usize,
        chosen: Vec<ChosenToken>,
        now: Instant,
    ) -> Option<EndReason> {
        let request = &mut self.running[index].request;
        let before = request.generated();
        let ended = request.append(chosen, self.engine.stop(), now, &mut self.outbox);
        self.counts.generated_tokens += (request.generated() - before) as u64;
        ended
    }
}
