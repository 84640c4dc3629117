//! The recorded facts and results of the random models of all families, from which `cargo xtask codegen` writes
//! `docs/reference/families.md`.
//!
//! The tests of families print a line for each result and compare it with `engine/tests/data/measured.json`. After a
//! change, `engine/tests/data/measured.py` makes that file from the lines.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use warpwright_model::config::Architecture;
use warpwright_model::layer::{
    DenseForm, ExpertWeighting, FeedForward, GateActivation, HeadNorms, NormKind, NormPositions,
    QkvBias, ScoreScale,
};
use warpwright_model::rope::{RopeFactors, Scaling};
use warpwright_model::shape::SHAPES;
use warpwright_model::{EmbeddingScaling, Model, Outline};

use crate::folders::FolderModel;

const REMEDY: &str =
    "make engine/tests/data/measured.json again, as engine/tests/data/measured.py says";

/// The recorded results, and the differences from them that a test found.
pub(crate) struct Measured {
    recorded: Value,
    differences: RefCell<Vec<String>>,
}

impl Measured {
    pub(crate) fn read() -> Measured {
        let text = std::fs::read_to_string(crate::repository("engine/tests/data/measured.json"));
        Measured {
            recorded: serde_json::from_str(&text.unwrap()).unwrap(),
            differences: RefCell::default(),
        }
    }

    /// Compares a fact of a model.
    pub(crate) fn fact(&self, model: &str, key: &str, found: Value) {
        println!("measured {}", json!([model, key, found]));
        let recorded = &self.recorded[model][key];
        if *recorded != found {
            let difference = format!("{model}, {key}: {found} instead of {recorded}");
            self.differences.borrow_mut().push(difference);
        }
    }

    /// Compares the relative error of a pass. Machines differ in the last bits, so a recorded error of the same size
    /// is right.
    pub(crate) fn error(&self, model: &str, pass: &str, found: f64) {
        println!("measured {}", json!([model, "errors", pass, found]));
        let recorded = self.recorded[model]["errors"][pass].as_f64();
        if !recorded.is_some_and(|recorded| (recorded / 2.0..=recorded * 1.1).contains(&found)) {
            let difference =
                format!("{model}, {pass}: the error {found:e} instead of {recorded:?}");
            self.differences.borrow_mut().push(difference);
        }
    }

    /// Fails if a result differed.
    pub(crate) fn finish(self) {
        let differences = self.differences.into_inner();
        assert!(
            differences.is_empty(),
            "{REMEDY}:\n{}",
            differences.join("\n")
        );
    }
}

/// A family that llama.cpp reads under a name that is not supported here.
const OTHER_GGUF: &str = "ministral3";

/// The facts of each random model, and that every family has one.
#[test]
fn facts_of_families_are_recorded() {
    let measured = Measured::read();
    let mut gguf: Vec<&str> = vec![];
    let mut folders: Vec<String> = vec![];
    let supported = folder_names();
    let mut record =
        |name: &str, family: &'static str, folder: Option<String>, outline: &Outline| {
            let facts: Vec<String> = facts(outline).into_iter().map(str::to_owned).collect();
            let file = Some(family).filter(|_| folder.as_deref() != Some(OTHER_GGUF));
            measured.fact(name, "gguf", json!(file));
            measured.fact(name, "folder", json!(folder));
            measured.fact(name, "facts", json!(facts));
            gguf.extend(file);
            folders.extend(folder);
        };
    for (case, model, _) in crate::transformers::supported("facts") {
        // The folders of these families have the same names.
        let folder = supported.iter().find(|folder| *folder == case.family);
        let name = crate::transformers::recorded_name(case);
        record(&name, case.family, folder.cloned(), &model.outline);
    }
    for model in crate::folders::MODELS {
        let path = crate::scratch(model.name);
        model.write(&path).unwrap();
        let opened = Model::open(&path).unwrap();
        let folder = model.config()["model_type"].as_str().unwrap().to_owned();
        let family = opened.outline.config.architecture.name;
        record(model.name, family, Some(folder), &opened.outline);
    }
    for (name, _, model) in crate::gpt_oss::models() {
        record(&name, "gpt-oss", Some("gpt_oss".to_owned()), &model.outline);
    }

    let mut shapes = BTreeMap::<&str, Vec<&str>>::new();
    for shape in &SHAPES {
        let family = shape.hyperparameters.architecture.name;
        shapes.entry(family).or_default().push(shape.name);
    }
    for (family, names) in shapes {
        measured.fact("shapes", family, json!(names));
    }
    for architecture in Architecture::ALL {
        assert!(
            gguf.contains(&architecture.name),
            "no model of {}",
            architecture.name
        );
    }
    for folder in supported {
        assert!(folders.contains(&folder), "no model of {folder}");
    }
    measured.finish();
}

/// The names of all families of folders, which the message about an unknown name lists.
fn folder_names() -> Vec<String> {
    let model: &FolderModel = &crate::folders::MODELS[0];
    let path = crate::scratch("unknown");
    model.write(&path).unwrap();
    let mut config = model.config();
    config.insert("model_type".to_owned(), json!("unknown"));
    std::fs::write(path.join("config.json"), Value::Object(config).to_string()).unwrap();
    let message = Model::open(&path).unwrap_err().to_string();
    let (_, names) = message
        .split_once("supported as a folder: ")
        .expect("the list");
    names.split(", ").map(str::to_owned).collect()
}

/// The differences of a model from Llama.
fn facts(outline: &Outline) -> Vec<&'static str> {
    let c = &outline.config;
    let attentions: Vec<_> = c.attentions().collect();
    let all = |is: &dyn Fn(usize) -> bool| (0..attentions.len()).all(is);
    let any = |is: &dyn Fn(usize) -> bool| (0..attentions.len()).any(is);
    let layer = &c.layers[0];
    let attention = attentions[0];
    let window = |i: usize| attentions[i].window.is_some();
    let rope = |i: usize| c.rope(attentions[i]);
    let experts = c.experts().next();
    let dense = c.layers.iter().find_map(|layer| match &layer.feed_forward {
        FeedForward::Dense(dense) => Some(dense),
        FeedForward::Experts(_) => None,
    });
    let [full, local] = [c.ropes.first(), c.ropes.last()].map(|rope| rope.expect("a rope"));
    #[rustfmt::skip] // one fact a line
    let facts = [
        (layer.norms == NormPositions::BeforeAndAfter, "norms before and after attention and the feed-forward"),
        (layer.norms == NormPositions::After, "norms only after attention and the feed-forward"),
        (layer.norms == NormPositions::Shared, "attention and the feed-forward have the same input"),
        (c.norm == NormKind::Layer, "LayerNorm"),
        (c.norm == NormKind::LayerBiased, "LayerNorm with biases"),
        (attention.head_norms == HeadNorms::QueriesAndKeys, "norms of each head of queries and keys"),
        (attention.head_norms == HeadNorms::Projections, "norms of all queries and of all keys"),
        (attention.bias == QkvBias::Each, "biases of queries, keys and values"),
        (attention.output_bias, "a bias of the output projection"),
        (attention.sinks, "attention sinks"),
        (all(&window), "a window in every layer"),
        (any(&window) && !all(&window), "a window in some layers"),
        (any(&|i| rope(i).scaling == Scaling::Still), "layers without a rotation"),
        (any(&|i| rope(i).rotated < attentions[i].head_dim), "a part of each head is rotated"),
        (full.base != local.base, "two rotary bases"),
        (any(&|i| matches!(rope(i).scaling, Scaling::Linear(factor) if factor != 1.0)), "linear RoPE scaling"),
        (any(&|i| matches!(rope(i).scaling, Scaling::Yarn(_))), "YaRN"),
        (matches!(outline.rope_factors, Some(RopeFactors::Fixed(_))), "RoPE factors of Llama 3"),
        (matches!(outline.rope_factors, Some(RopeFactors::ByContext { .. })), "LongRoPE"),
        (attention.score_scale != ScoreScale::RootOf(attention.head_dim), "a factor of the scores"),
        (attention.score_cap.is_some(), "a soft cap of the scores"),
        (c.logit_cap.is_some(), "a soft cap of the logits"),
        (c.logit_factor != 1.0, "a factor of the logits"),
        (c.embedding_scale != EmbeddingScaling::One, "a factor of the embeddings"),
        (layer.feed_forward.activation() == GateActivation::GeluTanh, "GELU"),
        (layer.feed_forward.activation() == GateActivation::ClampedSwiglu, "the clamped SwiGLU"),
        (dense.is_some_and(|dense| dense.form == DenseForm::PlainBiased), "a feed-forward with biases and without a gate"),
        (experts.is_some_and(|e| e.weighting == ExpertWeighting::SoftmaxOfChosen), "experts with weights that add up to 1"),
        (experts.is_some_and(|e| e.weighting == ExpertWeighting::Softmax), "experts with weights that keep their share"),
        (experts.is_some() && dense.is_some(), "layers without experts among the others"),
        (experts.is_some_and(|e| e.shared.is_some_and(|s| s.gated)), "a shared expert with a gate"),
        (experts.is_some_and(|e| e.shared.is_some_and(|s| !s.gated)), "a shared expert"),
        (experts.is_some_and(|e| e.biases), "biases of the router and the experts"),
    ];
    facts
        .into_iter()
        .filter_map(|(holds, fact)| holds.then_some(fact))
        .collect()
}
