//! Model families against Hugging Face transformers in float64, as folders and as GGUF files.
//!
//! The models are random and tiny: [`MODELS`] says what each is made of. `cargo run -p warpwright-model --example
//! folders -- DIR` writes them as folders, `engine/tests/data/folders.py DIR` lets transformers run those, and
//! `engine/tests/data/folders.json` keeps the logits that it gave, with the checksum of each folder's weights.
//!
//! [`FolderModel::gguf`] writes the same model as a GGUF file. It does what llama.cpp's converter does for the family:
//! it renames tensors, permutes the rows of Q and K, adds 1 to norms, stacks experts, and translates keys.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use half::bf16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};

use crate::splitmix::Random;
use crate::write::{File, Val, f32s};

const HIDDEN: u32 = 128;
const FEED_FORWARD: u32 = 256;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const VOCAB: u32 = 96;
/// Positions of the random models.
pub(crate) const CONTEXT: u32 = 64;

/// ggml's numbers of types.
const F32: u32 = 0;
const BF16: u32 = 30;

/// The description of a random model. Its folder and its entry in `folders.json` have the same name.
pub(crate) struct FolderModel {
    pub(crate) name: &'static str,
    layers: u32,
    head_dim: u32,
    tied: bool,
    /// The keys of `config.json` that not every model has, as a JSON object.
    config: &'static str,
    /// The tensors of a layer, which may depend on its index.
    tensors: fn(Sizes) -> Vec<LayerTensor>,
    /// The GGUF file of the same model, if llama.cpp has one.
    gguf: Option<GgufKeys>,
}

/// The differences of a GGUF file from the folder.
struct GgufKeys {
    family: &'static str,
    keys: &'static [(&'static str, Key)],
    /// The divisors of the rotary frequencies.
    factors: Option<fn() -> Vec<f32>>,
}

/// A metadata value.
enum Key {
    U32(u32),
    F32(f32),
    Str(&'static str),
    Bool(bool),
    /// Whether each layer but every fourth has a window.
    ThreeOfFour,
}

/// Lengths that depend on the model, and the index of the layer.
#[derive(Clone, Copy)]
struct Sizes {
    layer: u32,
    q: u32,
    kv: u32,
    head: u32,
}

/// A tensor of a layer: its names in folders and GGUF files, and its shape.
///
/// A star in the folder's name is the number of an expert: the folder has a tensor for each.
struct LayerTensor {
    folder: &'static str,
    gguf: &'static str,
    shape: Vec<u32>,
    kind: Kind,
}

/// The form of a tensor in a GGUF file.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// Its rows are permuted, so that rotary pairs are neighbors.
    Pairs,
    /// A norm.
    Norm,
    /// A norm that folders store minus 1.
    NormLessOne,
    Bias,
    /// The logits of experts, which GGUF files have in F32.
    Router,
    /// A row, which GGUF files have as a vector in F32.
    Row,
    /// Gate rows before up rows, of each expert if there are three dimensions. GGUF files have two tensors, whose
    /// names differ in `gate` and `up`.
    GateUp,
}

fn tensor(folder: &'static str, gguf: &'static str, shape: &[u32], kind: Kind) -> LayerTensor {
    LayerTensor {
        folder,
        gguf,
        shape: shape.to_vec(),
        kind,
    }
}

/// The projections of attention. `kind` is that of Q and K.
fn attention(s: Sizes, kind: Kind) -> Vec<LayerTensor> {
    vec![
        tensor(
            "self_attn.q_proj.weight",
            "attn_q.weight",
            &[s.q, HIDDEN],
            kind,
        ),
        tensor(
            "self_attn.k_proj.weight",
            "attn_k.weight",
            &[s.kv, HIDDEN],
            kind,
        ),
        tensor(
            "self_attn.v_proj.weight",
            "attn_v.weight",
            &[s.kv, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            "self_attn.o_proj.weight",
            "attn_output.weight",
            &[HIDDEN, s.q],
            Kind::Plain,
        ),
    ]
}

fn gated() -> Vec<LayerTensor> {
    vec![
        tensor(
            "mlp.gate_proj.weight",
            "ffn_gate.weight",
            &[FEED_FORWARD, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            "mlp.up_proj.weight",
            "ffn_up.weight",
            &[FEED_FORWARD, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            "mlp.down_proj.weight",
            "ffn_down.weight",
            &[HIDDEN, FEED_FORWARD],
            Kind::Plain,
        ),
    ]
}

fn fused(up: &'static str, down: &'static str) -> Vec<LayerTensor> {
    vec![
        tensor(
            up,
            "ffn_up.weight",
            &[2 * FEED_FORWARD, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            down,
            "ffn_down.weight",
            &[HIDDEN, FEED_FORWARD],
            Kind::Plain,
        ),
    ]
}

/// Experts in a tensor each, by the names of their modules for gate, up and down.
fn experts(
    router: &'static str,
    names: [&'static str; 3],
    count: u32,
    width: u32,
) -> Vec<LayerTensor> {
    let [gate, up, down] = names;
    let shape = [count, width, HIDDEN];
    vec![
        tensor(
            router,
            "ffn_gate_inp.weight",
            &[count, HIDDEN],
            Kind::Router,
        ),
        tensor(gate, "ffn_gate_exps.weight", &shape, Kind::Plain),
        tensor(up, "ffn_up_exps.weight", &shape, Kind::Plain),
        tensor(
            down,
            "ffn_down_exps.weight",
            &[count, HIDDEN, width],
            Kind::Plain,
        ),
    ]
}

/// Experts of Qwen and OLMoE.
fn separate_experts(count: u32, width: u32) -> Vec<LayerTensor> {
    let names = [
        "mlp.experts.*.gate_proj.weight",
        "mlp.experts.*.up_proj.weight",
        "mlp.experts.*.down_proj.weight",
    ];
    experts("mlp.gate.weight", names, count, width)
}

/// The matrices of all experts in two tensors.
fn fused_experts(names: [&'static str; 3], count: u32, width: u32) -> Vec<LayerTensor> {
    let [router, gate_up, down] = names;
    let shape = [count, 2 * width, HIDDEN];
    vec![
        tensor(
            router,
            "ffn_gate_inp.weight",
            &[count, HIDDEN],
            Kind::Router,
        ),
        tensor(gate_up, "ffn_gate_exps.weight", &shape, Kind::GateUp),
        tensor(
            down,
            "ffn_down_exps.weight",
            &[count, HIDDEN, width],
            Kind::Plain,
        ),
    ]
}

fn head_norms(s: Sizes) -> Vec<LayerTensor> {
    vec![
        tensor(
            "self_attn.q_norm.weight",
            "attn_q_norm.weight",
            &[s.head],
            Kind::Norm,
        ),
        tensor(
            "self_attn.k_norm.weight",
            "attn_k_norm.weight",
            &[s.head],
            Kind::Norm,
        ),
    ]
}

fn qwen3_moe(s: Sizes, feed_forward: Vec<LayerTensor>) -> Vec<LayerTensor> {
    [
        attention(s, Kind::Plain),
        feed_forward,
        norms_before(),
        head_norms(s),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Eight experts in every layer.
fn qwen3_moe_eight(s: Sizes) -> Vec<LayerTensor> {
    qwen3_moe(s, separate_experts(8, 64))
}

/// Five experts, and none in the second layer.
fn qwen3_moe_five(s: Sizes) -> Vec<LayerTensor> {
    let dense = s.layer == 1;
    qwen3_moe(
        s,
        if dense {
            gated()
        } else {
            separate_experts(5, 128)
        },
    )
}

/// Sixteen experts in each second layer, in the tensors of transformers 5.
fn qwen3_moe_fused(s: Sizes) -> Vec<LayerTensor> {
    let names = [
        "mlp.gate.weight",
        "mlp.experts.gate_up_proj",
        "mlp.experts.down_proj",
    ];
    let dense = s.layer.is_multiple_of(2);
    qwen3_moe(
        s,
        if dense {
            gated()
        } else {
            fused_experts(names, 16, 64)
        },
    )
}

fn qwen2_moe(s: Sizes) -> Vec<LayerTensor> {
    let width = 128;
    let shared = vec![
        tensor(
            "mlp.shared_expert_gate.weight",
            "ffn_gate_inp_shexp.weight",
            &[1, HIDDEN],
            Kind::Row,
        ),
        tensor(
            "mlp.shared_expert.gate_proj.weight",
            "ffn_gate_shexp.weight",
            &[width, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            "mlp.shared_expert.up_proj.weight",
            "ffn_up_shexp.weight",
            &[width, HIDDEN],
            Kind::Plain,
        ),
        tensor(
            "mlp.shared_expert.down_proj.weight",
            "ffn_down_shexp.weight",
            &[HIDDEN, width],
            Kind::Plain,
        ),
    ];
    [
        attention(s, Kind::Plain),
        separate_experts(4, 64),
        shared,
        norms_before(),
        biases(s),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn mixtral(s: Sizes) -> Vec<LayerTensor> {
    let names = [
        "block_sparse_moe.experts.*.w1.weight",
        "block_sparse_moe.experts.*.w3.weight",
        "block_sparse_moe.experts.*.w2.weight",
    ];
    let experts = experts("block_sparse_moe.gate.weight", names, 4, FEED_FORWARD);
    [attention(s, Kind::Pairs), experts, norms_before()]
        .into_iter()
        .flatten()
        .collect()
}

fn olmoe(s: Sizes) -> Vec<LayerTensor> {
    let norms = vec![
        tensor(
            "self_attn.q_norm.weight",
            "attn_q_norm.weight",
            &[s.q],
            Kind::Norm,
        ),
        tensor(
            "self_attn.k_norm.weight",
            "attn_k_norm.weight",
            &[s.kv],
            Kind::Norm,
        ),
    ];
    [
        attention(s, Kind::Plain),
        separate_experts(8, FEED_FORWARD),
        norms_before(),
        norms,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn granite_moe(s: Sizes) -> Vec<LayerTensor> {
    let names = [
        "block_sparse_moe.router.layer.weight",
        "block_sparse_moe.input_linear.weight",
        "block_sparse_moe.output_linear.weight",
    ];
    [
        attention(s, Kind::Pairs),
        fused_experts(names, 6, FEED_FORWARD),
        norms_before(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn granite_moe_shared(s: Sizes) -> Vec<LayerTensor> {
    let width = 64;
    let shared = vec![
        tensor(
            "shared_mlp.input_linear.weight",
            "ffn_gate_shexp.weight",
            &[2 * width, HIDDEN],
            Kind::GateUp,
        ),
        tensor(
            "shared_mlp.output_linear.weight",
            "ffn_down_shexp.weight",
            &[HIDDEN, width],
            Kind::Plain,
        ),
    ];
    granite_moe(s).into_iter().chain(shared).collect()
}

fn norm(folder: &'static str, gguf: &'static str, kind: Kind) -> LayerTensor {
    tensor(folder, gguf, &[HIDDEN], kind)
}

fn norms_before() -> Vec<LayerTensor> {
    vec![
        norm("input_layernorm.weight", "attn_norm.weight", Kind::Norm),
        norm(
            "post_attention_layernorm.weight",
            "ffn_norm.weight",
            Kind::Norm,
        ),
    ]
}

fn norms_after() -> Vec<LayerTensor> {
    vec![
        norm(
            "post_attention_layernorm.weight",
            "post_attention_norm.weight",
            Kind::Norm,
        ),
        norm(
            "post_feedforward_layernorm.weight",
            "post_ffw_norm.weight",
            Kind::Norm,
        ),
    ]
}

fn gemma_norms() -> Vec<LayerTensor> {
    let kind = Kind::NormLessOne;
    vec![
        norm("input_layernorm.weight", "attn_norm.weight", kind),
        norm(
            "post_attention_layernorm.weight",
            "post_attention_norm.weight",
            kind,
        ),
        norm("pre_feedforward_layernorm.weight", "ffn_norm.weight", kind),
        norm(
            "post_feedforward_layernorm.weight",
            "post_ffw_norm.weight",
            kind,
        ),
    ]
}

/// Llama, whose GGUF files permute Q and K.
fn llama(s: Sizes) -> Vec<LayerTensor> {
    [attention(s, Kind::Pairs), gated(), norms_before()]
        .into_iter()
        .flatten()
        .collect()
}

fn gemma3(s: Sizes) -> Vec<LayerTensor> {
    let kind = Kind::NormLessOne;
    let head_norms = vec![
        tensor(
            "self_attn.q_norm.weight",
            "attn_q_norm.weight",
            &[s.head],
            kind,
        ),
        tensor(
            "self_attn.k_norm.weight",
            "attn_k_norm.weight",
            &[s.head],
            kind,
        ),
    ];
    [
        attention(s, Kind::Plain),
        gated(),
        gemma_norms(),
        head_norms,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn gemma2(s: Sizes) -> Vec<LayerTensor> {
    [attention(s, Kind::Plain), gated(), gemma_norms()]
        .into_iter()
        .flatten()
        .collect()
}

fn phi3(s: Sizes) -> Vec<LayerTensor> {
    let qkv = [s.q + 2 * s.kv, HIDDEN];
    let attention = vec![
        tensor(
            "self_attn.qkv_proj.weight",
            "attn_qkv.weight",
            &qkv,
            Kind::Plain,
        ),
        tensor(
            "self_attn.o_proj.weight",
            "attn_output.weight",
            &[HIDDEN, s.q],
            Kind::Plain,
        ),
    ];
    let feed_forward = fused("mlp.gate_up_proj.weight", "mlp.down_proj.weight");
    [attention, feed_forward, norms_before()]
        .into_iter()
        .flatten()
        .collect()
}

fn granite_shared(s: Sizes) -> Vec<LayerTensor> {
    let up = "shared_mlp.input_linear.weight";
    let feed_forward = fused(up, "shared_mlp.output_linear.weight");
    [attention(s, Kind::Plain), feed_forward, norms_before()]
        .into_iter()
        .flatten()
        .collect()
}

fn exaone4(s: Sizes) -> Vec<LayerTensor> {
    let head_norms = vec![
        tensor(
            "self_attn.q_norm.weight",
            "attn_q_norm.weight",
            &[s.head],
            Kind::Norm,
        ),
        tensor(
            "self_attn.k_norm.weight",
            "attn_k_norm.weight",
            &[s.head],
            Kind::Norm,
        ),
    ];
    [
        attention(s, Kind::Plain),
        gated(),
        norms_after(),
        head_norms,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn olmo2(s: Sizes) -> Vec<LayerTensor> {
    let norms = vec![
        tensor(
            "self_attn.q_norm.weight",
            "attn_q_norm.weight",
            &[s.q],
            Kind::Norm,
        ),
        tensor(
            "self_attn.k_norm.weight",
            "attn_k_norm.weight",
            &[s.kv],
            Kind::Norm,
        ),
    ];
    [attention(s, Kind::Plain), gated(), norms_after(), norms]
        .into_iter()
        .flatten()
        .collect()
}

fn glm4_unbiased(s: Sizes) -> Vec<LayerTensor> {
    let norms = vec![
        norm("input_layernorm.weight", "attn_norm.weight", Kind::Norm),
        norm(
            "post_self_attn_layernorm.weight",
            "post_attention_norm.weight",
            Kind::Norm,
        ),
        norm(
            "post_attention_layernorm.weight",
            "ffn_norm.weight",
            Kind::Norm,
        ),
        norm(
            "post_mlp_layernorm.weight",
            "post_ffw_norm.weight",
            Kind::Norm,
        ),
    ];
    let feed_forward = fused("mlp.gate_up_proj.weight", "mlp.down_proj.weight");
    [attention(s, Kind::Plain), feed_forward, norms]
        .into_iter()
        .flatten()
        .collect()
}

fn biases(s: Sizes) -> Vec<LayerTensor> {
    vec![
        tensor("self_attn.q_proj.bias", "attn_q.bias", &[s.q], Kind::Bias),
        tensor("self_attn.k_proj.bias", "attn_k.bias", &[s.kv], Kind::Bias),
        tensor("self_attn.v_proj.bias", "attn_v.bias", &[s.kv], Kind::Bias),
    ]
}

fn glm4(s: Sizes) -> Vec<LayerTensor> {
    glm4_unbiased(s).into_iter().chain(biases(s)).collect()
}

fn cohere2(s: Sizes) -> Vec<LayerTensor> {
    let norm = vec![norm(
        "input_layernorm.weight",
        "attn_norm.weight",
        Kind::Norm,
    )];
    [attention(s, Kind::Plain), gated(), norm]
        .into_iter()
        .flatten()
        .collect()
}

/// StarCoder 2: biases everywhere, and a feed-forward without a gate.
fn starcoder2(s: Sizes) -> Vec<LayerTensor> {
    let bias = |folder, gguf, len| tensor(folder, gguf, &[len], Kind::Bias);
    let feed_forward = vec![
        tensor(
            "mlp.c_fc.weight",
            "ffn_up.weight",
            &[FEED_FORWARD, HIDDEN],
            Kind::Plain,
        ),
        bias("mlp.c_fc.bias", "ffn_up.bias", FEED_FORWARD),
        tensor(
            "mlp.c_proj.weight",
            "ffn_down.weight",
            &[HIDDEN, FEED_FORWARD],
            Kind::Plain,
        ),
        bias("mlp.c_proj.bias", "ffn_down.bias", HIDDEN),
    ];
    let more_biases = vec![
        bias("self_attn.o_proj.bias", "attn_output.bias", HIDDEN),
        bias(NORM_BIAS, "attn_norm.bias", HIDDEN),
        bias("post_attention_layernorm.bias", "ffn_norm.bias", HIDDEN),
    ];
    [
        attention(s, Kind::Plain),
        biases(s),
        feed_forward,
        norms_before(),
        more_biases,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The bias of the first norm of a layer. A model with it has a bias of the last norm too.
const NORM_BIAS: &str = "input_layernorm.bias";

/// The families whose files have another key for the constant of the norms.
const LAYER_NORM: [&str; 2] = ["cohere2", "starcoder2"];

/// The divisors of `_compute_llama3_parameters` for the model `exaone4`.
fn llama3_factors() -> Vec<f32> {
    let [theta, factor, low, high, original] = [500.0f64, 8.0, 1.0, 4.0, 16.0];
    let of_pair = |i: u32| {
        let wave = std::f64::consts::TAU * theta.powf(f64::from(2 * i) / 32.0);
        let smooth = (original / wave - low) / (high - low);
        let share = smooth.clamp(0.0, 1.0);
        (1.0 / ((1.0 - share) / factor + share)) as f32
    };
    (0..16).map(of_pair).collect()
}

/// The models.
///
/// The number of experts per token is such that the chosen logits are not close to the others. Otherwise rounding to 16
/// bits could choose another expert.
pub(crate) const MODELS: &[FolderModel] = &[
    FolderModel {
        name: "mistral",
        layers: 2,
        // Not the hidden length divided by the heads.
        head_dim: 64,
        tied: false,
        config: r#"{"model_type": "mistral", "sliding_window": 5, "rope_theta": 500.0,
            "architectures": ["MistralForCausalLM"], "hidden_act": "silu"}"#,
        tensors: llama,
        gguf: None,
    },
    FolderModel {
        name: "mistral-full",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "mistral", "sliding_window": null, "rope_theta": 500.0}"#,
        tensors: llama,
        gguf: None,
    },
    FolderModel {
        name: "ministral3",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "ministral3", "sliding_window": null, "max_position_embeddings": 128,
            "rope_parameters": {"rope_type": "yarn", "type": "yarn", "rope_theta": 500.0, "factor": 2.0,
                "original_max_position_embeddings": 64, "max_position_embeddings": 128,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                "llama_4_scaling_beta": 0.1}}"#,
        tensors: llama,
        gguf: None,
    },
    FolderModel {
        name: "gemma3",
        layers: 7,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "gemma3_text", "sliding_window": 5, "rope_theta": 1000000.0,
            "rope_local_base_freq": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "query_pre_attn_scalar": 48, "sliding_window_pattern": 6,
            "hidden_activation": "gelu_pytorch_tanh"}"#,
        tensors: gemma3,
        gguf: None,
    },
    FolderModel {
        name: "gemma3-types",
        layers: 4,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "gemma3_text", "sliding_window": 5, "query_pre_attn_scalar": 32,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}},
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}"#,
        tensors: gemma3,
        gguf: None,
    },
    FolderModel {
        name: "phi4-mini",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "phi3", "sliding_window": null, "rope_theta": 500.0,
            "partial_rotary_factor": 0.75, "original_max_position_embeddings": 8,
            "rope_scaling": {"type": "longrope",
                "long_factor": [1.0,1.25,1.5,1.75,2.0,2.25,2.5,2.75,3.0,3.25,3.5,3.75],
                "short_factor": [1.0,1.0,1.0,1.0,1.0,1.0,1.1,1.2,1.3,1.4,1.5,1.6]},
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false}"#,
        tensors: phi3,
        gguf: None,
    },
    FolderModel {
        name: "granite",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "granite", "rope_theta": 500.0, "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 6.5}"#,
        tensors: llama,
        gguf: Some(GgufKeys {
            family: "granite",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("embedding_scale", Key::F32(12.0)),
                ("residual_scale", Key::F32(0.22)),
                ("attention.scale", Key::F32(0.3)),
                ("logit_scale", Key::F32(6.5)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "granite4-dense",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "granitemoehybrid", "rope_theta": 500.0, "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 8.0,
            "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 256,
            "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
            "mamba_n_heads": 8, "mamba_expand": 2, "mamba_d_head": "auto"}"#,
        tensors: granite_shared,
        gguf: None,
    },
    FolderModel {
        name: "smollm3",
        layers: 5,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "smollm3", "rope_theta": 500.0, "no_rope_layers": [1, 1, 1, 0, 1]}"#,
        tensors: llama,
        gguf: Some(GgufKeys {
            family: "smollm3",
            keys: &[("rope.freq_base", Key::F32(500.0))],
            factors: None,
        }),
    },
    FolderModel {
        name: "exaone4",
        layers: 5,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "exaone4", "rope_theta": 500.0, "sliding_window": 5,
            "sliding_window_pattern": "LLLG",
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
                "full_attention", "sliding_attention"]}"#,
        tensors: exaone4,
        gguf: Some(GgufKeys {
            family: "exaone4",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("attention.sliding_window", Key::U32(5)),
                ("attention.sliding_window_pattern", Key::ThreeOfFour),
            ],
            factors: Some(llama3_factors),
        }),
    },
    FolderModel {
        name: "exaone4-full",
        layers: 4,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "exaone4", "rope_theta": 500.0, "sliding_window": null,
            "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]}"#,
        tensors: exaone4,
        gguf: Some(GgufKeys {
            family: "exaone4",
            keys: &[("rope.freq_base", Key::F32(500.0))],
            factors: None,
        }),
    },
    FolderModel {
        name: "olmo2",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "olmo2", "rope_theta": 500.0}"#,
        tensors: olmo2,
        gguf: Some(GgufKeys {
            family: "olmo2",
            keys: &[("rope.freq_base", Key::F32(500.0))],
            factors: None,
        }),
    },
    FolderModel {
        name: "olmo3",
        layers: 5,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "olmo3", "sliding_window": 5,
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
                    "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 16,
                    "attention_factor": 1.2},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
                "full_attention", "sliding_attention"]}"#,
        tensors: olmo2,
        gguf: Some(GgufKeys {
            family: "olmo2",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("rope.scaling.type", Key::Str("yarn")),
                ("rope.scaling.factor", Key::F32(4.0)),
                ("rope.scaling.original_context_length", Key::U32(16)),
                // What YaRN's own factor, 1 + 0.1 ln 4, is multiplied by to be 1.2.
                ("rope.scaling.attn_factor", Key::F32(1.053_902_7)),
                ("attention.sliding_window", Key::U32(5)),
                ("attention.sliding_window_pattern", Key::ThreeOfFour),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "gemma2",
        layers: 3,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "gemma2", "rope_theta": 500.0, "sliding_window": 5,
            "query_pre_attn_scalar": 32, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
            "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh"}"#,
        tensors: gemma2,
        gguf: Some(GgufKeys {
            family: "gemma2",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("attention.sliding_window", Key::U32(5)),
                ("attn_logit_softcapping", Key::F32(2.0)),
                ("final_logit_softcapping", Key::F32(3.0)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "glm4",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "glm4", "rope_theta": 500.0, "partial_rotary_factor": 0.5,
            "attention_bias": true}"#,
        tensors: glm4,
        gguf: Some(GgufKeys {
            family: "glm4",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("rope.dimension_count", Key::U32(16)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "glm4-unbiased",
        layers: 2,
        head_dim: 64,
        tied: false,
        config: r#"{"model_type": "glm4", "rope_theta": 500.0, "attention_bias": false}"#,
        tensors: glm4_unbiased,
        gguf: Some(GgufKeys {
            family: "glm4",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("rope.dimension_count", Key::U32(32)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "cohere2",
        layers: 5,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "cohere2", "rope_theta": 500.0, "sliding_window": 5,
            "sliding_window_pattern": 4, "logit_scale": 0.3, "layer_norm_eps": 1e-5, "rotary_pct": 1.0,
            "use_parallel_block": true, "position_embedding_type": "rope_gptj",
            "order_of_interleaved_layers": "local_attn_first"}"#,
        tensors: cohere2,
        gguf: Some(GgufKeys {
            family: "cohere2",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("rope.scaling.type", Key::Str("none")),
                ("attention.sliding_window", Key::U32(5)),
                ("attention.layer_norm_epsilon", Key::F32(1e-5)),
                ("logit_scale", Key::F32(0.3)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "starcoder2",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "starcoder2", "rope_theta": 500.0, "sliding_window": 5,
            "norm_epsilon": 1e-5, "use_bias": true, "hidden_act": "gelu_pytorch_tanh",
            "mlp_type": "default", "norm_type": "layer_norm", "residual_dropout": 0.1,
            "embedding_dropout": 0.1, "architectures": ["Starcoder2ForCausalLM"]}"#,
        tensors: starcoder2,
        gguf: Some(GgufKeys {
            family: "starcoder2",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("attention.sliding_window", Key::U32(5)),
                ("attention.layer_norm_epsilon", Key::F32(1e-5)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "qwen3moe",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "qwen3_moe", "rope_theta": 500.0, "num_experts": 8,
            "num_experts_per_tok": 4, "moe_intermediate_size": 64, "norm_topk_prob": true,
            "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": false,
            "router_aux_loss_coef": 0.001, "architectures": ["Qwen3MoeForCausalLM"]}"#,
        tensors: qwen3_moe_eight,
        gguf: Some(GgufKeys {
            family: "qwen3moe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("expert_count", Key::U32(8)),
                ("expert_used_count", Key::U32(4)),
                ("expert_feed_forward_length", Key::U32(64)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "qwen3moe-shares",
        layers: 3,
        head_dim: 64,
        tied: true,
        // GGUF files have no key for weights that are not normed.
        config: r#"{"model_type": "qwen3_moe", "rope_theta": 500.0, "num_experts": 5,
            "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": false,
            "mlp_only_layers": [1]}"#,
        tensors: qwen3_moe_five,
        gguf: None,
    },
    FolderModel {
        name: "qwen3moe-fused",
        layers: 4,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "qwen3_moe", "rope_theta": 500.0, "num_experts": 16,
            "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
            "decoder_sparse_step": 2}"#,
        tensors: qwen3_moe_fused,
        gguf: Some(GgufKeys {
            family: "qwen3moe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("expert_count", Key::U32(16)),
                ("expert_used_count", Key::U32(3)),
                ("expert_feed_forward_length", Key::U32(64)),
                ("expert_weights_norm", Key::Bool(true)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "qwen2moe",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "qwen2_moe", "rope_theta": 500.0, "num_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 128, "norm_topk_prob": false, "qkv_bias": true}"#,
        tensors: qwen2_moe,
        gguf: Some(GgufKeys {
            family: "qwen2moe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("expert_count", Key::U32(4)),
                ("expert_used_count", Key::U32(2)),
                ("expert_feed_forward_length", Key::U32(64)),
                ("expert_shared_feed_forward_length", Key::U32(128)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "mixtral",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "mixtral", "rope_theta": 500.0, "num_local_experts": 4,
            "num_experts_per_tok": 2, "sliding_window": null, "router_jitter_noise": 0.0}"#,
        tensors: mixtral,
        gguf: Some(GgufKeys {
            family: "llama",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("expert_count", Key::U32(4)),
                ("expert_used_count", Key::U32(2)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "olmoe",
        layers: 2,
        head_dim: 32,
        tied: false,
        config: r#"{"model_type": "olmoe", "rope_theta": 500.0, "num_experts": 8,
            "num_experts_per_tok": 5, "norm_topk_prob": false, "clip_qkv": null}"#,
        tensors: olmoe,
        gguf: Some(GgufKeys {
            family: "olmoe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("expert_count", Key::U32(8)),
                ("expert_used_count", Key::U32(5)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "granitemoe",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "granitemoe", "rope_theta": 500.0, "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 6.5,
            "num_local_experts": 6, "num_experts_per_tok": 2}"#,
        tensors: granite_moe,
        gguf: Some(GgufKeys {
            family: "granitemoe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("embedding_scale", Key::F32(12.0)),
                ("residual_scale", Key::F32(0.22)),
                ("attention.scale", Key::F32(0.3)),
                ("logit_scale", Key::F32(6.5)),
                ("expert_count", Key::U32(6)),
                ("expert_used_count", Key::U32(2)),
            ],
            factors: None,
        }),
    },
    FolderModel {
        name: "granitemoeshared",
        layers: 2,
        head_dim: 32,
        tied: true,
        config: r#"{"model_type": "granitemoeshared", "rope_theta": 500.0, "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 6.5,
            "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 64}"#,
        tensors: granite_moe_shared,
        gguf: Some(GgufKeys {
            family: "granitemoe",
            keys: &[
                ("rope.freq_base", Key::F32(500.0)),
                ("embedding_scale", Key::F32(12.0)),
                ("residual_scale", Key::F32(0.22)),
                ("attention.scale", Key::F32(0.3)),
                ("logit_scale", Key::F32(6.5)),
                ("expert_count", Key::U32(6)),
                ("expert_used_count", Key::U32(2)),
                ("expert_shared_feed_forward_length", Key::U32(64)),
            ],
            factors: None,
        }),
    },
];

/// A tensor with its numbers.
struct Filled {
    folder: String,
    gguf: String,
    shape: Vec<u32>,
    kind: Kind,
    numbers: Vec<f32>,
}

impl Filled {
    /// The tensors of a folder: one, or one for each expert.
    fn in_folder(&self) -> Vec<(String, Vec<usize>, &[f32])> {
        let shape: Vec<usize> = self.shape.iter().map(|&n| n as usize).collect();
        if !self.folder.contains('*') {
            return vec![(self.folder.clone(), shape, &self.numbers)];
        }

        let matrices = self.numbers.chunks(shape[1] * shape[2]);
        let named = matrices.enumerate().map(|(expert, numbers)| {
            let name = self.folder.replace('*', &expert.to_string());
            (name, shape[1..].to_vec(), numbers)
        });
        named.collect()
    }

    /// The tensors of a GGUF file: one, or one for gate and one for up.
    fn in_gguf(self) -> Vec<Filled> {
        match self.kind {
            Kind::Row => vec![Filled {
                shape: self.shape[1..].to_vec(),
                ..self
            }],
            Kind::GateUp => {
                let [before @ .., rows, n] = &self.shape[..] else {
                    panic!("{} is a matrix", self.folder)
                };
                let half = (rows / 2 * n) as usize;
                let chosen = |which: usize| Filled {
                    folder: self.folder.clone(),
                    gguf: self.gguf.replace("gate", ["gate", "up"][which]),
                    shape: [before, &[rows / 2, *n]].concat(),
                    kind: Kind::Plain,
                    numbers: self
                        .numbers
                        .chunks(half)
                        .skip(which)
                        .step_by(2)
                        .flatten()
                        .copied()
                        .collect(),
                };
                vec![chosen(0), chosen(1)]
            }
            _ => vec![self],
        }
    }
}

impl FolderModel {
    fn sizes(&self, layer: u32) -> Sizes {
        Sizes {
            layer,
            q: HEADS * self.head_dim,
            kv: KV_HEADS * self.head_dim,
            head: self.head_dim,
        }
    }

    /// The keys of `config.json`.
    pub(crate) fn config(&self) -> Map<String, Value> {
        let own: Map<String, Value> = serde_json::from_str(self.config).expect("an object");
        let all = json!({
            "hidden_size": HIDDEN,
            "intermediate_size": FEED_FORWARD,
            "num_hidden_layers": self.layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": self.head_dim,
            "max_position_embeddings": CONTEXT,
            "vocab_size": VOCAB,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": self.tied,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        });
        let Value::Object(mut all) = all else {
            unreachable!("json! of braces is an object");
        };
        if LAYER_NORM.iter().any(|family| own["model_type"] == *family) {
            all.remove("rms_norm_eps");
        }
        all.extend(own);
        all
    }

    /// The tensors, in order.
    fn filled(&self) -> Vec<Filled> {
        let mut random = Random(17);
        let specs = (self.tensors)(self.sizes(0));
        let last_norm = specs
            .iter()
            .find(|spec| spec.shape == [HIDDEN] && spec.kind != Kind::Bias);
        let last_norm = last_norm.expect("every family has norms").kind;
        let mut all = vec![];
        let mut add = |folder: String, gguf: String, shape: &[u32], kind: Kind| {
            let count = shape.iter().product::<u32>();
            let numbers = (0..count).map(|_| match kind {
                Kind::Plain | Kind::Pairs | Kind::Router | Kind::Row | Kind::GateUp => {
                    let len = shape[shape.len() - 1];
                    random.unit() * 1.7 / (len as f32).sqrt()
                }
                Kind::Norm => 1.0 + random.unit() / 2.0,
                Kind::NormLessOne => random.unit() / 2.0,
                Kind::Bias => random.unit(),
            });
            let numbers = numbers.map(|x| bf16::from_f32(x).to_f32()).collect();
            all.push(Filled {
                folder,
                gguf,
                shape: shape.to_vec(),
                kind,
                numbers,
            });
        };
        let top = |folder: &str, gguf: &str| (folder.to_owned(), gguf.to_owned());
        let (folder, gguf) = top("model.embed_tokens.weight", "token_embd.weight");
        add(folder, gguf, &[VOCAB, HIDDEN], Kind::Plain);
        for layer in 0..self.layers {
            for spec in &(self.tensors)(self.sizes(layer)) {
                let folder = format!("model.layers.{layer}.{}", spec.folder);
                let gguf = format!("blk.{layer}.{}", spec.gguf);
                add(folder, gguf, &spec.shape, spec.kind);
            }
        }

        let (folder, gguf) = top("model.norm.weight", "output_norm.weight");
        add(folder, gguf, &[HIDDEN], last_norm);
        if specs.iter().any(|spec| spec.folder == NORM_BIAS) {
            let (folder, gguf) = top("model.norm.bias", "output_norm.bias");
            add(folder, gguf, &[HIDDEN], Kind::Bias);
        }
        if !self.tied {
            let (folder, gguf) = top("lm_head.weight", "output.weight");
            add(folder, gguf, &[VOCAB, HIDDEN], Kind::Plain);
        }
        all
    }

    /// The bytes of `model.safetensors`, in BF16. `rename` changes the names.
    pub(crate) fn safetensors(&self, rename: impl Fn(&str) -> String) -> Vec<u8> {
        let tensors = self.filled();
        let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .iter()
            .flat_map(Filled::in_folder)
            .map(|(name, shape, numbers)| (rename(&name), shape, bf16s(numbers)))
            .collect();
        let views = bytes.iter().map(|(name, shape, bytes)| {
            (
                name.as_str(),
                TensorView::new(Dtype::BF16, shape.clone(), bytes).expect("its bytes"),
            )
        });
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize(views, Some(metadata)).expect("distinct names")
    }

    /// Writes the folder.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let config = Value::Object(self.config());
        fs::write(folder.join("config.json"), format!("{config:#}"))?;
        fs::write(
            folder.join("model.safetensors"),
            self.safetensors(str::to_owned),
        )
    }

    /// The family of the GGUF file, if there is one.
    pub(crate) fn gguf_family(&self) -> Option<&'static str> {
        self.gguf.as_ref().map(|gguf| gguf.family)
    }

    /// The same model as a GGUF file, if llama.cpp has one.
    pub(crate) fn gguf(&self) -> Option<File> {
        let GgufKeys {
            family,
            keys,
            factors,
        } = self.gguf.as_ref()?;
        let key = |name: &str| format!("{family}.{name}");
        let sizes = [
            ("block_count", self.layers),
            ("embedding_length", HIDDEN),
            ("feed_forward_length", FEED_FORWARD),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.head_dim),
            ("context_length", CONTEXT),
            ("vocab_size", VOCAB),
        ];
        let mut file = File::default()
            .pair("general.architecture", Val::Str((*family).into()))
            .pair("general.name", Val::Str(self.name.into()));
        if !LAYER_NORM.contains(family) {
            let epsilon = key("attention.layer_norm_rms_epsilon");
            file = file.pair(&epsilon, Val::F32(1e-5));
        }
        for (name, n) in sizes {
            file = file.pair(&key(name), Val::U32(n));
        }
        for (name, value) in *keys {
            let value = match value {
                Key::U32(n) => Val::U32(*n),
                Key::F32(x) => Val::F32(*x),
                Key::Str(text) => Val::Str((*text).into()),
                Key::Bool(on) => Val::Bool(*on),
                Key::ThreeOfFour => bools((1..=self.layers).map(|n| !n.is_multiple_of(4))),
            };
            file = file.pair(&key(name), value);
        }

        for mut t in self.filled() {
            if t.kind == Kind::Pairs {
                t.numbers = neighbors(&t.numbers, self.head_dim as usize, t.shape[1] as usize);
            }
            if t.kind == Kind::NormLessOne {
                for x in &mut t.numbers {
                    *x += 1.0;
                }
            }
            for t in t.in_gguf() {
                let dims: Vec<u64> = t.shape.iter().rev().map(|&n| n.into()).collect();
                let (kind, data) = if t.shape.len() == 1 || t.kind == Kind::Router {
                    (F32, f32s(t.numbers))
                } else {
                    (BF16, bf16s(&t.numbers))
                };
                file = file.tensor(&t.gguf, &dims, kind, data);
            }
        }
        if let Some(factors) = factors {
            let factors = factors();
            let dims = [factors.len() as u64];
            file = file.tensor("rope_freqs.weight", &dims, F32, f32s(factors));
        }
        Some(file)
    }
}

fn bf16s(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
        .collect()
}

/// An array of bools.
fn bools(values: impl Iterator<Item = bool>) -> Val {
    let values: Vec<u8> = values.map(u8::from).collect();
    let mut bytes = 7u32.to_le_bytes().to_vec();
    bytes.extend((values.len() as u64).to_le_bytes());
    bytes.extend(values);
    Val::Raw(9, bytes)
}

/// The rows of heads with the two rows of each rotary pair next to each other, as `LlamaModel.permute` of llama.cpp's
/// converter orders them.
fn neighbors(rows: &[f32], head: usize, n: usize) -> Vec<f32> {
    let half = head / 2;
    rows.chunks_exact(head * n)
        .flat_map(|head| {
            (0..half)
                .flat_map(move |i| [i, i + half])
                .flat_map(move |i| &head[i * n..][..n])
        })
        .copied()
        .collect()
}
