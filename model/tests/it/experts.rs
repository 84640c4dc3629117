//! Mixtures of experts: what is read of folders and GGUF files, and what is refused.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use warpwright_model::layer::{ExpertWeighting, Experts, GateActivation, SharedExpert};
use warpwright_model::{Model, Weight, info};

use crate::folders::{FolderModel, MODELS};
use crate::write::Val;

fn model(name: &str) -> &'static FolderModel {
    MODELS.iter().find(|model| model.name == name).unwrap()
}

/// Writes a model with changed keys and names of tensors.
fn folder(
    name: &str,
    test: &str,
    change: impl FnOnce(&mut Map<String, Value>),
    rename: impl Fn(&str) -> String,
) -> PathBuf {
    let path = crate::scratch(&format!("experts-{name}-{test}"));
    let model = model(name);
    model.write(&path).unwrap();
    let mut config = model.config();
    change(&mut config);
    fs::write(path.join("config.json"), Value::Object(config).to_string()).unwrap();
    fs::write(path.join("model.safetensors"), model.safetensors(rename)).unwrap();
    path
}

fn open_folder(name: &str) -> Model {
    Model::open(&folder(name, "as-it-is", |_| (), str::to_owned)).unwrap()
}

fn open_gguf(name: &str) -> Model {
    let file = model(name).gguf().unwrap();
    Model::open(&file.save(&format!("experts-{name}.gguf"))).unwrap()
}

/// The message of an error, without the path.
fn message(opened: Result<Model, warpwright_model::Error>) -> String {
    let error = opened.unwrap_err().to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

fn layers(model: &Model) -> Vec<Option<Experts>> {
    let layers = model.outline.config.layers.iter();
    layers
        .map(|layer| layer.feed_forward.experts().copied())
        .collect()
}

#[test]
fn layers_are_those_of_the_keys() {
    let experts = Experts {
        count: 8,
        chosen: 4,
        width: 64,
        activation: GateActivation::Silu,
        weighting: ExpertWeighting::SoftmaxOfChosen,
        weight_scale: 1.0,
        shared: None,
        biases: false,
    };
    let shares = Some(Experts {
        count: 5,
        chosen: 2,
        width: 128,
        weighting: ExpertWeighting::Softmax,
        ..experts
    });
    let fused = Some(Experts {
        count: 16,
        chosen: 3,
        ..experts
    });
    let shared = Some(Experts {
        count: 4,
        chosen: 2,
        weighting: ExpertWeighting::Softmax,
        shared: Some(SharedExpert {
            width: 128,
            gated: true,
        }),
        ..experts
    });
    let granite = Some(Experts {
        count: 6,
        chosen: 2,
        width: 256,
        shared: Some(SharedExpert {
            width: 64,
            gated: false,
        }),
        ..experts
    });
    for (name, wanted) in [
        ("qwen3moe", vec![Some(experts), Some(experts)]),
        ("qwen3moe-shares", vec![shares, None, shares]),
        ("qwen3moe-fused", vec![None, fused, None, fused]),
        ("qwen2moe", vec![shared, shared]),
        ("granitemoeshared", vec![granite, granite]),
    ] {
        assert_eq!(layers(&open_folder(name)), wanted, "{name}");
    }
}

/// The weights of a block that only layers with experts have, with their names for messages.
fn expert_weights(model: &Model, layer: usize) -> Vec<(&'static str, &Weight)> {
    let block = &model.outline.weights.blocks[layer];
    let named = [
        ("router", &block.router),
        ("gate_experts", &block.gate_experts),
        ("up_experts", &block.up_experts),
        ("down_experts", &block.down_experts),
        ("shared_router", &block.shared_router),
        ("gate_shared", &block.gate_shared),
        ("up_shared", &block.up_shared),
        ("down_shared", &block.down_shared),
    ];
    let named = named.into_iter();
    named
        .filter_map(|(name, weight)| Some((name, weight.as_ref()?)))
        .collect()
}

/// A folder has the matrices in a tensor each, or fused. A GGUF file has them one after the other.
#[test]
fn folders_and_gguf_files_have_the_same_bytes() {
    for model in MODELS {
        let Some(file) = model.gguf() else { continue };
        if !model.name.contains("moe") && model.name != "mixtral" {
            continue;
        }

        let folder = open_folder(model.name);
        let gguf = Model::open(&file.save(&format!("experts-bytes-{}.gguf", model.name))).unwrap();
        let mut compared = 0;
        for layer in 0..folder.outline.weights.blocks.len() {
            let [a, b] = [&folder, &gguf].map(|model| expert_weights(model, layer));
            assert_eq!(a.len(), b.len(), "{}", model.name);
            for ((role, a), (_, b)) in a.into_iter().zip(b) {
                assert_eq!(
                    (&a.dims, a.format),
                    (&b.dims, b.format),
                    "{}: {role}",
                    model.name
                );
                let bytes = folder.files.data(&a.range).unwrap();
                assert_eq!(bytes.len(), a.range.len());
                assert!(
                    bytes == gguf.files.data(&b.range).unwrap(),
                    "{}: {role}",
                    model.name
                );

                // Parts, at offsets within and between matrices.
                for (start, end) in [(0, 5), (3, bytes.len() - 1), (bytes.len() / 3, bytes.len())] {
                    let part = a.range.start + start..a.range.start + end;
                    let part = folder.files.data(&part).unwrap();
                    assert!(part == bytes[start..end], "{}: {role} {start}", model.name);
                }
                compared += 1;
            }
        }
        assert!(compared >= 8, "{}", model.name);
    }
}

#[test]
fn a_token_uses_the_chosen_experts() {
    let model = open_gguf("qwen3moe");
    let outline = &model.outline;
    let all: u64 = info::format_totals(outline)
        .values()
        .map(|total| total.numbers)
        .sum();
    // It does not use four of eight experts in two layers, each of three matrices.
    assert_eq!(info::token_numbers(outline), all - 2 * 4 * 3 * 64 * 128);
    let attention = 2 * 128 * 128 + 2 * 64 * 128;
    let router = 8 * 128;
    let experts = 4 * 3 * 64 * 128;
    assert_eq!(
        info::layer_weights(outline),
        2 * (attention + router + experts)
    );
}

#[test]
fn unfit_folders_are_refused() {
    let keys = |name: &str, change: fn(&mut Map<String, Value>)| {
        message(Model::open(&folder(name, "keys", change, str::to_owned)))
    };
    let names = |name: &str, rename: fn(&str) -> String| {
        message(Model::open(&folder(name, "names", |_| (), rename)))
    };
    assert_eq!(
        keys("qwen3moe", |c| {
            c.insert("num_experts_per_tok".into(), json!(9));
        }),
        "key \"num_experts_per_tok\" is 9; expected at most num_experts (8)"
    );
    let renamed = |count: u32| {
        move |c: &mut Map<String, Value>| {
            c.insert("num_local_experts".into(), json!(count));
        }
    };
    let both = folder("qwen3moe", "both", renamed(7), str::to_owned);
    assert_eq!(
        message(Model::open(&both)),
        "key \"num_local_experts\" is 7; expected 8, the value of num_experts"
    );
    // transformers 5 writes this key alone.
    let other = folder(
        "qwen3moe",
        "other",
        |c| {
            c.remove("num_experts");
            renamed(8)(c);
        },
        str::to_owned,
    );
    assert_eq!(layers(&Model::open(&other).unwrap())[0].unwrap().count, 8);
    assert_eq!(
        keys("qwen3moe-shares", |c| {
            c.insert("mlp_only_layers".into(), json!([3]));
        }),
        "key \"mlp_only_layers\" is [3]; expected a list of layers below 3"
    );
    assert_eq!(
        keys("olmoe", |c| {
            c.insert("clip_qkv".into(), json!(8.0));
        }),
        "key \"clip_qkv\" is 8.0: clamped queries, keys and values are not supported"
    );
    assert_eq!(
        keys("qwen2moe", |c| {
            c.insert("qkv_bias".into(), json!(false));
        }),
        "key \"qkv_bias\" is false: models of this family without biases are not supported"
    );

    // Surplus experts, and too few.
    assert_eq!(
        keys("qwen3moe", |c| {
            c.insert("num_experts".into(), json!(7));
        }),
        "tensor \"model.layers.0.mlp.gate.weight\" has shape [8, 128]; expected [7, 128]"
    );
    let last = |name: &str| name.replace(".experts.7.up_proj", ".experts.8.up_proj");
    assert_eq!(
        names("qwen3moe", last),
        "expert 7 of \"model.layers.0.mlp.experts.*.up_proj.weight\" is missing, but later experts are there"
    );
    let gone = |name: &str| name.replace("layers.1.mlp.experts.7.up_proj", "layers.9.unknown");
    assert_eq!(
        names("qwen3moe", gone),
        "tensor \"model.layers.1.mlp.experts.*.up_proj.weight\" has shape [7, 64, 128]; expected [8, 64, 128]"
    );
    let none = |name: &str| name.replace("layers.1.mlp.experts.", "layers.1.mlp.others.");
    assert_eq!(
        names("qwen3moe", none),
        "tensor \"model.layers.1.mlp.experts.*.gate_proj.weight\" of shape [8, 64, 128] is missing"
    );
    let dense = keys("qwen3moe", |c| {
        c.insert("mlp_only_layers".into(), json!([1]));
    });
    assert_eq!(
        dense,
        "tensor \"model.layers.1.mlp.gate_proj.weight\" of shape [256, 128] is missing"
    );
}

#[test]
fn unfit_gguf_files_are_refused() {
    let with = |name: &str, key: &str, value: Val| {
        let key = format!("{}.{key}", model(name).gguf_family().unwrap());
        let file = model(name).gguf().unwrap().pair(&key, value);
        message(Model::open(
            &file.save(&format!("experts-unfit-{name}.gguf")),
        ))
    };
    let without = |name: &str, tensor: &str| {
        let file = model(name).gguf().unwrap().without(tensor);
        message(Model::open(
            &file.save(&format!("experts-without-{name}.gguf")),
        ))
    };
    assert_eq!(
        with("qwen3moe", "expert_used_count", Val::U32(9)),
        "key \"qwen3moe.expert_used_count\" is 9; expected at most expert_count (8)"
    );
    assert_eq!(
        with("qwen3moe", "expert_used_count", Val::U32(0)),
        "key \"qwen3moe.expert_used_count\" is 0; expected a whole number from 1 to 16777216"
    );
    assert_eq!(
        with("mixtral", "expert_used_count", Val::U32(0)),
        "key \"llama.expert_used_count\" is 0; expected a whole number from 1 to 16777216"
    );
    assert_eq!(
        with("qwen3moe", "expert_weights_norm", Val::Bool(false)),
        "key \"qwen3moe.expert_weights_norm\" is false: another rule for the weights of the chosen experts is not \
         supported in this family"
    );
    assert_eq!(
        with("qwen3moe", "expert_feed_forward_length", Val::U32(32)),
        "tensor \"blk.0.ffn_gate_exps.weight\" has shape [128, 64, 8]; expected [128, 32, 8]"
    );
    assert_eq!(
        with("mixtral", "expert_count", Val::U32(0)),
        "tensor \"blk.0.ffn_gate.weight\" of shape [128, 256] is missing"
    );
    assert_eq!(
        without("qwen3moe", "blk.1.ffn_gate_inp.weight"),
        "tensor \"blk.1.ffn_gate_inp.weight\" of shape [128, 8] is missing"
    );
    assert_eq!(
        without("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight"),
        "tensor \"blk.0.ffn_gate_inp_shexp.weight\" of shape [128] is missing"
    );
}

/// Without the key, an expert has a share of the width of a dense feed-forward, as in llama.cpp.
#[test]
fn the_width_of_an_expert_has_a_default() {
    let file = model("qwen3moe").gguf().unwrap();
    let file = file.without("qwen3moe.expert_feed_forward_length");
    // 256 rows for four experts are 64 for each.
    let opened = Model::open(&file.clone().save("experts-default-width.gguf"));
    assert_eq!(layers(&opened.unwrap())[0].unwrap().width, 64);
    let with = |length: u32| {
        let file = file
            .clone()
            .pair("qwen3moe.feed_forward_length", Val::U32(length));
        message(Model::open(&file.save("experts-other-width.gguf")))
    };
    assert_eq!(
        with(128),
        "tensor \"blk.0.ffn_gate_exps.weight\" has shape [128, 64, 8]; expected [128, 32, 8]"
    );
    assert_eq!(
        with(258),
        "key \"qwen3moe.feed_forward_length\" is 258; expected a multiple of expert_used_count (4), in a file without \
         expert_feed_forward_length"
    );
}
