//! Adapters as llama.cpp's files: what our reader finds in them.

use std::fs;

use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use warpwright_engine::Error;
use warpwright_model::Model;
use warpwright_model::gguf::{Gguf, Value as Pair};
use warpwright_model::merge::write_lora;

use crate::adapter::{ALL, Made, NAMES, Plan, Tensors, make, settings, write};
use crate::merge::{LLAMA, adapted};
use crate::synth::{Q4_K, Synth};
use crate::{hugging_face, oracle};

fn bytes(model: &Model) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![];
    write_lora::<Error>(&model.outline, |piece| {
        bytes.extend(piece);
        Ok(())
    })?;
    Ok(bytes)
}

fn written(model: &Model, name: &str) -> Gguf {
    let path = crate::scratch(&format!("lora-{name}.gguf"));
    fs::write(&path, bytes(model).unwrap()).unwrap();
    Gguf::open(&path).unwrap()
}

const MODULES: [&str; 7] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

/// A tensor of F32 with these dimensions.
fn numbers(file: &Gguf, name: &str, dims: [usize; 2]) -> Vec<f64> {
    let tensor = &file.directory.tensors[name];
    assert_eq!(
        (tensor.kind.name, &tensor.dims[..]),
        ("F32", &dims.map(|n| n as u64)[..]),
        "{name}"
    );
    let data = file.data(&tensor.range).unwrap();
    data.chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()).into())
        .collect()
}

/// `alpha / rank B A` of the file, by llama.cpp's rule, is what the adapter adds to the weights of the GGUF file.
fn check(file: &Gguf, base: &Model, made: &Made, more: f64) {
    let Pair::Float(alpha) = file.directory.metadata["adapter.lora.alpha"] else {
        panic!("no number")
    };

    let (sums, weights) = (made.fold(base), oracle::weights(base));
    let mut tensors = 0;
    for (l, layer) in made.layers.iter().enumerate() {
        let [sums, weights] =
            [&sums, &weights].map(|w| w.blocks[l].projections().map(Option::unwrap));
        for (p, factors) in layer.iter().enumerate() {
            let Some(factors) = factors else { continue };
            let (rank, name) = (factors.rank, format!("blk.{l}.{}.weight", MODULES[p]));
            let [n, rows] = [&factors.a, &factors.b].map(|x| x.len() / rank);
            let a = numbers(file, &format!("{name}.lora_a"), [n, rank]);
            let b = numbers(file, &format!("{name}.lora_b"), [rank, rows]);
            for i in (0..rows * n).step_by(37) {
                let (row, column) = (i / n, i % n);
                let product: f64 = (0..rank)
                    .map(|k| b[row * rank + k] * a[k * n + column])
                    .sum();
                let (found, wanted) = (
                    alpha / rank as f64 * product,
                    more * (sums[p][i] - weights[p][i]),
                );
                assert!(
                    (found - wanted).abs() < 1e-6,
                    "{name} {i}: {found} where {wanted} is added"
                );
            }

            tensors += 2;
        }
    }

    assert_eq!(file.directory.tensors.len(), tensors);
}

#[test]
fn the_file_says_what_llama_cpp_asks() {
    let few = Plan {
        ranks: [3, 0, 16, 0, 0, 5, 8],
        first_layer: 1,
        dtype: Dtype::BF16,
    };
    let quantized = Synth {
        formats: &[Q4_K],
        ..LLAMA
    };
    for (name, case, plan) in [
        ("llama", quantized, ALL),
        ("few", LLAMA, few),
        (
            "gemma3",
            Synth {
                arch: "gemma3",
                ..LLAMA
            },
            ALL,
        ),
        (
            "qwen2",
            Synth {
                arch: "qwen2",
                ..LLAMA
            },
            few,
        ),
    ] {
        let (base, made, model) = adapted(&format!("lora-{name}"), case, &plan);
        let file = written(&model, name);
        check(&file, &base, &made, 1.0);
        let text = |text: &str| Pair::String(text.to_owned());
        let alpha = Pair::Float(2.0 * f64::from(*plan.ranks.iter().max().unwrap() as u32));
        let wanted = [
            ("adapter.lora.alpha", alpha),
            ("adapter.type", text("lora")),
            ("general.architecture", text(case.arch)),
            ("general.type", text("adapter")),
        ];
        let found = file
            .directory
            .metadata
            .iter()
            .map(|(key, value)| (key.as_str(), value.clone()));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}

/// A is as the adapter has it, bit for bit, where its scale is llama.cpp's.
#[test]
fn numbers_are_kept() {
    let (_, made, model) = adapted("lora-kept", LLAMA, &ALL);
    let file = written(&model, "kept");
    let factors = made.layers[1][6].as_ref().unwrap();
    assert_eq!(
        numbers(&file, "blk.1.ffn_down.weight.lora_a", [512, 8]),
        factors.a
    );
    assert_eq!(
        numbers(&file, "blk.1.ffn_down.weight.lora_b", [8, 256]),
        factors.b
    );
}

#[test]
fn a_folder_gives_the_file_of_its_gguf_model() {
    let folder = tempfile::tempdir().unwrap();
    hugging_face::write(folder.path());
    let gguf = Model::open(&crate::repository("tests/data/rustdoc-7m-F16.gguf")).unwrap();
    let made = make(
        &gguf,
        "lora-folder",
        &Plan {
            ranks: [2, 3, 0, 1, 0, 0, 0],
            ..ALL
        },
    );
    let folder = Model::open(folder.path())
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    let wanted = bytes(&gguf.with_adapter(&made.folder).unwrap()).unwrap();
    assert!(bytes(&folder).unwrap() == wanted);
}

/// Other settings of an adapter that is there.
fn set(made: &Made, keys: &[(&str, Value)]) {
    let path = made.folder.join("adapter_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in keys {
        settings[key] = value.clone();
    }
    fs::write(&path, settings.to_string()).unwrap();
}

/// llama.cpp knows `alpha / rank` alone, so that A has what is missing.
#[test]
fn other_scales_are_in_a() {
    let (base, made, _) = adapted("lora-scales", LLAMA, &ALL);

    // 16 / 8 without them.
    let each = NAMES
        .map(|name| (name.to_owned(), json!(12)))
        .into_iter()
        .collect::<serde_json::Map<_, _>>();
    let cases = [
        (
            "rslora",
            [("use_rslora", json!(true)), ("alpha_pattern", json!(null))],
            8f64.sqrt(),
        ),
        (
            "pattern",
            [("use_rslora", json!(false)), ("alpha_pattern", json!(each))],
            0.75,
        ),
        (
            "alpha",
            [("alpha_pattern", json!({})), ("lora_alpha", json!(0.1))],
            0.1 / 16.0,
        ),
    ];
    for (name, keys, more) in cases {
        set(&made, &keys);
        let model = Model::open(base.files.path())
            .unwrap()
            .with_adapter(&made.folder)
            .unwrap();
        check(&written(&model, name), &base, &made, more);
    }
}

#[test]
fn numbers_beyond_f32_are_refused() {
    let (base, made, _) = adapted("lora-refused", LLAMA, &ALL);
    let refusal = || {
        let model = Model::open(base.files.path())
            .unwrap()
            .with_adapter(&made.folder)
            .unwrap();
        bytes(&model)
            .unwrap_err()
            .to_string()
            .replace(&made.folder.display().to_string(), "A")
    };

    // Finite by its own scale, but not by the rest of it.
    let large = f32::MAX.to_le_bytes();
    let name =
        |factor| format!("base_model.model.model.layers.0.mlp.down_proj.lora_{factor}.weight");
    let tensors: Tensors = vec![
        (name("A"), vec![4, 512], Dtype::F32, large.repeat(4 * 512)),
        (name("B"), vec![256, 4], Dtype::F32, vec![0; 4 * 256 * 4]),
    ];
    let mut keys = settings(&Plan {
        ranks: [0, 0, 0, 0, 0, 0, 4],
        ..ALL
    });
    keys["use_rslora"] = json!(true);
    keys["lora_alpha"] = json!(1);
    write(&made.folder, &keys, &tensors);
    let wanted = "A: A of down_proj in layer 0 times 2 is not finite in F32, as llama.cpp reads it";
    assert_eq!(refusal(), wanted);
}

#[test]
fn a_model_without_an_adapter_has_a_file_without_tensors() {
    let (base, ..) = adapted("lora-none", LLAMA, &ALL);
    assert!(written(&base, "none").directory.tensors.is_empty());
}
