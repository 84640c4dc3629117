//! The families that are read from folders, and their GGUF files, against what Hugging Face transformers computed in
//! float64: see `folders.rs` of the tests' support.

use serde_json::Value;
use warpwright_engine::{Batch, BatchOptions, Decoder, Error, Launch, Options, Prefer};
use warpwright_model::layer::{
    Attention, Dense, ExpertWeighting, Experts, FeedForward, GateActivation, Mixer, NormKind,
    ScoreScale,
};
use warpwright_model::rope::{RopeFactors, Scaling};
use warpwright_model::{EmbeddingScaling, Model, Outline};

use crate::batch::pieces;
use crate::decode::{distance, emulator, logits};
use crate::families::crc32;
use crate::folders::{CONTEXT, FolderModel, MODELS};
use crate::measured::Measured;
use crate::oracle::{self, Keep};

const REMEDY: &str =
    "make engine/tests/data/folders.json again, as engine/tests/data/folders.py says";

/// The results of transformers.
struct Wanted(Value);

impl Wanted {
    fn read() -> Wanted {
        let text = std::fs::read_to_string(crate::repository("engine/tests/data/folders.json"));
        Wanted(serde_json::from_str(&text.unwrap()).unwrap())
    }

    fn ids(&self) -> Vec<u32> {
        crate::ids(&self.0["ids"])
    }

    /// The logits after each token, one row after the other.
    fn logits(&self, model: &FolderModel) -> Vec<f64> {
        let wanted = &self.0["models"][model.name];
        let crc = crc32(&model.safetensors(str::to_owned));
        assert_eq!(wanted["crc32"], crc, "{} has changed: {REMEDY}", model.name);
        let rows = wanted["logits"].as_array().unwrap().iter();
        let numbers = rows.flat_map(|row| row.as_array().unwrap());
        numbers.map(|x| x.as_f64().unwrap()).collect()
    }
}

fn folder(model: &FolderModel) -> Model {
    let path = crate::scratch(model.name);
    model.write(&path).unwrap();
    Model::open(&path).unwrap()
}

fn has_experts(model: &FolderModel) -> bool {
    ["moe", "mixtral"]
        .iter()
        .any(|name| model.name.contains(name))
}

/// No kernels are needed for this: the keys, the tensors and the rule of the experts are those of transformers.
#[test]
fn experts_are_those_of_transformers() {
    let wanted = Wanted::read();
    let ids = wanted.ids();
    let mut count = 0;
    for model in MODELS.iter().filter(|model| has_experts(model)) {
        let Some(file) = model.gguf() else { continue };
        let opened = Model::open(&file.save(&format!("oracle-{}.gguf", model.name))).unwrap();
        let rows = oracle::logits(&opened, &ids, Keep::Exact);
        let found = distance(&rows.concat(), &wanted.logits(model));
        println!("{}: {found:e}", model.name);
        // Norms and the weights of experts are float32 in transformers.
        assert!(
            found < 1e-5,
            "{}: the relative error is {found:e}",
            model.name
        );
        count += 1;
    }
    assert!(count >= 7);
}

fn options(prefer: Prefer) -> Options {
    Options {
        prefer,
        chunk: 0,
        ..Options::new(CONTEXT, Launch::Graph)
    }
}

/// A few tokens, but more than the longest window of the models.
const FEW: usize = 9;

fn error(decoder: &mut Decoder, ids: &[u32], wanted: &[f64]) -> f64 {
    let rows = logits(decoder, ids).concat();
    distance(&rows.into_iter().map(f64::from).collect::<Vec<_>>(), wanted)
}

/// The models that only the pipeline has kernels for, because their rows are no multiples of 128.
const TOKEN_BY_TOKEN: [&str; 2] = ["qwen3moe", "qwen3moe-fused"];

/// The models that the pipeline, chunks and batches have kernels for.
const FAST: [&str; 13] = [
    "gemma3",
    "gemma3-types",
    "glm4",
    "glm4-unbiased",
    "granite",
    "granite4-dense",
    "granitemoe",
    "ministral3",
    "mistral",
    "mistral-full",
    "mixtral",
    "qwen3moe-shares",
    "smollm3",
];

#[test]
fn folders_agree_in_both_passes() {
    let wanted = Wanted::read();
    let measured = Measured::read();
    let ids = wanted.ids();
    for model in MODELS {
        let logits = wanted.logits(model);
        let opened = folder(model);
        let mut decoder =
            Decoder::new(&emulator(), &opened, options(Prefer::Fast), |_| ()).unwrap();
        let path = decoder.path().to_string();
        let fast = FAST.contains(&model.name) || TOKEN_BY_TOKEN.contains(&model.name);
        assert_eq!(!path.starts_with("simple"), fast, "{}: {path}", model.name);
        measured.fact(model.name, "path", path.as_str().into());
        // Without the pipeline, this is the pass of the simple kernels.
        if fast {
            let found = error(&mut decoder, &ids, &logits);
            measured.error(model.name, "pipeline", found);
            assert!(
                found < 1e-3,
                "{}, {path}: the relative error is {found:e}",
                model.name
            );
            decoder = Decoder::new(&emulator(), &opened, options(Prefer::Simple), |_| ()).unwrap();
        }

        let found = error(&mut decoder, &ids, &logits);
        measured.error(model.name, "simple", found);
        assert!(
            found < 1e-3,
            "{}, simple: the relative error is {found:e}",
            model.name
        );
    }
    measured.finish();
}

/// A GGUF file of the same weights is the same model. A few tokens, more than the longest window, show it.
#[test]
fn gguf_files_agree() {
    let wanted = Wanted::read();
    let measured = Measured::read();
    let ids = wanted.ids();
    for model in MODELS {
        let Some(file) = model.gguf() else { continue };
        let opened = Model::open(&file.save(&format!("{}.gguf", model.name))).unwrap();
        let mut decoder =
            Decoder::new(&emulator(), &opened, options(Prefer::Fast), |_| ()).unwrap();
        let vocab = opened.outline.config.vocab as usize;
        let logits = &wanted.logits(model)[..FEW * vocab];
        let found = error(&mut decoder, &ids[..FEW], logits);
        measured.error(model.name, "gguf", found);
        assert!(
            found < 1e-3,
            "{}: the relative error is {found:e}",
            model.name
        );
    }
    measured.finish();
}

/// Prompts in chunks, for the models that have kernels for them.
#[test]
fn chunks_agree() {
    let wanted = Wanted::read();
    let measured = Measured::read();
    let ids = wanted.ids();
    for model in MODELS.iter().filter(|model| FAST.contains(&model.name)) {
        let opened = folder(model);
        let options = Options::new(CONTEXT, Launch::Graph);
        let mut decoder = Decoder::new(&emulator(), &opened, options, |_| ()).unwrap();
        let at_once = decoder.at_once(ids.len() as u32);
        let found = error(&mut decoder, &ids, &wanted.logits(model));
        measured.error(model.name, "chunks", found);
        assert!(at_once >= ids.len() as u32, "{}: {at_once}", model.name);
        assert!(
            found < 2e-3,
            "{}: the relative error is {found:e}",
            model.name
        );
    }
    measured.finish();
}

/// Sequences of a batch, in pieces of one token and of several. Models without kernels for it are refused.
#[test]
fn batches_agree() {
    let wanted = Wanted::read();
    let measured = Measured::read();
    let ids = wanted.ids();
    for model in MODELS {
        let opened = folder(model);
        let options = BatchOptions {
            sequences: 2,
            ..BatchOptions::new(2, CONTEXT)
        };
        let mut batch = match Batch::new(&emulator(), &opened, options, |_| ()) {
            Err(error @ Error::NoBatch { .. }) if !FAST.contains(&model.name) => {
                let message = error.to_string();
                assert!(message.contains("cannot be stepped together"), "{message}");
                let Error::NoBatch { why } = error else {
                    unreachable!("the pattern above")
                };
                measured.fact(model.name, "no batches", why.into());
                continue;
            }
            batch => batch.unwrap(),
        };
        let vocab = opened.outline.config.vocab as usize;
        let logits = wanted.logits(model);
        let parts = [7, 1, 9, 1];
        let mut end = 0;
        let mut largest = 0.0f64;
        for (part, row) in parts.iter().zip(pieces(&mut batch, &ids, &parts)) {
            end += part;
            let found: Vec<f64> = row.into_iter().map(f64::from).collect();
            let found = distance(&found, &logits[(end - 1) * vocab..][..vocab]);
            largest = largest.max(found);
            assert!(
                found < 2e-3,
                "{}, after {end}: the relative error is {found:e}",
                model.name
            );
        }
        measured.error(model.name, "batches", largest);
    }
    measured.finish();
}

/// A change to what was read of a folder.
type Change = fn(&mut Outline);

/// Without any of what the families add, the logits are far from right. So the bounds above hold each of it.
#[test]
fn every_fact_matters() {
    #[rustfmt::skip] // one fact a line
    let changes: &[(&str, &str, Change)] = &[
        ("mistral", "no window", |o| attention(o, |_, a| a.window = None)),
        ("mistral", "a window one longer", |o| attention(o, |_, a| a.window = Some(6))),
        ("gemma3", "scores by the length of a head", |o| attention(o, |_, a| a.score_scale = ScoreScale::RootOf(32))),
        ("phi4-mini", "short factors", |o| factors(o, 64)),
        ("phi4-mini", "cosine and sine as they are", |o| o.config.ropes[0].magnitude = 1.0),
        ("granite", "embeddings as they are", |o| o.config.embedding_scale = EmbeddingScaling::One),
        ("granite", "no factor of residuals", |o| o.config.embedding_scale = EmbeddingScaling::Factor(12.0)),
        ("granite", "scores by the length of a head", |o| attention(o, |_, a| a.score_scale = ScoreScale::RootOf(32))),
        ("smollm3", "all layers rotated", |o| attention(o, |_, a| a.rope = 1)),
        ("smollm3", "another period", |o| attention(o, |i, a| a.rope = u32::from(i != 2))),
        ("exaone4", "all layers rotated", |o| attention(o, |_, a| a.rope = 1)),
        ("exaone4", "no factors", |o| o.rope_factors = None),
        ("olmo3", "scaling in all layers", |o| attention(o, |_, a| a.rope = 0)),
        ("olmo3", "no scaling", |o| o.config.ropes[0].scaling = Scaling::Linear(1.0)),
        ("gemma2", "unbounded scores", |o| attention(o, |_, a| a.score_cap = None)),
        ("gemma2", "another bound of scores", |o| attention(o, |_, a| a.score_cap = Some(2.2))),
        ("gemma2", "unbounded logits", |o| o.config.logit_cap = None),
        ("gemma2", "windows in the other layers", |o| attention(o, |i, a| a.window = (i % 2 == 1).then_some(5))),
        ("glm4", "another pairing", |o| attention(o, |_, a| a.pairing = warpwright_model::RopePairing::HalfSplit)),
        ("qwen3moe", "weights that keep their share", |o| experts(o, |e| e.weighting = ExpertWeighting::Softmax)),
        ("qwen3moe", "one expert more", |o| experts(o, |e| e.chosen += 1)),
        ("qwen3moe", "one expert fewer", |o| experts(o, |e| e.chosen -= 1)),
        ("qwen3moe-shares", "weights that add up to 1", |o| experts(o, |e| e.weighting = ExpertWeighting::SoftmaxOfChosen)),
        ("qwen3moe-fused", "gate and up exchanged", |o| exchange(o)),
        ("qwen2moe", "a factor of the weights", |o| experts(o, |e| e.weight_scale = 1.05)),
        ("olmoe", "weights that add up to 1", |o| experts(o, |e| e.weighting = ExpertWeighting::SoftmaxOfChosen)),
        ("ministral3", "no scaling", |o| o.config.ropes[0].scaling = Scaling::Linear(1.0)),
        ("ministral3", "cosine and sine as they are", |o| o.config.ropes[0].magnitude = 1.0),
        ("starcoder2", "no window", |o| attention(o, |_, a| a.window = None)),
        ("starcoder2", "another activation", |o| dense(o, |d| d.activation = GateActivation::Silu)),
        ("starcoder2", "RMSNorm", |o| o.config.norm = NormKind::Rms),
        ("cohere2", "RMSNorm at the end", |o| o.config.norm = NormKind::Rms),
        ("cohere2", "all layers rotated", |o| attention(o, |_, a| a.rope = 1)),
    ];
    let wanted = Wanted::read();
    let ids = &wanted.ids()[..FEW];
    for model in MODELS {
        let of_model = || {
            changes
                .iter()
                .filter(move |(name, _, _)| *name == model.name)
        };
        if of_model().next().is_none() {
            continue;
        }
        let mut opened = folder(model);
        let logits = &wanted.logits(model)[..FEW * opened.outline.config.vocab as usize];
        for (_, what, change) in of_model() {
            let outline = opened.outline.clone();
            change(&mut opened.outline);
            let mut decoder =
                Decoder::new(&emulator(), &opened, options(Prefer::Simple), |_| ()).unwrap();
            let found = error(&mut decoder, ids, logits);
            assert!(
                found > 4e-3,
                "{}, {what}: the relative error is only {found:e}",
                model.name
            );
            opened.outline = outline;
        }
    }
}

fn attention(outline: &mut Outline, change: impl Fn(u32, &mut Attention)) {
    for (index, layer) in (0..).zip(&mut outline.config.layers) {
        let Mixer::Attention(attention) = &mut layer.mixer;
        change(index, attention);
    }
}

fn experts(outline: &mut Outline, change: impl Fn(&mut Experts)) {
    for layer in &mut outline.config.layers {
        if let FeedForward::Experts(experts) = &mut layer.feed_forward {
            change(experts);
        }
    }
}

fn dense(outline: &mut Outline, change: impl Fn(&mut Dense)) {
    for layer in &mut outline.config.layers {
        if let FeedForward::Dense(dense) = &mut layer.feed_forward {
            change(dense);
        }
    }
}

fn exchange(outline: &mut Outline) {
    for block in &mut outline.weights.blocks {
        std::mem::swap(&mut block.gate_experts, &mut block.up_experts);
    }
}

fn factors(outline: &mut Outline, context: u32) {
    match outline.rope_factors.as_mut() {
        Some(RopeFactors::ByContext { original, .. }) => *original = context,
        other => panic!("no factors by context: {other:?}"),
    }
}
