//! The engines over devices, on the emulator.

use std::sync::Arc;

use warpwright_engine::{BatchOptions, Decoder, Launch, Options, Sampling};
use warpwright_model::{GrammarCompiler, GrammarText, Matcher};
use warpwright_server::engine::{BatchEngine, DecoderEngine, EngineLimits, ScriptedEngine};
use warpwright_server::scheduler::{AtEnd, EndReason, Generation, Scheduler, SchedulerOptions};

use crate::harness::{emulator, small_model};
use crate::scheduler::{block_on, collect, generate, request};

const CTX: u32 = 32;

fn options() -> Options {
    Options::new(CTX, Launch::Graph)
}

/// Returns the greedy continuation by a decoder alone.
fn reference(prompt: &[u32], limit: u32) -> Vec<u32> {
    let model = small_model();
    let mut decoder = Decoder::new(&emulator(), &model, options(), |_| ()).expect("it loads");
    let tokens = decoder.generate(prompt, limit).expect("it generates");
    tokens.collect::<Result<_, _>>().expect("it generates")
}

fn decoder_scheduler() -> Scheduler {
    let engine = DecoderEngine::load(&emulator(), &small_model(), options(), |_| ());
    let engine = Box::new(engine.expect("it loads"));
    Scheduler::start(engine, SchedulerOptions::default())
}

fn prompt(text: &str) -> Vec<u32> {
    let tokenizer = small_model().tokenizer().expect("it has a tokenizer");
    tokenizer.encode(text).expect("the text has tokens")
}

#[test]
fn a_decoder_engine_generates_the_text_of_a_decoder() {
    let prompt = prompt("The borrow checker");
    let expected = reference(&prompt, 4);
    let scheduler = decoder_scheduler();
    let mut first = request(&prompt);
    first.max_tokens = Some(4);
    let got = generate(&scheduler, first);
    assert_eq!(got.failure, None);
    assert_eq!(got.tokens, expected);
    assert_eq!(got.end, Some(EndReason::Length));

    // A conversation that goes on reuses what was processed.
    let longer = [&prompt[..], &expected, &[5, 6, 7]].concat();
    let mut second = request(&longer);
    second.max_tokens = Some(2);
    second.sampling.logprobs = 4;
    let got = generate(&scheduler, second);
    assert_eq!(got.cached, Some((prompt.len() + 3) as u32));
    assert_eq!(got.tokens, reference(&longer, 2));
    assert_eq!(got.probabilities, 2);

    // With another salt it does not.
    let mut other = request(&longer);
    other.max_tokens = Some(1);
    other.salt = 1;
    assert_eq!(generate(&scheduler, other).cached, Some(0));
    assert_eq!(scheduler.status().pages.used, 0);
}

#[test]
fn a_decoder_engine_scores_embeds_and_goes_on() {
    let prompt = prompt("A slice is a view");
    let expected = reference(&prompt, 4);
    let scheduler = decoder_scheduler();
    let mut scored = request(&prompt);
    scored.prompt_logprobs = Some(3);
    scored.max_tokens = Some(4);
    let running = scheduler.submit(scored).expect("it is accepted");
    let vectors = block_on(scheduler.embed(vec![vec![9, 8], vec![9], vec![9, 8]]));
    let vectors = vectors.expect("the decoder has hidden states");
    assert_eq!(vectors[0], vectors[2]);
    for vector in &vectors {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-4);
    }
    assert_ne!(vectors[0], vectors[1]);

    let got = collect(running);
    assert_eq!(got.failure, None);
    assert_eq!(got.scored, Some(prompt.len() - 1));
    assert_eq!(got.tokens, expected);
}

#[test]
fn a_decoder_engine_samples_and_fills_the_context() {
    let prompt = prompt("The borrow checker");
    let scheduler = decoder_scheduler();
    let sampled = || {
        let mut sampled = request(&prompt);
        sampled.sampling = Sampling {
            seed: 7,
            ..Sampling::default()
        };
        sampled.max_tokens = Some(CTX);
        sampled.at_end = AtEnd::Ignore;
        sampled
    };
    let first = generate(&scheduler, sampled());
    // The second one finds all tokens but the last of its prompt in the cache.
    let second = generate(&scheduler, sampled());
    assert_eq!(first.failure, None);
    assert_eq!(first.tokens, second.tokens);
    assert_eq!(first.tokens.len() + prompt.len(), CTX as usize);
    assert_eq!(first.end, Some(EndReason::Context));
}

/// Returns a scheduler of two sequences, whose cache has three pages of 64 positions.
fn batch_scheduler() -> Scheduler {
    let options = BatchOptions {
        positions: 3 * 64,
        tokens: 64,
        steps_per_launch: 2,
        ..BatchOptions::new(2, BATCH_CTX)
    };
    let engine = BatchEngine::load(&emulator(), &small_model(), options, |_| ());
    let engine = Box::new(engine.expect("it loads"));
    let options = SchedulerOptions {
        tokens_per_step: 64,
        steps_per_launch: 3,
        ..SchedulerOptions::default()
    };
    Scheduler::start(engine, options)
}

const BATCH_CTX: u32 = 80;

#[test]
fn a_batch_engine_generates_the_texts_of_a_decoder() {
    let prompts = ["The borrow checker", "A slice is a view"].map(prompt);
    let scheduler = batch_scheduler();
    let submit = |prompt: &Vec<u32>| {
        let mut limited = request(prompt);
        limited.max_tokens = Some(4);
        limited.sampling.logprobs = 2;
        limited.prompt_logprobs = Some(3);
        scheduler.submit(limited).expect("it is accepted")
    };
    let generations: Vec<_> = prompts.iter().map(submit).collect();
    let vectors = block_on(scheduler.embed(vec![vec![9, 8], vec![9], vec![9, 8]]));
    for (generation, prompt) in generations.into_iter().zip(&prompts) {
        let got = collect(generation);
        assert_eq!(got.failure, None);
        assert_eq!(got.tokens, reference(prompt, 4));
        assert_eq!(got.probabilities, 4);
        assert_eq!(got.scored, Some(prompt.len() - 1));
    }
    let vectors = vectors.expect("the batch has embeddings");
    assert_eq!(vectors[0], vectors[2]);
    assert_ne!(vectors[0], vectors[1]);
    assert_eq!(scheduler.status().pages.used, 0);
}

#[test]
fn a_batch_engine_evicts_sequences_and_reuses_pages() {
    let scheduler = batch_scheduler();
    let prompts = long_prompts();

    // Each takes a second page while it generates, and there are three.
    let together = prompts
        .each_ref()
        .map(|prompt| submit_long(&scheduler, prompt));
    let [first, second] = together.map(collect);
    assert_eq!((first.failure, second.failure), (None, None));
    assert!(scheduler.status().evicted > 0);

    let again = collect(submit_long(&scheduler, &prompts[0]));
    assert_eq!(again.tokens, first.tokens);
    assert!(again.cached > Some(0));
    let again = collect(submit_long(&scheduler, &prompts[1]));
    assert_eq!(again.tokens, second.tokens);
    assert_eq!(scheduler.status().pages.used, 0);
}

/// The number of tokens that continue a long prompt.
const TOKENS: u32 = 7;

/// Returns two prompts that almost fill a page.
fn long_prompts() -> [Vec<u32>; 2] {
    [5, 6].map(|first| {
        let rest = (0..61).map(|at| 300 + at * 7 % 90);
        [first].into_iter().chain(rest).collect()
    })
}

fn submit_long(scheduler: &Scheduler, prompt: &[u32]) -> Generation {
    let mut limited = request(prompt);
    limited.at_end = AtEnd::Ignore;
    limited.max_tokens = Some(TOKENS);
    limited.sampling = Sampling {
        logprobs: 1,
        ..Sampling::greedy()
    };
    scheduler.submit(limited).expect("it is accepted")
}

/// Returns a matcher of four digits.
fn four_digits() -> Matcher {
    let model = small_model();
    let tokenizer = Arc::new(model.tokenizer().expect("it has a tokenizer"));
    let compiler = GrammarCompiler::new(tokenizer, &model.outline).expect("it compiles");
    let grammar = compiler.compile(&GrammarText::Regex("[0-9]{4}".to_owned()));
    grammar.expect("it compiles").matcher()
}

/// Checks that a request with a grammar gets what the grammar allows, next to one without.
fn check_grammar(scheduler: &Scheduler) {
    let mut constrained = request(&prompt("The borrow checker"));
    constrained.grammar = Some(four_digits());
    constrained.sampling.logprobs = 1;
    let other = scheduler.submit({
        let mut other = request(&[5, 6]);
        other.max_tokens = Some(3);
        other.at_end = AtEnd::Ignore;
        other
    });
    let got = generate(scheduler, constrained);
    assert_eq!(got.failure, None);
    assert_eq!(got.end, Some(EndReason::Grammar));
    let tokenizer = small_model().tokenizer().expect("it has a tokenizer");
    let text = tokenizer.decode(&got.tokens);
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    assert_eq!((digits.len(), text.trim().len()), (4, 4), "{text:?}");
    assert_eq!(got.probabilities, got.tokens.len());
    let other = collect(other.expect("it is accepted"));
    assert_eq!((other.failure, other.tokens.len()), (None, 3));
}

#[test]
fn engines_follow_grammars() {
    let limits = EngineLimits {
        sequences: 2,
        ctx: 64,
        tokens_per_step: 64,
        pages: 16,
        page_len: 8,
        vocab: small_model().outline.config.vocab,
        logprobs: 5,
    };
    // Some tokens are not allowed at their place, and then the first allowed one is chosen.
    let script = |_: &[u32]| vec![5; 64];
    let scripted = ScriptedEngine::new(limits, vec![2], Box::new(script));
    check_grammar(&Scheduler::start(
        Box::new(scripted),
        SchedulerOptions::default(),
    ));
    check_grammar(&decoder_scheduler());
    check_grammar(&batch_scheduler());
}
