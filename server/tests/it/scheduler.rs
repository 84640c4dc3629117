//! The scheduler over a scripted engine.

use std::time::Duration;

use warpwright_engine::Sampling;
use warpwright_server::engine::scripted::{PlannedFailure, PrefixReuse, Script, StepLog};
use warpwright_server::engine::{EngineLimits, ScriptedEngine};
use warpwright_server::scheduler::{
    AtEnd, EndReason, Generation, GenerationError, GenerationEvent, GenerationRequest, Scheduler,
    SchedulerOptions, SubmitError,
};

const END: u32 = 2;

fn limits() -> EngineLimits {
    EngineLimits {
        sequences: 4,
        ctx: 128,
        tokens_per_step: 32,
        pages: 64,
        page_len: 8,
        vocab: 1000,
        logprobs: 5,
    }
}

/// Returns a script whose reply to a prompt is its first token `n`, then `n` tokens counting from
/// 100, and the end.
fn counting() -> Script {
    Box::new(|prompt| {
        (0..prompt[0])
            .map(|index| 100 + index)
            .chain([END])
            .collect()
    })
}

fn engine(limits: EngineLimits) -> ScriptedEngine {
    ScriptedEngine::new(limits, vec![END], counting())
}

fn start(engine: ScriptedEngine) -> Scheduler {
    Scheduler::start(Box::new(engine), SchedulerOptions::default())
}

pub(crate) fn request(prompt: &[u32]) -> GenerationRequest {
    GenerationRequest {
        request_id: "test".to_owned(),
        prompt: prompt.to_vec(),
        max_tokens: None,
        sampling: Sampling::greedy(),
        at_end: AtEnd::Stop,
        grammar: None,
        adapter: None,
        salt: 0,
        prompt_logprobs: None,
    }
}

/// The events of a generation.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) cached: Option<u32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) probabilities: usize,
    /// The log-probabilities of the tokens that have some.
    pub(crate) chosen: Vec<f64>,
    pub(crate) scored: Option<usize>,
    pub(crate) end: Option<EndReason>,
    pub(crate) failure: Option<GenerationError>,
}

pub(crate) fn collect(mut generation: Generation) -> Collected {
    let mut collected = Collected::default();
    while let Some(event) = generation.events.blocking_recv() {
        let over = collected.end.is_some() || collected.failure.is_some();
        assert!(!over, "no event follows the end: {event:?}");
        match event {
            GenerationEvent::Started { cached } => {
                assert!(collected.cached.replace(cached).is_none(), "one start");
            }
            GenerationEvent::Prompt(scored) => {
                assert!(collected.scored.replace(scored.len()).is_none());
                assert!(collected.tokens.is_empty());
            }
            GenerationEvent::Tokens(tokens) => {
                assert!(collected.cached.is_some() && !tokens.is_empty());
                for token in tokens {
                    collected.tokens.push(token.token);
                    collected.probabilities += usize::from(token.probabilities.is_some());
                    let chosen = token.probabilities.map(|found| found.chosen);
                    collected.chosen.extend(chosen);
                }
            }
            GenerationEvent::Ended(ended) => collected.end = Some(ended.reason),
            GenerationEvent::Failed(error) => collected.failure = Some(error),
        }
    }
    collected
}

pub(crate) fn generate(scheduler: &Scheduler, request: GenerationRequest) -> Collected {
    collect(scheduler.submit(request).expect("the request is accepted"))
}

fn counted(count: u32) -> Vec<u32> {
    (100..100 + count).collect()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime starts").block_on(future)
}

#[test]
fn a_request_gets_its_tokens_and_its_end() {
    let scheduler = start(engine(limits()));
    let got = generate(&scheduler, request(&[5, 1, 1]));
    assert_eq!(got.tokens, counted(5));
    assert_eq!(got.end, Some(EndReason::Stop));
    assert_eq!(got.cached, Some(0));

    let status = scheduler.status();
    assert_eq!(status.sequences, []);
    assert_eq!(status.pages.used, 0);
    assert_eq!(status.prompt_tokens, 3);
    assert_eq!(status.generated_tokens, 5);
    assert_eq!(status.ended, 1);
}

#[test]
fn limits_end_a_generation() {
    let scheduler = start(engine(limits()));
    let with_most = |most| GenerationRequest {
        max_tokens: Some(most),
        ..request(&[50])
    };
    let got = generate(&scheduler, with_most(7));
    assert_eq!((got.tokens, got.end), (counted(7), Some(EndReason::Length)));

    let got = generate(&scheduler, with_most(0));
    assert_eq!((got.tokens, got.end), (vec![], Some(EndReason::Length)));
    assert_eq!(got.cached, Some(0));

    // The context has 128 positions.
    let got = generate(&scheduler, request(&[200; 100]));
    assert_eq!((got.tokens.len(), got.end), (28, Some(EndReason::Context)));
    let got = generate(
        &scheduler,
        GenerationRequest {
            max_tokens: Some(28),
            ..request(&[200; 100])
        },
    );
    assert_eq!((got.tokens.len(), got.end), (28, Some(EndReason::Length)));
    let got = generate(&scheduler, request(&[200; 127]));
    assert_eq!((got.tokens.len(), got.end), (1, Some(EndReason::Context)));
}

#[test]
fn an_end_token_is_one_like_any_other_if_it_is_ignored() {
    let scheduler = start(engine(limits()));
    let got = generate(
        &scheduler,
        GenerationRequest {
            at_end: AtEnd::Ignore,
            max_tokens: Some(8),
            ..request(&[2])
        },
    );
    assert_eq!(got.tokens, [100, 101, END, 100, 101, END, 100, 101]);
    assert_eq!(got.end, Some(EndReason::Length));
}

#[test]
fn wrong_requests_are_refused_before_the_queue() {
    let scheduler = start(engine(limits()));
    let refused = |request| scheduler.submit(request).expect_err("it is refused");
    assert_eq!(refused(request(&[])), SubmitError::NoPrompt);
    let error = refused(request(&[1000]));
    assert_eq!(
        error,
        SubmitError::Token {
            token: 1000,
            vocab: 1000
        }
    );
    let error = refused(request(&[1; 128]));
    assert_eq!(
        error,
        SubmitError::Context {
            prompt: 128,
            ctx: 128
        }
    );

    let mut hot = request(&[1]);
    hot.sampling.temperature = -1.0;
    assert!(matches!(refused(hot), SubmitError::Sampling(_)));
    let mut many = request(&[1]);
    many.prompt_logprobs = Some(6);
    let error = refused(many);
    let text = "prompt_logprobs is 6, and at most 5 are allowed".to_owned();
    assert_eq!(error, SubmitError::Sampling(text));
    assert_eq!(scheduler.status().waiting, 0);
}

#[test]
fn a_full_queue_refuses_requests() {
    let slow = engine(EngineLimits {
        sequences: 1,
        ..limits()
    })
    .with_delays(Duration::from_millis(20), Duration::ZERO);
    let options = SchedulerOptions {
        queue: 1,
        ..SchedulerOptions::default()
    };
    let scheduler = Scheduler::start(Box::new(slow), options);
    let first = scheduler.submit(request(&[30])).expect("a slot is free");
    let second = scheduler.submit(request(&[3])).expect("the queue is empty");
    let third = scheduler
        .submit(request(&[3]))
        .expect_err("the queue is full");
    assert!(
        matches!(third, SubmitError::QueueFull { waiting: 1, .. }),
        "{third:?}"
    );

    // A request that is dropped gives its slot to the next one.
    drop(first);
    assert_eq!(collect(second).tokens, counted(3));
    assert_eq!(generate(&scheduler, request(&[4])).tokens, counted(4));
    assert_eq!(scheduler.status().pages.used, 0);
}

#[test]
fn log_probabilities_come_with_prompts_and_tokens() {
    let engine = engine(limits()).with_prefix_reuse(PrefixReuse::Pages);
    let scheduler = start(engine);
    // The prompt has several chunks.
    let prompt = [[9; 50], [11; 50]].concat();
    for most in [0, 4] {
        let mut scored = request(&prompt);
        scored.prompt_logprobs = Some(2);
        scored.sampling.logprobs = 3;
        scored.max_tokens = Some(most);
        let got = generate(&scheduler, scored);
        assert_eq!(got.scored, Some(99));
        assert_eq!(got.cached, Some(0));
        assert_eq!(got.tokens, counted(most));
        assert_eq!(got.probabilities, most as usize);
    }
    let got = generate(&scheduler, request(&prompt));
    assert_eq!(got.cached, Some(96));
    assert_eq!(got.scored, None);
    assert_eq!(got.probabilities, 0);
}

#[test]
fn a_lost_device_fails_everything() {
    for failure in [PlannedFailure::LostAfter(3), PlannedFailure::PanicAfter(3)] {
        let slow = engine(EngineLimits {
            sequences: 1,
            ..limits()
        })
        .with_failure(failure)
        .with_delays(Duration::from_millis(5), Duration::ZERO);
        let options = SchedulerOptions {
            steps_per_launch: 1,
            ..SchedulerOptions::default()
        };
        let scheduler = Scheduler::start(Box::new(slow), options);
        let running = scheduler.submit(request(&[50])).expect("it is accepted");
        let waiting = scheduler.submit(request(&[50])).expect("it is accepted");
        let running = collect(running);
        assert_eq!(running.tokens, counted(3));
        assert!(matches!(running.failure, Some(GenerationError::Lost(_))));
        assert!(matches!(
            collect(waiting).failure,
            Some(GenerationError::Lost(_))
        ));
        assert!(scheduler.status().lost.is_some());

        let refused = scheduler.submit(request(&[1])).expect_err("it is lost");
        assert!(matches!(refused, SubmitError::Lost(_)));
        let refused = block_on(scheduler.embed(vec![vec![1]])).expect_err("it is lost");
        assert!(matches!(
            refused,
            GenerationError::Refused(SubmitError::Lost(_))
        ));
        block_on(scheduler.shut_down(Duration::from_secs(9)));
    }
}

#[test]
fn a_failing_sequence_leaves_the_others_alone() {
    let scheduler = start(engine(limits()).with_failure(PlannedFailure::BadToken(666)));
    let good = scheduler.submit(request(&[20])).expect("it is accepted");
    let bad = scheduler
        .submit(request(&[20, 666]))
        .expect("it is accepted");
    let other = scheduler.submit(request(&[10, 1])).expect("it is accepted");
    assert_eq!(collect(good).tokens, counted(20));
    assert_eq!(collect(other).tokens, counted(10));
    let failure = collect(bad).failure;
    let reason = "a planned failure at token 666".to_owned();
    assert_eq!(failure, Some(GenerationError::Sequence(reason)));

    let unknown = GenerationRequest {
        adapter: Some("x".to_owned()),
        ..request(&[1])
    };
    let failure = generate(&scheduler, unknown).failure;
    assert!(
        matches!(failure, Some(GenerationError::Unsupported(_))),
        "{failure:?}"
    );
}

#[test]
fn evicted_sequences_continue_where_they_were() {
    // Four sequences of up to 60 positions need 32 pages.
    for exact_chunk in [None, Some(16)] {
        let engine = engine(EngineLimits {
            pages: 12,
            ..limits()
        });
        let options = SchedulerOptions {
            exact_chunk,
            ..SchedulerOptions::default()
        };
        let scheduler = Scheduler::start(Box::new(engine), options);
        let submit = |count| {
            scheduler
                .submit(request(&[count; 20]))
                .expect("it is accepted")
        };
        let generations: Vec<_> = [40, 38, 36, 34, 32].map(submit).into_iter().collect();
        for (generation, count) in generations.into_iter().zip([40, 38, 36, 34, 32]) {
            let got = collect(generation);
            assert_eq!(got.tokens, counted(count), "{exact_chunk:?}");
            assert_eq!(got.end, Some(EndReason::Stop));
        }
        let status = scheduler.status();
        assert!(status.evicted > 0);
        assert_eq!((status.pages.used, status.prompt_tokens), (0, 100));
    }
}

#[test]
fn a_shutdown_ends_what_runs_and_waits() {
    let slow = engine(EngineLimits {
        sequences: 1,
        ..limits()
    })
    .with_delays(Duration::from_millis(10), Duration::ZERO);
    let scheduler = start(slow);
    let running = scheduler.submit(request(&[100])).expect("it is accepted");
    let waiting = scheduler.submit(request(&[100])).expect("it is accepted");
    let stopped = scheduler.shut_down(Duration::from_millis(100));
    let refused = scheduler.submit(request(&[1])).expect_err("it shuts down");
    assert_eq!(refused, SubmitError::ShuttingDown);
    block_on(stopped);
    let running = collect(running);
    assert_eq!(running.end, Some(EndReason::Shutdown));
    assert!((3..30).contains(&running.tokens.len()), "{running:?}");
    assert_eq!(collect(waiting).end, Some(EndReason::Shutdown));

    let scheduler = start(engine(limits()));
    let running = scheduler.submit(request(&[10])).expect("it is accepted");
    drop(scheduler);
    assert_eq!(collect(running).tokens, counted(10));
}

#[test]
fn embeddings_are_computed_between_steps() {
    let scheduler = start(engine(limits()));
    let texts: Vec<Vec<u32>> = (1..20).map(|len| vec![len; len as usize]).collect();
    let running = scheduler.submit(request(&[90])).expect("it is accepted");
    let vectors = block_on(scheduler.embed(texts)).expect("the engine has embeddings");
    assert_eq!(vectors.len(), 19);
    for vector in vectors {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
    assert_eq!(collect(running).tokens, counted(90));
    assert_eq!(block_on(scheduler.embed(vec![])), Ok(vec![]));
    let refused = block_on(scheduler.embed(vec![vec![1], vec![]]));
    assert_eq!(
        refused,
        Err(GenerationError::Refused(SubmitError::NoPrompt))
    );
}

/// Returns the number of steps between two tokens of any sequence, at most.
fn longest_wait(log: &StepLog) -> usize {
    let mut latest = std::collections::HashMap::new();
    let mut longest = 0;
    for (index, record) in log.records().iter().enumerate() {
        for row in &record.rows {
            if let Some(before) = latest.insert(row.key, index) {
                longest = longest.max(index - before);
            }
        }
    }
    longest
}

#[test]
fn a_long_prompt_does_not_stall_other_sequences() {
    for (exact_chunk, most) in [(None, 1), (Some(8), 2)] {
        let engine = engine(EngineLimits {
            tokens_per_step: 16,
            ..limits()
        })
        .with_delays(Duration::from_millis(1), Duration::ZERO);
        let log = engine.log();
        let options = SchedulerOptions {
            exact_chunk,
            ..SchedulerOptions::default()
        };
        let scheduler = Scheduler::start(Box::new(engine), options);
        let short = scheduler.submit(request(&[60])).expect("it is accepted");
        std::thread::sleep(Duration::from_millis(5));
        let long = scheduler
            .submit(request(&[5; 110]))
            .expect("it is accepted");
        assert_eq!(collect(short).tokens, counted(60));
        assert_eq!(collect(long).tokens, counted(5));
        assert!(longest_wait(&log) <= most, "{:?}", log.records());
    }
}

/// Returns a random number below `most`.
fn random(state: &mut u64, most: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % most
}

/// Submits random requests and drops some of them early.
fn submit_randomly(scheduler: &Scheduler, seed: u64) {
    let mut state = seed;
    for _ in 0..60 {
        let count = random(&mut state, 40) as u32;
        let len = 1 + random(&mut state, 60) as usize;
        let mut prompt = vec![500 + seed as u32; len];
        prompt[0] = count;
        let mut generation = match scheduler.submit(request(&prompt)) {
            Ok(generation) => generation,
            Err(SubmitError::QueueFull { .. }) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        if random(&mut state, 4) == 0 {
            // It is dropped while it waits, starts or runs.
            for _ in 0..random(&mut state, 4) {
                generation.events.blocking_recv();
            }
            continue;
        }
        let got = collect(generation);
        assert_eq!(got.tokens, counted(count));
        assert_eq!(got.end, Some(EndReason::Stop));
    }
}

#[test]
fn many_threads_share_a_scheduler() {
    for exact_chunk in [None, Some(8)] {
        let engine = engine(EngineLimits {
            pages: 30,
            ..limits()
        })
        .with_prefix_reuse(PrefixReuse::Pages);
        let options = SchedulerOptions {
            queue: 3,
            exact_chunk,
            ..SchedulerOptions::default()
        };
        let scheduler = Scheduler::start(Box::new(engine), options);
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let scheduler = scheduler.clone();
                scope.spawn(move || submit_randomly(&scheduler, seed));
            }
        });
        // The last requests may have been dropped.
        block_on(scheduler.shut_down(Duration::from_secs(60)));
        let status = scheduler.status();
        assert_eq!((status.sequences.len(), status.waiting), (0, 0));
        assert_eq!(status.pages.used, 0);
        assert_eq!(status.lost, None);
    }
}
