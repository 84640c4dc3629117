//! The families that are read from folders: their keys, their tensors, and models with a part for images.
//!
//! `folders.rs` of the tests' support has a model of each. The tests of the engine compare their logits with those of
//! transformers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use warpwright_model::config::Architecture;
use warpwright_model::layer::QkvBias;
use warpwright_model::{Config, EmbeddingScaling, Model};

use crate::folders::{FolderModel, MODELS};
use crate::write::Val;

fn model(name: &str) -> &'static FolderModel {
    MODELS.iter().find(|model| model.name == name).unwrap()
}

/// Writes a model with changed keys.
fn folder(name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> PathBuf {
    let path = crate::scratch(name);
    let model = model(name);
    model.write(&path).unwrap();
    let mut config = model.config();
    change(&mut config);
    fs::write(path.join("config.json"), Value::Object(config).to_string()).unwrap();
    path
}

fn open(path: &Path) -> Model {
    Model::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The message about a model, without the path.
fn refusal(name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> String {
    let error = Model::open(&folder(name, change)).unwrap_err().to_string();
    let (_, message) = error.split_once(": ").unwrap();
    message.to_owned()
}

#[test]
fn folders_and_gguf_files_are_described_alike() {
    for model in MODELS {
        let folder = open(&folder(model.name, |_| ()));
        let Some(file) = model.gguf() else { continue };
        let gguf = open(&file.save(&format!("{}.gguf", model.name)));
        let Config {
            layers,
            norm,
            ropes,
            hidden,
            epsilon,
            logit_cap,
            logit_factor,
            ..
        } = &folder.outline.config;
        let c = &gguf.outline.config;
        assert_eq!(
            (norm, hidden, epsilon, logit_cap),
            (&c.norm, &c.hidden, &c.epsilon, &c.logit_cap),
            "{}",
            model.name
        );
        assert!(
            (logit_factor / c.logit_factor - 1.0).abs() < 1e-7,
            "{}",
            model.name
        );
        let dims = |ropes: &[_]| {
            ropes
                .iter()
                .map(|r: &warpwright_model::rope::Rope| (r.dim, r.base))
                .collect::<Vec<_>>()
        };
        assert_eq!(dims(ropes), dims(&c.ropes), "{}", model.name);
        for (a, b) in layers.iter().zip(&c.layers) {
            assert_eq!((a.norms, a.norm), (b.norms, b.norm), "{}", model.name);
            assert_eq!(a.feed_forward, b.feed_forward, "{}", model.name);
        }
        let windows = |c: &Config| {
            c.attentions()
                .map(|a| (a.window, a.rope, a.bias))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            windows(&folder.outline.config),
            windows(c),
            "{}",
            model.name
        );
    }
}

/// Norms are stored minus 1, and the last norm includes the factor of the logits.
#[test]
fn vectors_are_changed_when_they_are_read() {
    let f32s = |model: &Model, range: &std::ops::Range<usize>| -> Vec<f32> {
        let bytes = model.files.data(range).unwrap();
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    for (name, factor) in [("gemma2", 1.0), ("granite", 1.0 / 6.5), ("cohere2", 0.3)] {
        let folder = open(&folder(name, |_| ()));
        let file = model(name).gguf().unwrap();
        let stored = file
            .tensors
            .iter()
            .find(|t| t.name == "output_norm.weight")
            .unwrap();
        let wanted: Vec<f32> = stored
            .data
            .chunks_exact(4)
            .map(|b| (f64::from(f32::from_le_bytes(b.try_into().unwrap())) * factor) as f32)
            .collect();
        let gguf = open(&file.save(&format!("{name}.gguf")));
        for model in [&folder, &gguf] {
            let found = f32s(model, &model.outline.weights.norm.range);
            let close = |(a, b): (&f32, &f32)| (a / b - 1.0).abs() < 1e-6;
            assert!(
                found.len() == wanted.len() && found.iter().zip(&wanted).all(close),
                "{name}"
            );
        }

        // Parts of a vector, at any offset.
        let range = &gguf.outline.weights.norm.range;
        let all = gguf.files.data(range).unwrap();
        for (start, end) in [(0, 3), (1, 2), (5, 23), (range.len() - 3, range.len())] {
            let part = gguf
                .files
                .data(&(range.start + start..range.start + end))
                .unwrap();
            assert_eq!(part, all[start..end], "{name} {start}");
        }
    }
}

/// Both layouts of models with a part for images, which transformers has written.
#[test]
fn the_text_part_of_a_model_with_images_is_read() {
    let cases = [
        ("gemma3", "gemma3", "Gemma3ForConditionalGeneration"),
        ("mistral", "mistral3", "Mistral3ForConditionalGeneration"),
        ("ministral3", "mistral3", "Mistral3ForConditionalGeneration"),
    ];
    let old: fn(&str) -> String = |name| format!("language_model.{name}");
    let new: fn(&str) -> String = |name| match name.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None => name.to_owned(),
    };
    for (name, outer, class) in cases {
        for (layout, rename) in [("old", old), ("new", new)] {
            let plain = open(&folder(name, |_| ()));
            let path = crate::scratch(&format!("{name}-{layout}"));
            fs::create_dir_all(&path).unwrap();
            let mut text = model(name).config();
            // The outer object has them.
            let eos = text.remove("eos_token_id");
            let tied = text.remove("tie_word_embeddings");
            text.remove("architectures");
            let config = json!({
                "model_type": outer,
                "architectures": [class],
                "text_config": text,
                "vision_config": {"hidden_size": 64, "model_type": "siglip_vision_model"},
                "eos_token_id": eos,
                "tie_word_embeddings": tied,
            });
            fs::write(path.join("config.json"), config.to_string()).unwrap();
            fs::write(
                path.join("model.safetensors"),
                model(name).safetensors(rename),
            )
            .unwrap();
            let nested = open(&path);
            assert_eq!(
                nested.outline.config, plain.outline.config,
                "{name} {layout}"
            );
            assert_eq!(nested.outline.stop, plain.outline.stop, "{name} {layout}");
            for (a, b) in nested
                .outline
                .weights
                .iter()
                .zip(plain.outline.weights.iter())
            {
                let [a, b] = [(&nested, a), (&plain, b)]
                    .map(|(model, weight)| model.files.data(&weight.range).unwrap());
                assert_eq!(a, b, "{name} {layout}");
            }
        }
    }
}

#[test]
fn the_factors_of_granite_become_an_embedding_scale_and_an_epsilon() {
    let c = open(&folder("granite", |_| ())).outline.config;
    let EmbeddingScaling::Factor(factor) = c.embedding_scale else {
        panic!("{:?}", c.embedding_scale);
    };
    assert_eq!(factor, (12.0 / 0.22) as f32);
    assert_eq!(c.epsilon, (f64::from(1e-5f32) / (0.22 * 0.22)) as f32);
    assert_eq!(c.architecture, Architecture::GRANITE_IN_HALVES);
}

#[test]
fn defaults_of_classes_fill_in_what_files_leave_out() {
    // The keys of google/gemma-3-4b-it's text_config, with other numbers, and nothing else.
    let path = crate::scratch("sparse");
    fs::create_dir_all(&path).unwrap();
    let config = json!({
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    });
    fs::write(path.join("config.json"), config.to_string()).unwrap();
    let error = Model::open(&path).unwrap_err().to_string();
    // Every key has been read.
    assert!(error.contains("neither model.safetensors"), "{error}");

    // The rotary embedding of the class, whose factor of queries is 1 up to the original context.
    let c = open(&folder("ministral3", |config| {
        config.remove("rope_parameters");
        config.insert("max_position_embeddings".to_owned(), json!(32768));
    }));
    let c = c.outline.config;
    assert_eq!((c.context, c.ropes[0].base), (16384, 1e6));
    assert_eq!(c.ropes[0].magnitude, 1.0);

    let biased = open(&folder("glm4", |config| {
        config.remove("attention_bias");
    }));
    let first = biased.outline.config.attentions().next().unwrap().bias;
    assert_eq!(first, QkvBias::Each);
}

/// A change to the keys of a model.
type Change = Box<dyn FnOnce(&mut Map<String, Value>)>;

#[test]
fn models_that_differ_from_their_family_are_refused() {
    let set = |key: &'static str, value: Value| {
        move |config: &mut Map<String, Value>| {
            config.insert(key.to_owned(), value);
        }
    };
    let cases: Vec<(&str, Change, &str)> = vec![
        (
            "gemma3",
            Box::new(set("final_logit_softcapping", json!(30.0))),
            "key \"final_logit_softcapping\" is 30.0; expected null: soft caps are not supported in this family",
        ),
        (
            "gemma3",
            Box::new(set("use_bidirectional_attention", json!(true))),
            "key \"use_bidirectional_attention\" is true: attention to later positions is not supported",
        ),
        (
            "gemma3",
            Box::new(set("sliding_window", json!(null))),
            "key \"sliding_window\" is missing",
        ),
        (
            "gemma3-types",
            Box::new(set(
                "layer_types",
                json!([
                    "full_attention",
                    "sliding_attention",
                    "full_attention",
                    "full_attention"
                ]),
            )),
            "key \"layer_types\" is [\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]; expected a list of 4 layers \
          with \"sliding_attention\" for each but every N-th, and \"full_attention\" for that",
        ),
        (
            "gemma2",
            Box::new(set("hidden_activation", json!("silu"))),
            "key \"hidden_activation\" is \"silu\": another activation than GELU with tanh is not supported in this family",
        ),
        (
            "phi4-mini",
            Box::new(set("partial_rotary_factor", json!(0.66))),
            "key \"partial_rotary_factor\" is 0.66; expected a share of 32 that is an even number from 2 to 32",
        ),
        (
            "phi4-mini",
            Box::new(set(
                "rope_scaling",
                json!({"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}),
            )),
            "key \"rope_scaling.short_factor\" is [1.0]; expected a list of 12 numbers above zero",
        ),
        (
            "mistral",
            Box::new(set("partial_rotary_factor", json!(0.5))),
            "key \"partial_rotary_factor\" is 0.5; expected 1: these families rotate whole heads",
        ),
        (
            "mistral",
            Box::new(set("model_type", json!("phimoe"))),
            "key \"model_type\" is \"phimoe\": its router weights each chosen expert by a softmax over the experts \
             with close logits (SparseMixer), which is not supported",
        ),
        (
            "mistral",
            Box::new(set(
                "rope_parameters",
                json!({"rope_type": "yarn", "factor": 2.0, "llama_4_scaling_beta": 0.1}),
            )),
            "key \"rope_parameters.llama_4_scaling_beta\" is 0.1; expected 0: queries are not scaled by their position in \
             this family",
        ),
        (
            "starcoder2",
            Box::new(set("use_bias", json!(false))),
            "key \"use_bias\" is false: models of this family without biases are not supported",
        ),
        (
            "granite",
            Box::new(set("attention_bias", json!(true))),
            "key \"attention_bias\" is true: biases of all projections of attention are not supported",
        ),
        (
            "granite",
            Box::new(set("residual_multiplier", json!(0.0))),
            "key \"residual_multiplier\" is 0.0; expected a number above zero",
        ),
        (
            "granite4-dense",
            Box::new(set("layer_types", json!(["attention", "mamba"]))),
            "key \"layer_types\" is [\"attention\",\"mamba\"]: layers without attention are not supported",
        ),
        (
            "granite4-dense",
            Box::new(set("position_embedding_type", json!("nope"))),
            "key \"position_embedding_type\" is \"nope\": models of this family without rotary embedding are not supported",
        ),
        (
            "smollm3",
            Box::new(set("no_rope_layers", json!([1, 0, 1, 1, 1]))),
            "key \"no_rope_layers\" is [1,0,1,1,1]; expected a list of 5 layers with 1 for each but every N-th, and 0 for that",
        ),
        (
            "smollm3",
            Box::new(set("use_sliding_window", json!(true))),
            "key \"use_sliding_window\" is true: attention to a sliding window is not supported in this family",
        ),
        (
            "exaone4-full",
            Box::new(set(
                "layer_types",
                json!([
                    "full_attention",
                    "sliding_attention",
                    "full_attention",
                    "full_attention"
                ]),
            )),
            "key \"layer_types\" is [\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]; expected \"full_attention\" for \
          every layer, because there is no sliding_window",
        ),
        (
            "olmo2",
            Box::new(set("sliding_window", json!(4096))),
            "key \"sliding_window\" is 4096: attention to a sliding window is not supported in this family",
        ),
        (
            "olmo3",
            Box::new(|config: &mut Map<String, Value>| {
                config["rope_parameters"]["sliding_attention"] =
                    json!({"rope_type": "linear", "factor": 2.0});
            }),
            "key \"rope_parameters.sliding_attention.factor\" is 2.0; expected no scaling in layers with a window",
        ),
        (
            "glm4",
            Box::new(set("attention_bias", json!(false))),
            "tensor \"model.layers.0.self_attn.k_proj.bias\" is not part of architecture glm4, so the model would run wrongly",
        ),
        (
            "glm4-unbiased",
            Box::new(set("attention_bias", json!(true))),
            "tensor \"model.layers.0.self_attn.q_proj.bias\" of shape [256] is missing",
        ),
        (
            "cohere2",
            Box::new(set("use_qk_norm", json!(true))),
            "key \"use_qk_norm\" is true: norms of queries and keys are not supported in this family",
        ),
        (
            "cohere2",
            Box::new(set("rotary_pct", json!(0.5))),
            "key \"rotary_pct\" is 0.5: a rotation of a part of each head is not supported in this family",
        ),
        // The tensors of another family.
        (
            "olmo2",
            Box::new(set("model_type", json!("llama"))),
            "tensor \"model.layers.0.input_layernorm.weight\" of shape [128] is missing",
        ),
        (
            "granite",
            Box::new(set("model_type", json!("cohere2"))),
            "key \"embedding_multiplier\" is 12.0: scaled embeddings are not supported",
        ),
    ];
    for (name, change, message) in cases {
        assert_eq!(refusal(name, change), message, "{name}");
    }
}

#[test]
fn gguf_files_that_differ_from_their_family_are_refused() {
    let cases = [
        (
            "granite",
            "granite.rope.scaling.finetuned",
            Val::Bool(false),
            "key \"granite.rope.scaling.finetuned\" is false: models of this family without rotary embedding are not supported",
        ),
        (
            "granite",
            "granite.residual_scale",
            Val::F32(-1.0),
            "key \"granite.residual_scale\" is -1; expected a finite floating-point number from zero up",
        ),
        (
            "olmo2",
            "olmo2.logit_scale",
            Val::F32(2.0),
            "key \"olmo2.logit_scale\" is 2: scaled logits are not supported in this family",
        ),
        (
            "gemma2",
            "gemma2.attention.scale",
            Val::F32(2.0),
            "key \"gemma2.attention.scale\" is 2: scores of another scale than 1 / sqrt(attention.key_length) are not supported",
        ),
        (
            "cohere2",
            "cohere2.rope.freq_base_swa",
            Val::F32(100.0),
            "key \"cohere2.rope.freq_base_swa\" is 100: another rotary base in layers with a window is not supported in this family",
        ),
        (
            "smollm3",
            "smollm3.attention.sliding_window_pattern",
            Val::U32(4),
            "key \"smollm3.attention.sliding_window_pattern\" is 4: this family has a window in every layer or in none",
        ),
    ];
    for (name, key, value, message) in cases {
        let file = model(name).gguf().unwrap().pair(key, value);
        let error = Model::open(&file.save(&format!("{name}.gguf")))
            .unwrap_err()
            .to_string();
        assert_eq!(error.split_once(": ").unwrap().1, message, "{name}");
    }

    for (name, missing, message) in [
        (
            "cohere2",
            "cohere2.logit_scale",
            "key \"cohere2.logit_scale\" is missing",
        ),
        (
            "granite",
            "granite.logit_scale",
            "key \"granite.logit_scale\" is missing",
        ),
        (
            "gemma2",
            "gemma2.final_logit_softcapping",
            "key \"gemma2.final_logit_softcapping\" is missing",
        ),
        (
            "gemma2",
            "gemma2.attention.sliding_window",
            "key \"gemma2.attention.sliding_window\" is missing",
        ),
        (
            "exaone4",
            "blk.2.attn_q_norm.weight",
            "tensor \"blk.2.attn_q_norm.weight\" of shape [32] is missing",
        ),
    ] {
        let file = model(name).gguf().unwrap().without(missing);
        let error = Model::open(&file.save(&format!("{name}.gguf")))
            .unwrap_err()
            .to_string();
        assert_eq!(error.split_once(": ").unwrap().1, message, "{name}");
    }
}
