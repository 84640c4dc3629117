//! Random requests, cancellations and shortages over a scripted engine.
//!
//! Every request gets exactly the tokens of its own reply, whatever happens to the others. No
//! sequence waits longer for its next token than its share of the token budget requires. At the
//! end, no page and no slot is taken.

use std::cell::Cell;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::sync::{mpsc, oneshot};
use warpwright_engine::Sampling;

use super::state::{SchedulerCore, TurnResult};
use crate::engine::EngineLimits;
use crate::engine::scripted::{PlannedFailure, PrefixReuse, ScriptedEngine, StepLog};
use crate::scheduler::check::{check_request, usable_ctx};
use crate::scheduler::embedding::{EmbeddingJob, EmbeddingResult};
use crate::scheduler::options::{DraftLengthRule, SchedulerOptions, SpeculationOptions};
use crate::scheduler::request::{
    AtEnd, EndReason, GenerationError, GenerationEvent, GenerationRequest,
};
use crate::scheduler::sequence::{SequencePhase, ServedRequest};

const END: u32 = 2;
/// The last token of every prompt, by which a script finds its end.
const PROMPT_END: u32 = 99;
/// A token at which a planned failure happens.
const BAD: u32 = 997;
const VOCAB: u32 = 1000;

/// A random scheduler.
#[derive(Debug, Clone)]
struct RandomSetup {
    limits: EngineLimits,
    options: SchedulerOptions,
    reuse: PrefixReuse,
    /// The number of tokens that a step with drafts chooses, in addition to one per sequence.
    more_verified: u32,
}

/// A random event.
#[derive(Debug, Clone)]
enum RandomAction {
    Submit {
        /// The number of tokens of the prompt.
        prompt: u32,
        /// Prompts of the same family share their first tokens.
        family: u32,
        /// The number of last tokens that no other prompt has.
        own: u32,
        most: Option<u32>,
        at_end: AtEnd,
        scored: bool,
        bad: bool,
        salt: u64,
    },
    Cancel(usize),
    Turns(u32),
    Embed(Vec<u32>),
}

fn setups() -> impl Strategy<Value = RandomSetup> {
    let limits = (2..8_u32, 1..40_u32, 1..9_u32, 16..80_u32, 0..12_u32);
    let limits = limits.prop_map(|(sequences, tokens_per_step, page_len, ctx, more)| {
        // Sometimes the cache is smaller than the context.
        let least = (ctx / page_len).max(2) / 2;
        EngineLimits {
            sequences,
            ctx,
            tokens_per_step,
            pages: (least + more).max(2),
            page_len,
            vocab: VOCAB,
            logprobs: 5,
        }
    });
    let length = prop_oneof![
        Just(DraftLengthRule::Adaptive),
        Just(DraftLengthRule::Always)
    ];
    let speculation = (1..6_u32, 1..9_u32, length);
    let speculation = speculation.prop_map(|(sequences, drafts, length)| SpeculationOptions {
        sequences,
        drafts,
        length,
    });
    let options = (
        1..40_u32,
        1..9_u32,
        prop::option::of(1..16_u32),
        prop::option::of(speculation),
    );
    let options = options.prop_map(
        |(tokens_per_step, steps_per_launch, exact_chunk, speculation)| SchedulerOptions {
            queue: 1000,
            tokens_per_step,
            steps_per_launch,
            exact_chunk,
            speculation,
        },
    );
    let reuse = prop_oneof![Just(PrefixReuse::None), Just(PrefixReuse::Pages)];
    (limits, options, reuse, 0..20_u32).prop_map(|(limits, options, reuse, more_verified)| {
        RandomSetup {
            limits,
            options,
            reuse,
            more_verified,
        }
    })
}

fn actions() -> impl Strategy<Value = RandomAction> {
    let submit = (
        1..50_u32,
        0..2_u32,
        0..6_u32,
        prop::option::of(0..60_u32),
        prop_oneof![4 => Just(AtEnd::Stop), 1 => Just(AtEnd::Ignore)],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.05),
        0..2_u64,
    );
    let submit = submit.prop_map(|(prompt, family, own, most, at_end, scored, bad, salt)| {
        RandomAction::Submit {
            prompt,
            family,
            own,
            most,
            at_end,
            scored,
            bad,
            salt,
        }
    });
    prop_oneof![
        8 => submit,
        2 => (0..100_usize).prop_map(RandomAction::Cancel),
        8 => (1..12_u32).prop_map(RandomAction::Turns),
        1 => prop::collection::vec(1..20_u32, 1..5).prop_map(RandomAction::Embed),
    ]
}

/// Returns a prompt. It ends with [`PROMPT_END`].
fn prompt(number: usize, len: u32, family: u32, own: u32, bad: bool) -> Vec<u32> {
    let mut prompt: Vec<u32> = (0..len).map(|at| 100 + (at * 7 + family) % 50).collect();
    let last = prompt.len() - 1;
    prompt[last] = PROMPT_END;
    let first = last.saturating_sub(own as usize);
    for (index, token) in prompt[first..last].iter_mut().enumerate() {
        *token = 200 + ((number * 31 + index * 7) % 700) as u32;
    }
    if bad && last > 0 {
        prompt[last - 1] = BAD;
    }
    prompt
}

/// Returns the reply to a prompt, with the token that ends it.
fn reply(prompt: &[u32]) -> Vec<u32> {
    let hash = prompt.iter().fold(17_u32, |hash, token| {
        hash.wrapping_mul(31).wrapping_add(*token) ^ (hash >> 7)
    });
    let tokens = (0..hash % 60).map(|at| 300 + hash.wrapping_mul(at + 1).wrapping_add(at) % 600);
    tokens.chain([END]).collect()
}

/// Returns the rest of the reply to a prompt and the generated tokens after it.
fn script(tokens: &[u32]) -> Vec<u32> {
    let end = tokens.iter().position(|token| *token == PROMPT_END);
    let end = end.expect("a prompt has an end");
    let (prompt, generated) = tokens.split_at(end + 1);
    let mut reply = reply(prompt);
    let len = reply.len();
    reply.rotate_left(generated.len() % len);
    reply
}

/// Returns drafts after the tokens of a sequence. Some are wrong, are too many, or are in no
/// vocabulary.
fn guesses(tokens: &[u32], most: usize) -> Vec<u32> {
    let mut drafts: Vec<u32> = script(tokens).into_iter().cycle().take(most + 1).collect();
    let wrong = tokens.len() * 13 % 11;
    if let Some(draft) = drafts.get_mut(wrong) {
        *draft = if wrong == 3 { VOCAB } else { 300 };
    }
    drafts
}

/// Returns the tokens and the reason of a generation's end.
fn expected(request: &GenerationRequest, ctx: u32) -> (Vec<u32>, EndReason) {
    let space = ctx as usize - request.prompt.len();
    let (limit, reason) = match request.max_tokens {
        Some(most) if most as usize <= space => (most as usize, EndReason::Length),
        Some(_) | None => (space, EndReason::Context),
    };
    let reply = reply(&request.prompt);
    let tokens: Vec<u32> = match request.at_end {
        AtEnd::Ignore => reply.iter().copied().cycle().take(limit).collect(),
        AtEnd::Stop => reply
            .iter()
            .copied()
            .filter(|t| *t != END)
            .take(limit)
            .collect(),
    };
    if request.at_end == AtEnd::Stop && tokens.len() < limit {
        return (tokens, EndReason::Stop);
    }
    (tokens, reason)
}

/// A request, and what it received.
struct Client {
    expected: (Vec<u32>, EndReason),
    bad: bool,
    scores: Option<usize>,
    events: Option<mpsc::UnboundedReceiver<GenerationEvent>>,
    started: bool,
    tokens: Vec<u32>,
    ended: Option<EndReason>,
    failed: bool,
}

impl Client {
    /// Reads the events so far and checks their order.
    fn read(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        while let Ok(event) = events.try_recv() {
            assert!(
                self.ended.is_none() && !self.failed,
                "no event follows the end"
            );
            match event {
                GenerationEvent::Started { .. } => {
                    assert!(!self.started, "a request starts once");
                    self.started = true;
                }
                GenerationEvent::Prompt(scores) => {
                    assert!(self.started && self.tokens.is_empty());
                    assert_eq!(self.scores.take(), Some(scores.len()));
                }
                GenerationEvent::Tokens(tokens) => {
                    assert!(self.started && !tokens.is_empty());
                    assert_eq!(self.scores, None, "scores come before tokens");
                    self.tokens.extend(tokens.iter().map(|token| token.token));
                }
                GenerationEvent::Ended(ended) => self.ended = Some(ended.reason),
                GenerationEvent::Failed(error) => {
                    assert!(matches!(error, GenerationError::Sequence(_)), "{error}");
                    self.failed = true;
                }
            }
        }
        assert!(
            self.expected.0.starts_with(&self.tokens),
            "the tokens are those of the reply"
        );
    }

    fn check_complete(&self) {
        if self.events.is_none() {
            return;
        }
        if self.bad {
            assert!(self.failed, "a bad sequence fails");
            return;
        }
        assert_eq!(
            (&self.tokens, self.ended),
            (&self.expected.0, Some(self.expected.1))
        );
        assert_eq!(self.scores, None, "wanted scores are sent");
    }
}

/// A scheduler with its clients.
struct RandomRun {
    core: SchedulerCore,
    setup: RandomSetup,
    log: StepLog,
    clients: Vec<Client>,
    embeddings: Vec<(usize, oneshot::Receiver<EmbeddingResult>)>,
}

impl RandomRun {
    fn new(setup: RandomSetup) -> RandomRun {
        let engine = ScriptedEngine::new(setup.limits, vec![END], Box::new(script))
            .with_prefix_reuse(setup.reuse)
            .with_drafts(
                setup.limits.sequences + setup.more_verified,
                Box::new(guesses),
            )
            .with_failure(PlannedFailure::BadToken(BAD));
        let log = engine.log();
        RandomRun {
            core: SchedulerCore::new(Box::new(engine), setup.options),
            setup,
            log,
            clients: vec![],
            embeddings: vec![],
        }
    }

    fn act(&mut self, action: RandomAction) {
        match action {
            RandomAction::Submit {
                prompt: len,
                family,
                own,
                most,
                at_end,
                scored,
                bad,
                salt,
            } => {
                let number = self.clients.len();
                let request = GenerationRequest {
                    request_id: number.to_string(),
                    prompt: prompt(number, len, family, own, bad),
                    max_tokens: most,
                    sampling: Sampling::greedy(),
                    at_end,
                    grammar: None,
                    adapter: None,
                    salt,
                    prompt_logprobs: scored.then_some(2),
                };
                self.submit(request, bad && len > 1);
            }
            RandomAction::Cancel(index) => {
                let count = self.clients.len().max(1);
                if let Some(client) = self.clients.get_mut(index % count) {
                    client.read();
                    client.events = None;
                }
            }
            RandomAction::Turns(count) => {
                for _ in 0..count {
                    self.turn();
                }
            }
            RandomAction::Embed(lengths) => {
                let texts = lengths.iter().map(|len| vec![5; *len as usize]);
                let (sender, receiver) = oneshot::channel();
                self.core
                    .accept_embedding(EmbeddingJob::new(texts.collect(), sender));
                self.embeddings.push((lengths.len(), receiver));
            }
        }
    }

    fn submit(&mut self, request: GenerationRequest, bad: bool) {
        let ctx = usable_ctx(&self.setup.limits);
        if check_request(&request, &self.setup.limits).is_err() {
            assert!(request.prompt.len() >= ctx as usize);
            return;
        }
        let (sender, events) = mpsc::unbounded_channel();
        self.clients.push(Client {
            expected: expected(&request, ctx),
            bad,
            scores: request.prompt_logprobs.map(|_| request.prompt.len() - 1),
            events: Some(events),
            started: false,
            tokens: vec![],
            ended: None,
            failed: false,
        });
        let number = self.clients.len() as u64;
        let request = ServedRequest::new(number, request, sender, Instant::now(), ctx);
        self.core.accept(request);
    }

    fn turn(&mut self) -> TurnResult {
        let result = self.core.turn().expect("the device is not lost");
        self.core.send_events();
        for client in &mut self.clients {
            client.read();
        }
        self.check_waits();
        let numbers = self
            .core
            .running
            .iter()
            .map(|running| running.request.number);
        assert!(numbers.is_sorted(), "the oldest sequence is the first");
        let numbers = self.core.waiting.iter().map(|waiting| waiting.number);
        assert!(numbers.is_sorted(), "the oldest request is the first");
        result
    }

    /// Checks that no sequence waits longer for its next token than it has to.
    fn check_waits(&self) {
        let EngineLimits {
            sequences,
            tokens_per_step,
            ..
        } = self.setup.limits;
        let budget = self.setup.options.tokens_per_step.min(tokens_per_step);
        // Prompts keep a quarter of a step, and take turns with tokens in deterministic mode.
        let share = (budget - (budget / 4).max(1)).max(1);
        let most = 2 * u64::from(sequences.div_ceil(share));
        let recompute = self.setup.options.recompute();
        for running in &self.core.running {
            if running.phase(recompute) != SequencePhase::Prompt {
                let waited = self.core.steps - running.last_step;
                assert!(waited <= most, "{waited} steps without a token");
            }
        }
    }

    fn finish(&mut self) {
        let mut turns = 0;
        while self.turn() == TurnResult::Worked {
            turns += 1;
            assert!(turns < 20_000, "the requests end");
        }
        for client in &self.clients {
            client.check_complete();
        }
        for (count, result) in &mut self.embeddings {
            let vectors = result.try_recv().expect("it is answered");
            assert_eq!(vectors.expect("it succeeds").len(), *count);
        }
        let status = self.core.status();
        assert_eq!((status.sequences.len(), status.waiting), (0, 0));
        assert_eq!(status.pages.used, 0);
        assert_eq!(status.ended, self.clients.len() as u64);
        assert_eq!(self.core.load(), 0);
        if self.setup.options.speculation.is_none() {
            assert_eq!(status.drafted_tokens, 0);
        }
        check_chunks(&self.setup, &self.log);
        check_rows(&self.setup, &self.log);
    }
}

/// Checks that prompts are processed in the same chunks whatever else happens, in deterministic
/// mode.
fn check_chunks(setup: &RandomSetup, log: &StepLog) {
    let Some(chunk) = setup.options.exact_chunk else {
        return;
    };
    let chunk = chunk.min(setup.limits.tokens_per_step);
    for record in log.records() {
        for row in &record.rows {
            let end = row.position + row.tokens;
            let same = row.position / chunk == (end - 1) / chunk;
            assert!(same, "{row:?} crosses a multiple of {chunk}");
        }
    }
}

/// Checks that drafts stay in the budget of a step.
fn check_rows(setup: &RandomSetup, log: &StepLog) {
    let most = setup.limits.tokens_per_step;
    for record in log.records() {
        let rows: u32 = record.rows.iter().map(|row| row.tokens + row.drafts).sum();
        assert!(rows <= most, "{record:?}");
    }
}

/// The numbers of events in all random runs.
#[derive(Debug, Default)]
struct RunCounts {
    steps: Cell<u64>,
    evicted: Cell<u64>,
    cached: Cell<u64>,
    cancelled: Cell<u64>,
    launches: Cell<u64>,
    accepted: Cell<u64>,
    rejected: Cell<u64>,
}

impl RunCounts {
    fn add(&self, run: &RandomRun) {
        let status = run.core.status();
        let cancelled = run.clients.iter().filter(|client| client.events.is_none());
        let records = run.log.records();
        let launches = records.iter().filter(|record| record.decode_steps > 1);
        for (count, more) in [
            (&self.steps, run.core.steps),
            (&self.evicted, status.evicted),
            (&self.cached, status.cached_tokens),
            (&self.cancelled, cancelled.count() as u64),
            (&self.launches, launches.count() as u64),
            (&self.accepted, status.accepted_tokens),
            (
                &self.rejected,
                status.drafted_tokens - status.accepted_tokens,
            ),
        ] {
            count.set(count.get() + more);
        }
    }
}

#[test]
fn every_request_gets_its_own_reply() {
    let cases = 600;
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let counts = RunCounts::default();
    let strategy = (setups(), prop::collection::vec(actions(), 1..60));
    let result = runner.run(&strategy, |(setup, actions)| {
        let mut run = RandomRun::new(setup);
        for action in actions {
            run.act(action);
        }
        run.finish();
        counts.add(&run);
        Ok(())
    });
    result.expect("every run passes");

    // The runs reach what they are meant to try.
    let least = u64::from(cases) / 10;
    assert!(counts.steps.get() > 100 * least, "{counts:?}");
    for count in [
        &counts.evicted,
        &counts.cached,
        &counts.cancelled,
        &counts.launches,
        &counts.accepted,
        &counts.rejected,
    ] {
        assert!(count.get() > least, "{counts:?}");
    }
}
