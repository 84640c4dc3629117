//! Drafts: the scheduler over a scripted engine, and real tokens on the emulator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpwright_engine::{
    BatchDraftModel, BatchDraftOptions, BatchDraftRequest, BatchOptions, BatchRounding,
    PromptLookup, Sampling,
};
use warpwright_model::{GrammarCompiler, GrammarText, Model};
use warpwright_server::engine::scripted::{DraftScript, StepLog};
use warpwright_server::engine::{BatchEngine, DraftSource, EngineLimits, ScriptedEngine};
use warpwright_server::models::{
    AdapterOptions, DeviceLoader, DeviceOptions, DraftOptions, DraftOrigin, LoadProgress,
    ModelEntry, ModelLoader, Repetition, RequestOverrides, ServedModel,
};
use warpwright_server::scheduler::{
    AtEnd, DraftLengthRule, GenerationEnded, GenerationEvent, GenerationRequest, Scheduler,
    SchedulerOptions, SpeculationOptions,
};

use crate::harness::{asset, emulator, small_model};
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

/// The weights of the small model before they were quantized.
fn draft_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/rustdoc-7m-F16.gguf")
}

/// A scheduler of the small model on the emulator, with drafts by prompt lookup.
fn small(rounding: BatchRounding, speculation: Option<SpeculationOptions>) -> Scheduler {
    small_with(
        DraftSource::Lookup(PromptLookup::default()),
        rounding,
        speculation,
    )
}

fn small_with(
    drafts: DraftSource,
    rounding: BatchRounding,
    speculation: Option<SpeculationOptions>,
) -> Scheduler {
    let batch = BatchOptions {
        rounding,
        tokens: 96,
        ..BatchOptions::new(2, 128)
    };
    let engine = BatchEngine::load(&emulator(), &small_model(), batch, |_| ());
    let mut engine = engine.expect("it loads");
    engine.set_drafts(drafts);
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

/// A draft model for up to two texts of up to 96 tokens.
fn draft_model() -> BatchDraftModel {
    let draft = Model::open(&draft_path()).expect("the draft model opens");
    let options = BatchDraftOptions {
        texts: 2,
        ctx: 96,
        tokens_per_call: 32,
    };
    let verified_by = small_model().outline;
    BatchDraftModel::load(&emulator(), &draft, &verified_by, options, |_| ()).expect("it loads")
}

/// The greedy guesses of the texts, which are given with their numbers.
fn guesses(model: &mut BatchDraftModel, texts: &[(u64, &[u32])], most: u32) -> Vec<Vec<u32>> {
    let sampling = Sampling::greedy();
    let requests = texts.iter().map(|(text, tokens)| BatchDraftRequest {
        text: *text,
        tokens,
        most,
        sampling: &sampling,
        salt: 0,
    });
    let requests: Vec<_> = requests.collect();
    model.draft(&requests).expect("it guesses")
}

#[test]
fn a_draft_model_follows_its_texts() {
    let prompt = &repeating().prompt[..8];
    let mut model = draft_model();
    let first = guesses(&mut model, &[(1, prompt)], 2).remove(0);
    assert_eq!(first.len(), 2);

    // All guesses were right, some were wrong, or the text goes on with other tokens. A model that
    // sees the text for the first time guesses the same.
    let right = [prompt, &first, &[77]].concat();
    let wrong = [prompt, &first[..1], &[90]].concat();
    let other = [&prompt[..4], &[300, 41]].concat();
    for text in [&right, &wrong, &other] {
        let fresh = guesses(&mut draft_model(), &[(1, text)], 2);
        assert_eq!(fresh[0].len(), 2);
        assert_eq!(guesses(&mut model, &[(1, text)], 2), fresh, "{text:?}");
    }

    // A third text takes the place of the one that was named least recently.
    let both = guesses(&mut model, &[(1, &wrong), (2, &other)], 2);
    assert_eq!([both[0].len(), both[1].len()], [2, 2]);
    assert_eq!(guesses(&mut model, &[(2, &other)], 2)[0], both[1]);
    assert_eq!(guesses(&mut model, &[(3, &wrong)], 2)[0], both[0]);
    assert_eq!(guesses(&mut model, &[(1, &wrong)], 2)[0], both[0]);
    model.forget(1);
    model.forget(3);
    model.forget(4);
    assert_eq!(
        guesses(&mut model, &[(5, &other), (6, &wrong)], 2)[0],
        both[1]
    );
}

#[test]
fn a_draft_model_guesses_nothing_where_it_cannot() {
    let mut model = draft_model();
    let unknown = [1, 2, 5000];
    let long = vec![7; 95];
    let both = guesses(&mut model, &[(1, &unknown), (2, &long)], 3);
    assert!(both.iter().all(Vec::is_empty), "{both:?}");

    // A long prompt is processed over several calls, next to a text that has guesses meanwhile.
    let long: Vec<u32> = (0..40).map(|index| 5 * index % 300).collect();
    let short = [1, 500, 90];
    for step in 0..2 {
        let both = guesses(&mut model, &[(3, &short), (4, &long)], 1);
        assert_eq!(both[0].len(), 1);
        assert_eq!(both[1].len(), usize::from(step == 1), "{step}");
    }
}

/// Serves the small model on the emulator with this draft model.
fn served(draft: PathBuf, speculation: SpeculationOptions) -> Result<ServedModel, String> {
    let options = DeviceOptions {
        ctx: Some(128),
        sequences: Some(3),
        queue: 16,
        repetition: Repetition::Fastest,
        cache: None,
        drafts: Some(DraftOptions {
            source: DraftOrigin::Model(draft),
            speculation,
        }),
        adapters: AdapterOptions::default(),
    };
    let loader = DeviceLoader::new(
        Arc::new(|| Ok(emulator())),
        options,
        RequestOverrides::default(),
    );
    let entry = ModelEntry {
        name: "small".to_owned(),
        path: asset(),
        bytes: 0,
    };
    let loaded = loader.load(&entry, &LoadProgress::default());
    loaded.map_err(|error| error.to_string())
}

#[test]
fn a_draft_model_changes_no_text() {
    let always = SpeculationOptions {
        length: DraftLengthRule::Always,
        drafts: 3,
        sequences: 2,
    };
    let drafted = served(draft_path(), always)
        .expect("both models load")
        .scheduler;
    let plain = small(BatchRounding::Fastest, None);
    let sampled = || {
        let mut sampled = repeating();
        sampled.sampling.temperature = 0.9;
        sampled.sampling.seed = 3;
        sampled.sampling.repeat_penalty = 1.1;
        sampled
    };
    let expected = [repeating(), sampled()].map(|request| generate(&plain, request).tokens);
    assert_ne!(expected[0], expected[1]);

    // Two texts have drafts at the same time, and the second one has wrong ones.
    let both = [repeating(), sampled()].map(|request| drafted.submit(request).expect("accepted"));
    let both = both.map(|generation| collect(generation).tokens);
    assert_eq!(both, expected);
    let status = drafted.status();
    assert!(status.accepted_tokens > 0, "{status:?}");
    assert!(status.drafted_tokens > status.accepted_tokens, "{status:?}");
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.gguf");
    let error = served(missing.clone(), SpeculationOptions::default()).err();
    let error = error.expect("there is no such file");
    assert!(
        error.starts_with(&format!("--draft {}: ", missing.display())),
        "{error}"
    );

    // The same file with one token changed.
    let bytes = std::fs::read(asset()).expect("the model can be read");
    let name = b"<|endoftext|>";
    let at = bytes.windows(name.len()).position(|window| window == name);
    let mut changed = bytes;
    changed[at.expect("it has the token") + 2] = b'E';
    let path = folder.path().join("other.gguf");
    std::fs::write(&path, changed).expect("it is written");
    let error = served(path.clone(), SpeculationOptions::default()).err();
    let error = error.expect("the vocabularies differ");
    assert!(
        error.starts_with(&format!("--draft {}: ", path.display())),
        "{error}"
    );
    assert!(error.contains("<|Endoftext|>"), "{error}");
}
