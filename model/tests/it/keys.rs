//! Metadata keys: what changes the forward pass is used or refused by name, and what real files carry is accepted.

use warpwright_model::Model;

use crate::config::{llama, model};
use crate::families::MODELS;
use crate::write::{File, Val};

fn text(s: &str) -> Val {
    Val::Str(s.into())
}

/// Why a file is not opened. Each test has a file of its own: none may change while it is mapped.
fn problem(name: &str, file: &File) -> Option<String> {
    let error = Model::open(&file.save(&format!("keys-{name}.gguf")))
        .err()?
        .to_string();
    Some(
        error
            .split_once(": ")
            .expect("the file's name")
            .1
            .to_owned(),
    )
}

/// Keys under `llama.` that would change the forward pass.
#[test]
#[rustfmt::skip] // one key a line
fn refuses_what_it_does_not_do() {
    for (name, value, neutral) in [
        ("attention.scale", Val::F32(0.0625), Some(Val::F32(8f32.powf(-0.5)))),
        ("attention.scale", Val::F32(1.0), Some(Val::F32(0.0))),
        ("attention.sliding_window", Val::U32(8), Some(Val::U32(16))),
        ("attention.sliding_window", Val::U32(15), Some(Val::U32(0))),
        ("attention.clamp_kqv", Val::F32(8.0), Some(Val::F32(0.0))),
        ("attention.max_alibi_bias", Val::F32(8.0), Some(Val::F32(0.0))),
        ("attention.causal", Val::Bool(false), Some(Val::Bool(true))),
        ("attention.temperature_scale", Val::F32(0.1), Some(Val::F32(0.0))),
        ("attention.kv_lora_rank", Val::U32(512), Some(Val::U32(0))),
        ("attn_logit_softcapping", Val::F32(50.0), Some(Val::F32(0.0))),
        ("final_logit_softcapping", Val::F32(30.0), Some(Val::F32(0.0))),
        ("logit_scale", Val::F32(0.0625), Some(Val::F32(1.0))),
        ("logit_scale", Val::F32(8.0), Some(Val::F32(0.0))),
        ("embedding_scale", Val::F32(12.0), Some(Val::F32(1.0))),
        ("residual_scale", Val::F32(0.22), Some(Val::F32(1.0))),
        ("expert_shared_count", Val::U32(1), Some(Val::U32(0))),
        ("expert_shared_feed_forward_length", Val::U32(64), Some(Val::U32(0))),
        ("expert_group_count", Val::U32(4), Some(Val::U32(1))),
        ("expert_gating_func", Val::U32(2), Some(Val::U32(1))),
        ("expert_weights_norm", Val::Bool(false), Some(Val::Bool(true))),
        ("leading_dense_block_count", Val::U32(1), Some(Val::U32(0))),
        ("moe_every_n_layers", Val::U32(2), Some(Val::U32(1))),
        ("interleave_moe_layer_step", Val::U32(2), Some(Val::U32(1))),
        ("nextn_predict_layers", Val::U32(1), Some(Val::U32(0))),
        ("pooling_type", Val::U32(3), Some(Val::U32(0))),
        ("use_parallel_residual", Val::Bool(true), Some(Val::Bool(false))),
        ("hidden_activation", text("gelu"), Some(text("silu"))),
        ("rope.dimension_sections", Val::I32s(vec![16, 24, 24, 0]), Some(Val::I32s(vec![0; 4]))),
        ("classifier.output_labels", Val::Strs(vec!["yes".into()]), None),
    ] {
        let key = format!("llama.{name}");
        let found = problem("refused", &llama().pair(&key, value)).expect(name);
        assert!(found.starts_with(&format!("key \"{key}\" is ")), "{found}");
        assert!(found.contains("support") || found.contains("embedding or ranking model"), "{found}");
        if let Some(neutral) = neutral {
            assert_eq!(problem("refused", &llama().pair(&key, neutral)), None, "{name}");
        }
    }
}

#[test]
fn says_what_it_refuses() {
    let kind = "only a model runs; merge an adapter into its base model with llama.cpp's llama-export-lora, and for a \
                projector (mmproj) open the model that it belongs to";
    for (key, value, message) in [
        ("general.type", text("adapter"), format!("key \"general.type\" is \"adapter\": {kind}")),
        ("general.type", text("mmproj"), format!("key \"general.type\" is \"mmproj\": {kind}")),
        (
            "general.type",
            Val::U32(1),
            "key \"general.type\" is an unsigned integer, 1; expected a string".into(),
        ),
        (
            "llama.logit_scale",
            Val::F32(0.5),
            "key \"llama.logit_scale\" is 0.5: scaled logits are not supported in this family".into(),
        ),
        (
            "llama.attention.causal",
            text("no"),
            "key \"llama.attention.causal\" is a string, \"no\"; expected a bool".into(),
        ),
        (
            "llama.shiny_new_trick",
            Val::U32(3),
            "key \"llama.shiny_new_trick\" (3) is not known for architecture llama, \
             so the model could run wrongly"
                .into(),
        ),
        (
            "llama.evil\u{1b}[2J",
            text("a\u{7}\u{202e}b"),
            "key \"llama.evil\\u{1b}[2J\" (\"a\\u{7}\\u{202e}b\") is not known for architecture llama, \
             so the model could run wrongly"
                .into(),
        ),
    ] {
        assert_eq!(problem("said", &llama().pair(key, value)), Some(message));
    }
}

/// Of families with windows.
#[test]
#[rustfmt::skip] // one key a line
fn windows_are_read_or_refused() {
    let two = "in a family whose layers have two rotary bases";
    for (name, key, value, message) in [
        ("gemma3", "attention.sliding_window_pattern", Val::U32(3), None),
        ("gemma3", "rope.freq_base_swa", Val::F32(5000.0), None),
        ("gemma3", "attention.key_length_swa", Val::U32(64), None),
        ("gemma3", "hidden_activation", text("gelu_pytorch_tanh"), None),
        ("gemma3", "attention.scale", Val::F32(0.125), None),
        ("gemma3", "vision.image_size", Val::U32(896), None),
        ("gemma3", "mm.tokens_per_image", Val::U32(256), None),
        ("gemma3", "attention.sliding_window", Val::U32(0), Some("is 0; expected a whole number from 1 to 16777216".into())),
        ("gemma3", "attention.sliding_window_pattern", text("6"), Some("is a string, \"6\"; expected a whole number from 1 to 16777216".into())),
        ("gemma3", "attention.key_length_swa", Val::U32(32), Some("is 32: heads of another length in layers with a window are not supported".into())),
        ("gemma3", "rope.dimension_count_swa", Val::U32(32), Some("is 32: another rotation in layers with a window is not supported".into())),
        ("gemma3", "final_logit_softcapping", Val::F32(30.0), Some("is 30: soft-capped logits are not supported in this family".into())),
        ("gemma3", "hidden_activation", text("silu"), Some("is \"silu\": another activation than the family's own is not supported".into())),
        ("gemma3", "rope.scaling.type", text("yarn"), Some(format!("is yarn; expected none or linear {two}"))),
        ("gemma3", "rope.scaling.attn_factor", Val::F32(1.5), Some(format!("is 1.5; expected 1 {two}"))),
        ("phi3", "attention.sliding_window", Val::U32(0), None),
        ("phi3", "attention.sliding_window_pattern", Val::U32(0), None),
        ("phi3", "rope.freq_base_swa", Val::F32(500.0), None),
        ("phi3", "attention.sliding_window_pattern", Val::U32(2), Some("is 2: this family has a window in every layer or in none".into())),
        ("phi3", "rope.freq_base_swa", Val::F32(1e6), Some("is 1000000: another rotary base in layers with a window is not supported in this family".into())),
        ("phi3", "attention.sliding_window", text("6"), Some("is a string, \"6\"; expected a whole number from 1 to 16777216".into())),
    ] {
        let model = MODELS.iter().find(|model| model.name == name).expect("a random model");
        let key = format!("{name}.{key}");
        let found = problem("windows", &model.file().pair(&key, value));
        assert_eq!(found, message.map(|message: String| format!("key {key:?} {message}")));
    }
}

/// What a family needs and a file does not say, or says twice.
#[test]
fn a_family_says_what_is_missing() {
    let missing = |name: &str| format!("key \"{name}\" is missing");
    let [long, short] = ["long", "short"].map(|kind| format!("rope_factors_{kind}.weight"));
    let tensor = |name: &str| format!("tensor {name:?} of shape [32] is missing");
    let stray = "tensor \"rope_freqs.weight\" is not part of architecture phi3, so the model would run wrongly";
    let freqs = |file: File| file.tensor("rope_freqs.weight", &[32], 0, vec![0; 128]);
    let lacks = |name: &'static str| move |file: File| file.without(name);
    type Change = Box<dyn Fn(File) -> File>;
    let cases: [(&str, Change, String); 7] = [
        (
            "gemma3",
            Box::new(lacks("gemma3.attention.sliding_window")),
            missing("gemma3.attention.sliding_window"),
        ),
        (
            "gemma3",
            Box::new(lacks("gemma3.rope.freq_base")),
            missing("gemma3.rope.freq_base"),
        ),
        (
            "phi3-longrope",
            Box::new(lacks("phi3.rope.scaling.attn_factor")),
            missing("phi3.rope.scaling.attn_factor"),
        ),
        (
            "phi3-longrope",
            Box::new(lacks("phi3.rope.scaling.original_context_length")),
            missing("phi3.rope.scaling.original_context_length"),
        ),
        (
            "phi3-longrope",
            Box::new(lacks("rope_factors_long.weight")),
            tensor(&long),
        ),
        (
            "phi3-longrope",
            Box::new(lacks("rope_factors_short.weight")),
            tensor(&short),
        ),
        ("phi3-longrope", Box::new(freqs), stray.into()),
    ];
    for (name, change, message) in cases {
        let model = MODELS
            .iter()
            .find(|model| model.name == name)
            .expect("a random model");
        assert_eq!(
            problem("missing", &change(model.file())).as_ref(),
            Some(&message),
            "{name}"
        );
    }
}

/// Keys as converters and quantizers write them, and what publishers add.
#[test]
fn accepts_what_real_files_carry() {
    for arch in ["llama", "qwen2", "qwen3"] {
        let mut file = model(arch);
        for (key, value) in [
            ("general.type", text("model")),
            ("general.name", text("Qwen2.5 1.5B Instruct")),
            ("general.basename", text("Qwen2.5")),
            ("general.finetune", text("Instruct")),
            ("general.size_label", text("1.5B")),
            ("general.license", text("apache-2.0")),
            ("general.license.link", text("https://example.org/LICENSE")),
            ("general.base_model.count", Val::U32(1)),
            ("general.base_model.0.name", text("Qwen2.5 1.5B")),
            (
                "general.base_model.0.repo_url",
                text("https://example.org/Qwen2.5-1.5B"),
            ),
            ("general.dataset.0.name", text("a dataset")),
            ("general.tags", Val::Strs(vec!["chat".into()])),
            ("general.languages", Val::Strs(vec!["en".into()])),
            ("general.file_type", Val::U32(15)),
            ("general.quantization_version", Val::U32(2)),
            ("general.quantized_by", text("Unsloth")),
            ("general.repo_url", text("https://example.org")),
            ("general.sampling.temp", Val::F32(0.6)),
            ("general.alignment", Val::U32(32)),
            ("quantize.imatrix.file", text("imatrix.dat")),
            ("quantize.imatrix.entries_count", Val::U32(196)),
            ("quantize.imatrix.chunks_count", Val::U32(125)),
            ("mradermacher.quantized_on", text("nico1")),
            ("split.no", Val::U32(0)),
            ("split.count", Val::U32(0)),
            ("split.tensors.count", Val::U32(0)),
            (
                "tokenizer.chat_template",
                text("{% for message in messages %}"),
            ),
            ("tokenizer.ggml.add_space_prefix", Val::Bool(false)),
            ("tokenizer.ggml.padding_token_id", Val::U32(0)),
            ("{arch}.vocab_size", Val::U32(5)),
            ("{arch}.rope.dimension_count", Val::U32(8)),
            ("{arch}.rope.freq_base", Val::F32(1e6)),
            ("{arch}.attention.key_length", Val::U32(8)),
            ("{arch}.attention.value_length", Val::U32(8)),
            ("{arch}.expert_count", Val::U32(0)),
            ("{arch}.tensor_data_layout", text("Meta AI original pth")),
        ] {
            file = file.pair(&key.replace("{arch}", arch), value);
        }
        assert_eq!(problem("real", &file), None, "{arch}");
    }
}
