//! Folders of adapters: what is read, and what is refused, in which words.

use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use warpwright_model::Model;

use crate::adapter::{ALL, NAMES, Plan, Tensors, make, settings, write};
use crate::synth::{Q8_0, Synth, synth};

const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[Q8_0],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 64,
};

/// An adapter of one projection of layer 1: `k_proj`, which is `[128, 256]`.
const ONE: Plan = Plan {
    ranks: [0, 4, 0, 0, 0, 0, 0],
    first_layer: 1,
    ..ALL
};

fn open(name: &str, arch: &'static str) -> Model {
    Model::open(&synth(Synth { arch, ..LLAMA }).save(&format!("files-{name}.gguf"))).unwrap()
}

fn name(layer: usize, projection: usize, factor: &str) -> String {
    format!(
        "base_model.model.model.layers.{layer}.{}.lora_{factor}.weight",
        NAMES[projection]
    )
}

fn tensor(name: &str, shape: [usize; 2]) -> (String, Vec<usize>, Dtype, Vec<u8>) {
    (
        name.into(),
        shape.into(),
        Dtype::F32,
        vec![0; 4 * shape[0] * shape[1]],
    )
}

fn good() -> Tensors {
    vec![
        tensor(&name(1, 1, "A"), [4, 256]),
        tensor(&name(1, 1, "B"), [128, 4]),
    ]
}

/// What the model says of the folder, without the path. Each folder has a model of its own: tests run beside others.
fn refusal(folder: &Path) -> String {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let error = open(name, "llama")
        .with_adapter(folder)
        .unwrap_err()
        .to_string();
    error.replace(&folder.display().to_string(), "FOLDER")
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = crate::scratch(&format!("adapter-files-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn says_what_is_wrong_with_the_settings() {
    let with = |key: &str, value: Value| {
        let mut settings = settings(&ONE);
        settings[key] = value;
        settings
    };
    let cases = [
        (
            with("peft_type", json!("LOHA")),
            "\"peft_type\" is \"LOHA\", but must be \"LORA\"",
        ),
        (
            with("task_type", json!("SEQ_CLS")),
            "\"task_type\" is \"SEQ_CLS\", but must be \"CAUSAL_LM\" or null",
        ),
        (
            with("bias", json!("all")),
            "\"bias\" is \"all\", but must be \"none\"",
        ),
        (
            with("r", json!(0)),
            "\"r\" is 0, but must be a whole number from 1 to 256",
        ),
        (
            with("r", json!(257)),
            "\"r\" is 257, but must be a whole number from 1 to 256",
        ),
        (
            with("r", json!("8")),
            "\"r\" is \"8\", but must be a whole number from 1 to 256",
        ),
        (
            with("lora_alpha", json!(0)),
            "\"lora_alpha\" is 0, but must be a number from 1.2e-38 to 3.4e38, which f32 holds",
        ),
        (
            with("lora_alpha", json!(1e39)),
            "\"lora_alpha\" is 1e+39, but must be a number from 1.2e-38 to 3.4e38, which f32 holds",
        ),
        (
            with("use_rslora", json!(1)),
            "\"use_rslora\" is 1, but must be true or false",
        ),
        (
            with("use_dora", json!(true)),
            "\"use_dora\" is true: DoRA is not supported, only LoRA without magnitudes",
        ),
        (
            with("fan_in_fan_out", json!(true)),
            "\"fan_in_fan_out\" is true: a transposed weight is not supported, only weights as [out, in]",
        ),
        (
            with("modules_to_save", json!(["lm_head"])),
            "\"modules_to_save\" is [\"lm_head\"]: a module that is trained whole is not supported, only A and B of \
             projections",
        ),
        (
            with("init_lora_weights", json!("pissa")),
            "\"init_lora_weights\" is \"pissa\": a start that changes the base model is not supported, only true, \
             false, gaussian",
        ),
        (
            with("use_new", json!(3)),
            "\"use_new\" is 3: the key is unknown, and must be null, false or empty",
        ),
        (
            with("target_modules", json!(["lm_head"])),
            "\"target_modules\" has \"lm_head\": only q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj \
             can have an adapter",
        ),
        (
            with("target_modules", json!(["k_proj", "q_proj"])),
            "no tensor of \"q_proj\", which \"target_modules\" of adapter_config.json names",
        ),
        (
            with("target_modules", json!(["layers.0.self_attn.k_proj"])),
            "tensor \"base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight\" belongs to a module that \
             \"target_modules\" of adapter_config.json does not name",
        ),
        (
            with("layers_to_transform", json!([0])),
            "tensor \"base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight\" belongs to a module that \
             \"layers_to_transform\" or \"exclude_modules\" of adapter_config.json leaves out",
        ),
        (
            with("exclude_modules", json!(["k_proj"])),
            "tensor \"base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight\" belongs to a module that \
             \"layers_to_transform\" or \"exclude_modules\" of adapter_config.json leaves out",
        ),
        (
            with("alpha_pattern", json!({"^model.*k_proj": 8})),
            "\"alpha_pattern\" has the pattern \"^model.*k_proj\": only module names such as \"q_proj\" are supported",
        ),
        (
            with("alpha_pattern", json!({"k_proj": 8, "self_attn.k_proj": 9})),
            "\"alpha_pattern\" has several values for model.layers.1.self_attn.k_proj: 8 and 9",
        ),
        (
            with("rank_pattern", json!({"k_proj": 8})),
            "tensor \"base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight\" is [4, 256], but must be \
             [8, 256] for this model and the rank in adapter_config.json",
        ),
        (json!([]), "not a JSON object"),
        (json!({"peft_type": "LORA"}), "the key \"r\" is missing"),
    ];
    let folder = folder("settings");
    for (settings, wanted) in cases {
        write(&folder, &settings, &good());
        let found = refusal(&folder);
        assert_eq!(found.split_once(": ").unwrap().1, wanted);
    }

    std::fs::write(folder.join("adapter_config.json"), "{").unwrap();
    let wanted = "FOLDER/adapter_config.json: not valid JSON: EOF while parsing an object at line 1 column 1";
    assert_eq!(refusal(&folder), wanted);
}

#[test]
fn says_what_is_wrong_with_the_tensors() {
    let (a, b) = (name(1, 1, "A"), name(1, 1, "B"));
    let and = |other: (String, Vec<usize>, Dtype, Vec<u8>)| [good(), vec![other]].concat();
    let number = |x: f32| {
        let mut tensors = good();
        tensors[1].3[8..12].copy_from_slice(&x.to_le_bytes());
        tensors
    };
    let typed = vec![
        (a.clone(), vec![4, 256], Dtype::F64, vec![0; 8 * 4 * 256]),
        good().remove(1),
    ];
    let head = "base_model.model.lm_head.lora_A.weight";
    let magnitude = "base_model.model.model.layers.1.self_attn.k_proj.lora_magnitude_vector";
    let modules = "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj";
    let stray = |name: &str| {
        format!(
            "unexpected tensor {name:?}: an adapter of this model has lora_A and lora_B of {modules}"
        )
    };
    let cases = [
        (vec![], "contains no tensors".to_owned()),
        (
            good()[..1].to_vec(),
            format!("contains {a:?} but not {b:?}"),
        ),
        (
            good()[1..].to_vec(),
            format!("contains {b:?} but not {a:?}"),
        ),
        (and(tensor(head, [4, 256])), stray(head)),
        (and(tensor(magnitude, [1, 128])), stray(magnitude)),
        (
            and(tensor(&name(2, 1, "A"), [4, 256])),
            format!(
                "tensor {:?} belongs to layer 2, but the model has layers 0 to 1",
                name(2, 1, "A")
            ),
        ),
        (
            vec![tensor(&a, [4, 512]), good().remove(1)],
            format!(
                "tensor {a:?} is [4, 512], but must be [4, 256] for this model and the rank in adapter_config.json"
            ),
        ),
        (
            vec![good().remove(0), tensor(&b, [256, 4])],
            format!(
                "tensor {b:?} is [256, 4], but must be [128, 4] for this model and the rank in adapter_config.json"
            ),
        ),
        (
            typed,
            format!("tensor {a:?} is F64, but must be F32, F16 or BF16"),
        ),
        (
            number(f32::NAN),
            format!(
                "value 2 of tensor {b:?} is NaN, which is not finite in f32 when multiplied by the scale 1"
            ),
        ),
        (
            number(f32::INFINITY),
            format!(
                "value 2 of tensor {b:?} is inf, which is not finite in f32 when multiplied by the scale 1"
            ),
        ),
    ];
    let folder = folder("tensors");
    for (tensors, wanted) in cases {
        write(&folder, &settings(&ONE), &tensors);
        assert_eq!(
            refusal(&folder),
            format!("FOLDER/adapter_model.safetensors: {wanted}")
        );
    }

    std::fs::write(folder.join("adapter_model.safetensors"), b"no tensors here").unwrap();
    assert!(
        refusal(&folder).contains("not a valid safetensors file: "),
        "{}",
        refusal(&folder)
    );
}

#[test]
fn says_what_is_wrong_with_the_folder() {
    let folder = folder("folder");
    assert!(
        refusal(&folder).starts_with("cannot open FOLDER: "),
        "{}",
        refusal(&folder)
    );
    std::fs::create_dir_all(&folder).unwrap();
    let files =
        "an adapter is a directory that contains adapter_config.json and adapter_model.safetensors";
    assert_eq!(
        refusal(&folder),
        format!("FOLDER: contains no adapter_config.json: {files}")
    );
    std::fs::write(
        folder.join("adapter_config.json"),
        settings(&ONE).to_string(),
    )
    .unwrap();
    assert_eq!(
        refusal(&folder),
        format!("FOLDER: contains no adapter_model.safetensors: {files}")
    );
    std::fs::write(folder.join("adapter_model.bin"), "").unwrap();
    let pickle = "stores its tensors as a pickle, which can run arbitrary code: save the adapter with PEFT's \
                  safe_serialization=True";
    assert_eq!(refusal(&folder), format!("FOLDER: {pickle}"));
    assert_eq!(
        refusal(&folder.join("adapter_config.json")),
        format!("FOLDER: not a directory: {files}")
    );
    write(&folder, &settings(&ONE), &good());
    std::fs::write(folder.join("warpwright.json"), "{\"base_formats\": [1]}").unwrap();
    let wanted = "FOLDER/warpwright.json: \"base_formats\" is [1], but must be an object of formats and how many \
                  projections have them";
    assert_eq!(refusal(&folder), wanted);
}

#[test]
fn fused_projections_are_refused() {
    let model = open("phi3", "phi3");
    let folder = make(&open("for-phi3", "llama"), "for-phi3", &ALL).folder;
    let error = model.with_adapter(&folder).unwrap_err().to_string();
    let wanted = "adapters of phi3 models are not supported: their files store several projections in one matrix";
    assert!(error.ends_with(wanted), "{error}");
}

/// `lora_alpha` 8 of rank 4, or 6 by its pattern, of A and B with one number each.
#[test]
fn scales_are_those_of_peft() {
    let settings = |key: &str, value: Value| {
        let mut settings = settings(&ONE);
        settings[key] = value;
        settings
    };
    let folder = folder("scales");
    let mut tensors = good();
    tensors[0].3[..4].copy_from_slice(&1f32.to_le_bytes());
    for (settings, scale) in [
        (settings("use_rslora", json!(false)), "2"),
        (settings("use_rslora", json!(true)), "4"),
        (settings("alpha_pattern", json!({"k_proj": 6})), "1.5"),
        (
            settings(
                "alpha_pattern",
                json!({"v_proj": 6, "model.layers.0.self_attn.k_proj": 7}),
            ),
            "2",
        ),
        (settings("some_new_key", json!(null)), "2"),
    ] {
        // The number of A that the scale makes infinite names the scale.
        tensors[0].3[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        write(&folder, &settings, &tensors);
        let said =
            format!("is inf, which is not finite in f32 when multiplied by the scale {scale}");
        assert!(refusal(&folder).ends_with(&said), "{}", refusal(&folder));
    }
}

#[test]
fn tells_what_an_adapter_is() {
    let plan = Plan {
        ranks: [3, 0, 16, 0, 0, 0, 8],
        first_layer: 1,
        ..ALL
    };
    let model = open("facts", "llama");
    let folder = make(&model, "facts", &plan).folder;
    let notes = json!({"base_formats": {"NF4": 14}});
    std::fs::write(folder.join("warpwright.json"), notes.to_string()).unwrap();
    let model = model.with_adapter(&folder).unwrap();
    let adapter = model.outline.adapter.as_ref().unwrap();
    assert_eq!(
        (adapter.ranks(), adapter.alpha, adapter.base.as_deref()),
        (3..=16, 32.0, Some("some/model"))
    );
    assert_eq!(
        adapter.targets(),
        [("q_proj", 1), ("v_proj", 1), ("down_proj", 1)]
    );
    assert_eq!(
        adapter.numbers(),
        3 * (256 + 256) + 16 * (256 + 128) + 8 * (512 + 256)
    );
    assert_eq!(adapter.trained_on.as_ref().unwrap()["NF4"], 14);
    let lacks = ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"];
    assert_eq!(
        adapter.missing,
        lacks.map(|name| format!("model.layers.0.{name}"))
    );
}

/// The settings name `k_proj` of all layers, or of one; the tensors are of layer 1.
#[test]
fn a_pair_that_is_missing_is_none_that_peft_draws_at_random() {
    let folder = folder("missing");
    let mut only = settings(&ONE);
    only["init_lora_weights"] = json!(false);
    write(&folder, &only, &good());
    let said = "FOLDER/adapter_config.json: \"init_lora_weights\" is off, so PEFT would initialize the matrices of \
                model.layers.0.self_attn.k_proj at random: the settings name it, but the directory has none. List \
                the layers that have matrices in \"layers_to_transform\"";
    assert_eq!(refusal(&folder), said);
    only["layers_to_transform"] = json!([1]);
    write(&folder, &only, &good());
    let model = open("missing", "llama").with_adapter(&folder).unwrap();
    assert_eq!(model.outline.adapter.as_ref().unwrap().missing, [""; 0]);
}
