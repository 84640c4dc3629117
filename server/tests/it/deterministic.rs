//! Deterministic serving: a request gets the same tokens and log-probabilities, to the last bit,
//! alone and among others, after an eviction and with a cached prefix.

use warpwright_engine::{BatchOptions, BatchRounding};
use warpwright_server::engine::BatchEngine;
use warpwright_server::scheduler::{
    AtEnd, Generation, GenerationEvent, Scheduler, SchedulerOptions,
};

use crate::harness::{emulator, small_model};
use crate::scheduler::request;

/// The number of tokens that each request generates. The first one still runs when the second one
/// needs another page, whichever of them a step takes first, so that a sequence is evicted.
const REPLIES: [u32; 4] = [12, 4, 4, 4];

/// The chosen tokens with the bits of their log-probabilities.
type Bits = Vec<(u32, Vec<u64>)>;

/// Returns a scheduler of three sequences, whose cache has three pages of 64 positions.
fn scheduler() -> Scheduler {
    let options = BatchOptions {
        rounding: BatchRounding::Same,
        positions: 3 * 64,
        tokens: 64,
        steps_per_launch: 2,
        ..BatchOptions::new(3, 96)
    };
    let engine = BatchEngine::load(&emulator(), &small_model(), options, |_| ());
    let engine = engine.expect("it loads");
    let options = SchedulerOptions {
        tokens_per_step: 24,
        steps_per_launch: 2,
        exact_chunk: Some(48),
        ..SchedulerOptions::default()
    };
    Scheduler::start(Box::new(engine), options)
}

/// Prompts that take a second page while they generate, a short one, and one with a full page.
fn prompts() -> [Vec<u32>; 4] {
    let prompt = |seed: u32, len: u32| {
        (0..len)
            .map(|i| 300 + (i * 7 + seed * i * i) % 90)
            .collect()
    };
    [prompt(1, 63), prompt(2, 62), prompt(3, 40), prompt(4, 70)]
}

/// Submits the prompt of this index.
fn submit(scheduler: &Scheduler, index: usize, salt: u64) -> Generation {
    let mut limited = request(&prompts()[index]);
    limited.at_end = AtEnd::Ignore;
    limited.max_tokens = Some(REPLIES[index]);
    limited.sampling.logprobs = 2;
    limited.salt = salt;
    scheduler.submit(limited).expect("it is accepted")
}

/// Returns the bits of a generation, and the number of cached tokens of its prompt.
fn collect(mut generation: Generation) -> (Bits, u32) {
    let mut bits = vec![];
    let mut cached = 0;
    while let Some(event) = generation.events.blocking_recv() {
        match event {
            GenerationEvent::Started { cached: found } => cached = found,
            GenerationEvent::Tokens(tokens) => bits.extend(tokens.into_iter().map(|token| {
                let found = token.probabilities.expect("they were asked for");
                let values = found.best.iter().map(|(_, value)| value.to_bits());
                (
                    token.token,
                    values.chain([found.chosen.to_bits()]).collect(),
                )
            })),
            GenerationEvent::Ended(_) => {}
            event @ (GenerationEvent::Prompt(_) | GenerationEvent::Failed(_)) => {
                panic!("{event:?}")
            }
        }
    }
    (bits, cached)
}

/// Returns the prompts' bits alone, and then in company, where a sequence is evicted and a prefix is
/// cached.
fn alone_and_together() -> [Vec<Bits>; 2] {
    let single = scheduler();
    let alone = (0..).zip(0..REPLIES.len());
    let alone = alone.map(|(salt, index)| collect(submit(&single, index, salt)).0);
    let alone: Vec<Bits> = alone.collect();
    let lengths: Vec<u32> = alone.iter().map(|bits| bits.len() as u32).collect();
    assert_eq!(lengths, REPLIES);

    let shared = scheduler();
    let generations = (0..3).map(|index| submit(&shared, index, 9));
    let generations: Vec<_> = generations.collect();
    let together = generations
        .into_iter()
        .map(|generation| collect(generation).0);
    let mut together: Vec<Bits> = together.collect();

    let (cold, found) = collect(submit(&shared, 3, 9));
    assert_eq!(found, 0);
    let (warm, found) = collect(submit(&shared, 3, 9));
    assert!(found >= 64);
    assert_eq!(warm, cold);
    together.push(warm);
    assert!(shared.status().evicted >= 1, "{:?}", shared.status());
    assert_eq!(shared.status().pages.used, 0);
    [alone, together]
}

#[test]
fn a_request_gets_the_same_bits_alone_and_in_company() {
    let [alone, together] = alone_and_together();
    assert_eq!(together, alone);
}
