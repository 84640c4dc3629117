//! Every family against what Hugging Face transformers computed in float64: see `families.rs`.

use serde_json::Value;
use warpwright_engine::{Batch, BatchOptions, Decoder, Error, KernelPath, Launch, Options, Prefer};
use warpwright_model::config::Architecture;
use warpwright_model::layer::{Attention, Dense, FeedForward, Mixer};
use warpwright_model::rope::{RopeFactors, Scaling};
use warpwright_model::{EmbeddingScaling, GateActivation, Model, Outline};

use crate::decode::{distance, emulator, logits};
use crate::families::{self, MODELS, crc32};
use crate::measured::Measured;
use crate::oracle::{self, Keep};

const REMEDY: &str = "make tests/data/families.json again, as tests/data/families.py says";

/// The models of the families that the engine knows, with their logits. Their files are named after the test, because
/// tests run at the same time.
pub(crate) fn supported(
    test: &str,
) -> impl Iterator<Item = (&'static families::Model, Model, Vec<f64>)> {
    let text =
        std::fs::read_to_string(crate::repository("engine/tests/data/families.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let known = |model: &&families::Model| {
        Architecture::ALL
            .iter()
            .any(|known| known.name == model.family)
    };
    let test = test.to_owned();
    MODELS.iter().filter(known).map(move |model| {
        let (file, wanted) = (model.file(), &json["models"][model.name]);
        assert_eq!(
            wanted["crc32"],
            crc32(&file.bytes()),
            "{} has changed: {REMEDY}",
            model.name
        );
        let rows = wanted["logits"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|row| row.as_array().unwrap());
        let rows = rows.map(|x| x.as_f64().unwrap()).collect();
        (
            model,
            Model::open(&file.save(&format!("families-{test}-{}.gguf", model.name))).unwrap(),
            rows,
        )
    })
}

/// The name of a model in the recorded results, which also have folders with such names.
pub(crate) fn recorded_name(model: &families::Model) -> String {
    format!("{}-file", model.name)
}

pub(crate) fn ids() -> Vec<u32> {
    let text =
        std::fs::read_to_string(crate::repository("engine/tests/data/families.json")).unwrap();
    crate::ids(&serde_json::from_str::<Value>(&text).unwrap()["ids"])
}

/// transformers rounds norms, angles and probabilities to float32.
#[test]
fn the_oracle_agrees() {
    for (case, model, wanted) in supported("oracle") {
        let found = distance(
            &oracle::logits(&model, &ids(), Keep::Exact).concat(),
            &wanted,
        );
        assert!(
            found < 2e-6,
            "{}: the relative error is {found:e}",
            case.name
        );
    }
}

#[test]
fn both_passes_agree() {
    let measured = Measured::read();
    for (case, model, wanted) in supported("passes") {
        for prefer in [Prefer::Fast, Prefer::Simple] {
            let options = Options {
                prefer,
                chunk: 0,
                ..Options::new(case.room, Launch::Graph)
            };
            let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
            let rows = logits(&mut decoder, &ids()).concat();
            let pass = match decoder.path() {
                KernelPath::Simple { .. } => "simple",
                KernelPath::Overlapped | KernelPath::Sequential { .. } => "pipeline",
            };
            if prefer == Prefer::Fast {
                measured.fact(
                    &recorded_name(case),
                    "path",
                    decoder.path().to_string().into(),
                );
                let single = Options {
                    prefill_batch: 1,
                    ..options
                };
                decoder = decoder.with_options(&model.outline, single).unwrap();
                assert_eq!(
                    logits(&mut decoder, &ids()).concat(),
                    rows,
                    "{}: a token at a time",
                    case.name
                );
            }

            let found = distance(
                &rows.into_iter().map(f64::from).collect::<Vec<_>>(),
                &wanted,
            );
            measured.error(&recorded_name(case), pass, found);
            assert!(
                found < 1e-3,
                "{}, {}: the relative error is {found:e}",
                case.name,
                decoder.path()
            );
        }
    }
    measured.finish();
}

/// All but the families of which only a part of each head is rotated, which the simple kernels decode.
#[test]
fn chunks_agree() {
    let measured = Measured::read();
    for (case, model, wanted) in supported("chunks") {
        let options = Options::new(case.room, Launch::Graph);
        let without = Options {
            chunk: 0,
            ..options
        };
        let decoder = Decoder::new(&emulator(), &model, without, |_| ()).unwrap();
        assert_eq!(
            decoder.at_once(20),
            decoder.prefill_batch(),
            "{}",
            case.name
        );
        let mut decoder = decoder.with_options(&model.outline, options).unwrap();
        assert_eq!(
            decoder.at_once(20) > decoder.prefill_batch(),
            case.name != "phi3-partial",
            "{}",
            case.name
        );
        let rows = logits(&mut decoder, &ids()).concat();
        let found = distance(
            &rows.into_iter().map(f64::from).collect::<Vec<_>>(),
            &wanted,
        );
        assert!(
            found < 2e-3,
            "{}: the relative error is {found:e}",
            case.name
        );
        measured.error(&recorded_name(case), "chunks", found);
        let options = BatchOptions::new(1, case.room);
        match Batch::new(&emulator(), &model, options, |_| ()) {
            Ok(_) => {}
            Err(Error::NoBatch { why }) => {
                measured.fact(&recorded_name(case), "no batches", why.into())
            }
            Err(error) => panic!("{}: {error}", case.name),
        }
    }
    measured.finish();
}

/// A change to what was read of a file.
type Change = fn(&mut Outline);

/// What the families' constants are worth: without any of them the logits are far from right. So the bounds above hold
/// each of them.
#[test]
fn every_constant_matters() {
    #[rustfmt::skip] // one constant a line
    let changes: &[(&str, &str, Change)] = &[
        ("gemma3", "no window", |o| attention(o, |_, a| a.window = None)),
        ("gemma3", "a window one longer", |o| attention(o, |_, a| a.window = a.window.map(|_| 9))),
        ("gemma3", "another period", |o| attention(o, |i, a| period(i, a, 5))),
        ("gemma3", "one rotary base", |o| o.config.ropes[1].base = 1e6),
        ("gemma3", "SiLU", |o| feed_forward(o, |d| d.activation = GateActivation::Silu)),
        ("gemma3", "embeddings as they are", |o| o.config.embedding_scale = EmbeddingScaling::One),
        ("gemma3-linear", "no linear scaling", |o| o.config.ropes[0].scaling = Scaling::Linear(1.0)),
        ("gemma3-linear", "linear scaling in all layers", |o| o.config.ropes[1].scaling = Scaling::Linear(8.0)),
        ("phi3-window", "no window", |o| attention(o, |_, a| a.window = None)),
        ("phi3-window", "a window one shorter", |o| attention(o, |_, a| a.window = Some(5))),
        ("phi3-longrope", "short factors", |o| factors(o, |original| *original = 64)),
        ("phi3-longrope", "no factors", |o| o.rope_factors = None),
        ("phi3-longrope", "cosine and sine as they are", |o| o.config.ropes[0].magnitude = 1.0),
        ("phi3-partial", "half of each head", |o| o.config.ropes[0].dim = 32),
        ("phi3-partial", "cosine and sine as they are", |o| o.config.ropes[0].magnitude = 1.0),
        ("phi3-shortrope", "long factors", |o| factors(o, |original| *original = 16)),
        ("phi3-shortrope", "no factors", |o| o.rope_factors = None),
    ];
    for (case, mut model, wanted) in supported("constants") {
        for (_, what, change) in changes.iter().filter(|(name, _, _)| *name == case.name) {
            let outline = model.outline.clone();
            change(&mut model.outline);
            let options = Options {
                prefer: Prefer::Simple,
                ..Options::new(case.room, Launch::Graph)
            };
            let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
            let rows = logits(&mut decoder, &ids()).concat();
            let found = distance(
                &rows.into_iter().map(f64::from).collect::<Vec<_>>(),
                &wanted,
            );
            assert!(
                found > 5e-3,
                "{}, {what}: the relative error is only {found:e}",
                case.name
            );
            model.outline = outline;
        }
    }
}

fn factors(outline: &mut Outline, change: impl Fn(&mut u32)) {
    match outline.rope_factors.as_mut() {
        Some(RopeFactors::ByContext { original, .. }) => change(original),
        other => panic!("no factors by context: {other:?}"),
    }
}

fn attention(outline: &mut Outline, change: impl Fn(u32, &mut Attention)) {
    for (index, layer) in (0..).zip(&mut outline.config.layers) {
        let Mixer::Attention(attention) = &mut layer.mixer;
        change(index, attention);
    }
}

/// A window of 8 and the second rope, in all layers but each `period`-th.
fn period(index: u32, attention: &mut Attention, period: u32) {
    let local = !(index + 1).is_multiple_of(period);
    attention.window = local.then_some(8);
    attention.rope = local.into();
}

fn feed_forward(outline: &mut Outline, change: impl Fn(&mut Dense)) {
    for layer in &mut outline.config.layers {
        match &mut layer.feed_forward {
            FeedForward::Dense(dense) => change(dense),
            FeedForward::Experts(_) => panic!("a dense model"),
        }
    }
}
