//! Drafts: the scheduler over a scripted engine, and real tokens on the emulator.

use std::path::Path;
use std::sync::Arc;

use warpwright_driver::{Context, Driver};
use warpwright_engine::{BatchOptions, BatchRounding, PromptLookup};
use warpwright_model::{GrammarCompiler, GrammarText, Model};
use warpwright_server::engine::scripted::{DraftScript, StepLog};
use warpwright_server::engine::{BatchEngine, EngineLimits, ScriptedEngine};
use warpwright_server::scheduler::{
    AtEnd, DraftLengthRule, GenerationEnded, GenerationEvent, GenerationRequest, Scheduler,
    SchedulerOptions, SpeculationOptions,
};

use crate::scheduler::{collect, generate, request};

const END: u32 = 2;

const LIMITS: EngineLimits = EngineLimits {
    sequences: 4,
    ctx: 128,
    tokens_per_step: 32,
    pages: 64,
    page_len: 8,
    vocab: 1000,
    logprobs: 5,
};

fn options(speculation: SpeculationOptions) -> SchedulerOptions {
    SchedulerOptions {
        steps_per_launch: 1,
        speculation: Some(speculation),
        ..SchedulerOptions::default()
    }
}

/// Three drafts in every step, for up to two sequences.
fn three() -> SpeculationOptions {
    SpeculationOptions {
        sequences: 2,
        drafts: 3,
        length: DraftLengthRule::Always,
    }
}

/// A scheduler whose replies count from 100 on, as many tokens as the first token of the prompt.
fn scripted(limits: EngineLimits, drafts: DraftScript) -> (Scheduler, StepLog) {
    let script = |prompt: &[u32]| {
        let counted = (0..prompt[0]).map(|index| 100 + index);
        counted.chain([END]).collect()
    };
    let engine = ScriptedEngine::new(limits, vec![END], Box::new(script)).with_drafts(8, drafts);
    let log = engine.log();
    (Scheduler::start(Box::new(engine), options(three())), log)
}

/// The right drafts.
fn right() -> DraftScript {
    Box::new(|tokens, most| {
        let first = tokens[tokens.len() - 1] + 1;
        (first..).take(most).collect()
    })
}

fn counted(count: u32) -> Vec<u32> {
    (100..100 + count).collect()
}

/// Returns the numbers of drafts of all steps with drafts.
fn drafts(log: &StepLog) -> Vec<u32> {
    let rows = log.records().into_iter().flat_map(|record| record.rows);
    rows.map(|row| row.drafts)
        .filter(|drafts| *drafts > 0)
        .collect()
}

/// Returns the end of a generation.
fn end(scheduler: &Scheduler, request: GenerationRequest) -> GenerationEnded {
    let mut generation = scheduler.submit(request).expect("it is accepted");
    loop {
        match generation.events.blocking_recv().expect("it ends") {
            GenerationEvent::Ended(ended) => return ended,
            GenerationEvent::Failed(error) => panic!("{error}"),
            GenerationEvent::Started { .. }
            | GenerationEvent::Prompt(_)
            | GenerationEvent::Tokens(_) => {}
        }
    }
}

#[test]
fn right_drafts_shorten_a_reply() {
    let (scheduler, log) = scripted(LIMITS, right());
    let got = generate(&scheduler, request(&[21, 7]));
    assert_eq!(got.tokens, counted(21));

    // One token by the prompt, four tokens by each of five steps, and the end.
    assert_eq!(log.records().len(), 1 + 5 + 1);
    let status = scheduler.status();
    assert_eq!(status.generated_tokens, 21);
    assert_eq!(status.accepted_tokens, 15);
    assert_eq!(status.pages.used, 0);
    let ended = end(&scheduler, request(&[21, 7]));
    assert_eq!(ended.accepted, 15);
    assert!(ended.drafted >= 15);
}

#[test]
fn wrong_drafts_change_nothing() {
    let wrong: DraftScript = Box::new(|tokens, _| {
        // The second one is wrong, and another one is in no vocabulary.
        let last = tokens[tokens.len() - 1];
        vec![last + 1, last, last + 3, 5000, 7]
    });
    let (scheduler, log) = scripted(LIMITS, wrong);
    let mut limited = request(&[40, 7]);
    limited.max_tokens = Some(11);
    limited.sampling.logprobs = 1;
    let got = generate(&scheduler, limited);
    assert_eq!(got.tokens, counted(11));
    assert_eq!(got.probabilities, 11);

    // No step can choose more tokens than the request still has.
    assert_eq!(drafts(&log).last(), Some(&1));
    let status = scheduler.status();
    assert_eq!((status.drafted_tokens, status.accepted_tokens), (13, 5));
}

#[test]
fn a_draft_never_ends_a_text() {
    let end: DraftScript = Box::new(|_, most| vec![END; most]);
    let (scheduler, log) = scripted(LIMITS, end);
    assert_eq!(generate(&scheduler, request(&[5])).tokens, counted(5));
    assert!(drafts(&log).is_empty());

    // It is a token like any other if the request ignores ends.
    let mut ignored = request(&[5]);
    ignored.at_end = AtEnd::Ignore;
    ignored.max_tokens = Some(12);
    let got = generate(&scheduler, ignored);
    assert_eq!(got.tokens[..6], [100, 101, 102, 103, 104, END]);
    assert_eq!(got.tokens.len(), 12);
    assert!(!drafts(&log).is_empty());
}

#[test]
fn many_sequences_have_no_drafts() {
    let (scheduler, log) = scripted(LIMITS, right());
    let generations: Vec<_> = (0..4)
        .map(|index| {
            scheduler
                .submit(request(&[30, index]))
                .expect("it is accepted")
        })
        .collect();
    for generation in generations {
        assert_eq!(collect(generation).tokens, counted(30));
    }
    for record in log.records() {
        let generating = record.rows.iter().filter(|row| row.position > 1).count();
        let drafts: u32 = record.rows.iter().map(|row| row.drafts).sum();
        assert!(drafts == 0 || generating <= 2, "{record:?}");
        assert!(drafts as usize + record.rows.len() <= 8, "{record:?}");
    }
}

#[test]
fn drafts_evict_nothing() {
    // Two sequences fill the cache. Their last drafts do not fit.
    let (scheduler, _) = scripted(EngineLimits { pages: 6, ..LIMITS }, right());
    let generations = [0, 1].map(|index| {
        let mut limited = request(&[90, index]);
        limited.max_tokens = Some(22);
        scheduler.submit(limited).expect("it is accepted")
    });
    for generation in generations {
        assert_eq!(collect(generation).tokens, counted(22));
    }
    let status = scheduler.status();
    assert_eq!(status.evicted, 0, "{status:?}");
    assert!(status.accepted_tokens > 0, "{status:?}");
}

fn small_model() -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets");
    Model::open(&folder.join("rustdoc-7m-Q4_K_M.gguf")).expect("the model opens")
}

/// A scheduler of the small model on the emulator.
fn small(rounding: BatchRounding, speculation: Option<SpeculationOptions>) -> Scheduler {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).expect("the emulator starts");
    let context = Context::new(&driver.devices().expect("it has devices")[0]);
    let batch = BatchOptions {
        rounding,
        tokens: 96,
        ..BatchOptions::new(2, 128)
    };
    let context = context.expect("a context is created");
    let engine = BatchEngine::load(&context, &small_model(), batch, |_| ());
    let mut engine = engine.expect("it loads");
    engine.propose_by_lookup(PromptLookup::default());
    let options = SchedulerOptions {
        exact_chunk: match rounding {
            BatchRounding::Same => Some(64),
            BatchRounding::Fastest => None,
        },
        speculation,
        ..SchedulerOptions::default()
    };
    Scheduler::start(Box::new(engine), options)
}

/// A prompt that repeats itself, so that the model does too.
fn repeating() -> GenerationRequest {
    let tokenizer = small_model().tokenizer().expect("it has a tokenizer");
    let line = "Returns the number of elements in the slice. ";
    let prompt = tokenizer.encode(&line.repeat(2)).expect("it has tokens");
    let mut limited = request(&prompt[..prompt.len() - 4]);
    limited.at_end = AtEnd::Ignore;
    limited.max_tokens = Some(8);
    limited.sampling.logprobs = 2;
    limited
}

#[test]
fn a_repeating_prompt_has_accepted_drafts_and_the_same_text() {
    let speculation = SpeculationOptions::default();
    let plain = small(BatchRounding::Fastest, None);
    let drafted = small(BatchRounding::Fastest, Some(speculation));
    let expected = generate(&plain, repeating());
    let got = generate(&drafted, repeating());
    assert_eq!(got.failure, None);
    assert_eq!(got.tokens, expected.tokens);
    assert_eq!(got.probabilities, 8);

    // The two paths round differently.
    for (got, expected) in got.chosen.iter().zip(&expected.chosen) {
        assert!((got - expected).abs() < 1e-2, "{got} for {expected}");
    }
    let status = drafted.status();
    assert!(status.accepted_tokens > 0, "{status:?}");
    assert_eq!(plain.status().drafted_tokens, 0);
}

#[test]
fn drafts_change_no_bit_in_deterministic_mode() {
    let plain = small(BatchRounding::Same, None);
    let always = SpeculationOptions {
        length: DraftLengthRule::Always,
        drafts: 3,
        ..SpeculationOptions::default()
    };
    let drafted = small(BatchRounding::Same, Some(always));
    let expected = generate(&plain, repeating());
    let got = generate(&drafted, repeating());
    assert_eq!(got.tokens, expected.tokens);
    assert_eq!(got.chosen, expected.chosen);
    let status = drafted.status();
    assert!(status.accepted_tokens > 0, "{status:?}");
}

#[test]
fn a_grammar_has_no_drafts() {
    let model = small_model();
    let limits = EngineLimits {
        vocab: model.outline.config.vocab,
        ..LIMITS
    };
    let (scheduler, log) = scripted(limits, right());
    let tokenizer = Arc::new(model.tokenizer().expect("it has a tokenizer"));
    let compiler = GrammarCompiler::new(tokenizer.clone(), &model.outline).expect("it compiles");
    let grammar = compiler.compile(&GrammarText::Regex("(ab ){3}".to_owned()));
    let mut constrained = request(&[60]);
    constrained.grammar = Some(grammar.expect("it compiles").matcher());
    let got = generate(&scheduler, constrained);
    assert_eq!(got.failure, None);
    assert_eq!(tokenizer.decode(&got.tokens).trim(), "ab ab ab");
    assert!(drafts(&log).is_empty());

    // The same request without the grammar has drafts.
    generate(&scheduler, request(&[60]));
    assert!(!drafts(&log).is_empty());
}
