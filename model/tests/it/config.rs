//! Metadata and tensor shapes against each other.

use warpwright_model::Model;
use warpwright_model::config::{Architecture, FamilyBiases, Hyperparameters};
use warpwright_model::layer::{HeadNorms, NormPositions};
use warpwright_model::rope::{Rope, RopeFactors};
use warpwright_model::shape::SHAPES;

use crate::families::MODELS;
use crate::folders;
use crate::write::{File, Val, f32s};

/// A llama so small that its file is written in a moment: 2 layers, 2 heads of 8, hidden 16.
pub(crate) fn llama() -> File {
    model("llama")
}

/// The same with the architecture's name, and biases and norms where that has them.
pub(crate) fn model(arch: &str) -> File {
    let key = |name: &str| format!("{arch}.{name}");
    let mut file = File::default()
        .pair("general.architecture", Val::Str(arch.into()))
        .pair(
            "tokenizer.ggml.tokens",
            Val::Strs((0..5).map(|i| i.to_string()).collect()),
        )
        .pair("tokenizer.ggml.eos_token_id", Val::U32(4))
        .pair(&key("attention.layer_norm_rms_epsilon"), Val::F32(1e-5));
    for (name, n) in [
        ("block_count", 2),
        ("embedding_length", 16),
        ("feed_forward_length", 12),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("context_length", 16),
    ] {
        file = file.pair(&key(name), Val::U32(n));
    }

    file = zeros(file, "token_embd.weight", &[16, 5]);
    file = zeros(file, "output_norm.weight", &[16]);
    for layer in 0..2 {
        for (name, dims) in [
            ("attn_norm.weight", &[16][..]),
            ("attn_q.weight", &[16, 16]),
            ("attn_k.weight", &[16, 8]),
            ("attn_v.weight", &[16, 8]),
            ("attn_output.weight", &[16, 16]),
            ("ffn_norm.weight", &[16]),
            ("ffn_gate.weight", &[16, 12]),
            ("ffn_up.weight", &[16, 12]),
            ("ffn_down.weight", &[12, 16]),
        ] {
            file = zeros(file, &format!("blk.{layer}.{name}"), dims);
        }
        if arch == "qwen2" {
            for (name, n) in [("q", 16), ("k", 8), ("v", 8)] {
                file = zeros(file, &format!("blk.{layer}.attn_{name}.bias"), &[n]);
            }
        }
        if arch == "qwen3" {
            for name in ["q", "k"] {
                file = zeros(file, &format!("blk.{layer}.attn_{name}_norm.weight"), &[8]);
            }
        }
    }

    file
}

fn zeros(file: File, name: &str, dims: &[u64]) -> File {
    let data = f32s((0..dims.iter().product()).map(|_| 0.0));
    file.tensor(name, dims, 0, data)
}

#[test]
fn reads_the_small_model() {
    let model = Model::open(&crate::asset()).unwrap();
    let c = &model.outline.config;
    assert_eq!(
        (
            c.layer_count(),
            c.hidden,
            c.feed_forward(),
            c.vocab,
            c.context
        ),
        (8, 256, 768, 4096, 2048)
    );
    assert_eq!(
        (c.heads(), c.kv_heads(), c.head_dim(), c.ropes[0].dim),
        (4, 2, 64, 64)
    );
    assert_eq!((c.epsilon, c.ropes[0]), (1e-5, Rope::plain(64, 10_000.0)));
    assert_eq!(model.outline.weights.head.as_ref(), None);
    assert_eq!(model.outline.weights.iter().count(), 74);
    assert_eq!(model.outline.stop, [0]);
}

#[test]
fn fills_in_defaults() {
    let mut file = llama().without("llama.attention.head_count_kv");
    for layer in 0..2 {
        for name in ["k", "v"] {
            let name = format!("blk.{layer}.attn_{name}.weight");
            file = zeros(file.without(&name), &name, &[16, 16]);
        }
    }

    let model = Model::open(&file.save("defaults.gguf")).unwrap();
    assert_eq!(
        (
            model.outline.config.kv_heads(),
            model.outline.config.head_dim(),
            model.outline.config.ropes[0].dim
        ),
        (2, 8, 8)
    );
    assert_eq!(
        (
            model.outline.config.ropes[0].base,
            model.outline.config.vocab
        ),
        (10_000.0, 5)
    );
}

#[test]
fn scales_rotary_frequencies() {
    let linear = llama()
        .pair("llama.rope.scaling.type", Val::Str("linear".into()))
        .pair("llama.rope.scaling.factor", Val::F32(4.0))
        .tensor("rope_freqs.weight", &[4], 0, f32s([1.0, 8.0, 1.0, 1.0]));
    let model = Model::open(&linear.save("linear.gguf")).unwrap();
    let factors = model.outline.rope_factors.clone().unwrap();
    assert_eq!(factors, RopeFactors::Fixed(vec![1.0, 8.0, 1.0, 1.0]));
    let turns = model.outline.config.ropes[0].revolutions(Some(factors.of(8)));
    let expected =
        [1.0 / 4.0, 0.1 / 32.0, 0.01 / 4.0, 0.001 / 4.0].map(|f| f / std::f64::consts::TAU);
    for (a, b) in turns.iter().zip(expected) {
        assert!((a - b).abs() < 1e-17, "{a} {b}");
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let text = |s: &str| Val::Str(s.into());
    let cases: &[(File, &str)] = &[
        (
            llama().without("general.architecture"),
            "key \"general.architecture\" is missing",
        ),
        (
            llama().pair("general.architecture", text("gpt2")),
            "architecture \"gpt2\" is not supported; supported: llama, qwen2, qwen3, gemma3, phi3, granite, smollm3, exaone4, olmo2, gemma2, glm4, \
             cohere2, qwen2moe, qwen3moe, olmoe, granitemoe, gpt-oss, starcoder2",
        ),
        (
            llama().without("llama.block_count"),
            "key \"llama.block_count\" is missing",
        ),
        (
            llama().pair("llama.block_count", Val::U32(0)),
            "key \"llama.block_count\" is 0; expected a whole number from 1 to 16777216",
        ),
        (
            llama().pair("llama.embedding_length", text("8")),
            "key \"llama.embedding_length\" is a string, \"8\"; expected a whole number from 1 to 16777216",
        ),
        (
            llama().pair("llama.attention.head_count", Val::U32(3)),
            "key \"llama.attention.head_count\" is 3; expected a divisor of embedding_length (16)",
        ),
        (
            llama().pair("llama.attention.head_count_kv", Val::U32(4)),
            "key \"llama.attention.head_count\" is 2; expected a multiple of attention.head_count_kv (4)",
        ),
        (
            llama().pair("llama.attention.value_length", Val::U32(16)),
            "key \"llama.attention.value_length\" is 16; expected the length of a key (8)",
        ),
        (
            llama().pair("llama.rope.dimension_count", Val::U32(10)),
            "key \"llama.rope.dimension_count\" is 10; expected an even number up to the head's length (8)",
        ),
        (
            llama().pair("llama.rope.freq_base", Val::F32(f32::NAN)),
            "key \"llama.rope.freq_base\" is NaN; expected a finite floating-point number above zero",
        ),
        (
            llama().pair("llama.attention.layer_norm_rms_epsilon", Val::F32(2.0)),
            "key \"llama.attention.layer_norm_rms_epsilon\" is 2; expected a number below 1",
        ),
        (
            llama().pair("llama.rope.scaling.type", text("longrope")),
            "rope scaling \"longrope\" is not supported; \
             supported: none, linear, yarn, and per-pair factors in rope_freqs.weight",
        ),
        (
            llama().pair("llama.vocab_size", Val::U32(6)),
            "key \"llama.vocab_size\" is 6; expected the length of tokenizer.ggml.tokens (5)",
        ),
        (
            llama().pair("tokenizer.ggml.eos_token_id", Val::U32(5)),
            "key \"tokenizer.ggml.eos_token_id\" is 5; expected a token below the vocabulary's size (5)",
        ),
        (
            llama().without("blk.1.ffn_up.weight"),
            "tensor \"blk.1.ffn_up.weight\" of shape [16, 12] is missing",
        ),
        (
            llama().edit("blk.1.ffn_up.weight", |t| t.dims = vec![12, 16]),
            "tensor \"blk.1.ffn_up.weight\" has shape [12, 16]; expected [16, 12]",
        ),
        (
            llama().edit("token_embd.weight", |t| {
                (t.kind, t.dims) = (26, vec![16, 5])
            }),
            "tensor \"token_embd.weight\" is I32; supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, \
             Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4",
        ),
        (
            llama().edit("output_norm.weight", |t| t.kind = 1),
            "tensor \"output_norm.weight\" is F16; supported: F32",
        ),
        (
            zeros(llama(), "blk.0.attn_q.bias", &[16]),
            "tensor \"blk.0.attn_q.bias\" is not part of architecture llama, so the model would run wrongly",
        ),
        (
            llama().tensor("rope_freqs.weight", &[4], 0, f32s([1.0, 0.0, 1.0, 1.0])),
            "tensor \"rope_freqs.weight\" holds 0 at index 1; expected finite numbers above zero",
        ),
        (
            model("qwen2").without("blk.0.attn_k.bias"),
            "tensor \"blk.0.attn_k.bias\" of shape [8] is missing",
        ),
        (
            model("qwen3").without("blk.1.attn_q_norm.weight"),
            "tensor \"blk.1.attn_q_norm.weight\" of shape [8] is missing",
        ),
        (
            zeros(model("qwen2"), "blk.0.attn_k_norm.weight", &[8]),
            "tensor \"blk.0.attn_k_norm.weight\" is not part of architecture qwen2, so the model would run wrongly",
        ),
    ];
    for (i, (file, message)) in cases.iter().enumerate() {
        let name = format!("unfit-{i}.gguf");
        let error = Model::open(&file.save(&name)).unwrap_err().to_string();
        let (path, sentence) = error.split_once(": ").unwrap();
        assert!(path.ends_with(&name), "{error}");
        assert_eq!(sentence, *message);
    }
}

/// So each has a model that transformers has run: see `families.rs` and `folders.rs`.
#[test]
fn accepts_every_architecture() {
    // The random models of gpt-oss are in the tests of the engine, whose kernels make their formats.
    let elsewhere = [Architecture::GPT_OSS];
    for arch in Architecture::ALL {
        if elsewhere.contains(&arch) {
            continue;
        }
        let model = MODELS.iter().find(|model| model.family == arch.name);
        let of_folder = folders::MODELS
            .iter()
            .find(|model| model.gguf_family() == Some(arch.name));
        let file = match (model, of_folder) {
            (Some(model), _) => model.file(),
            (None, Some(model)) => model.gguf().unwrap(),
            (None, None) => panic!("no random model of {}", arch.name),
        };
        let model = Model::open(&file.save(&format!("accepted-{}.gguf", arch.name))).unwrap();
        assert_eq!(model.outline.config.architecture, arch);
        let b = &model.outline.weights.blocks[0];
        let found = [
            b.q_bias.is_some(),
            b.q_norm.is_some(),
            b.attn_post_norm.is_some(),
            b.q.fused.is_some() || b.gate.as_ref().is_some_and(|gate| gate.fused.is_some()),
        ];
        let wanted = [
            arch.biases != FamilyBiases::None,
            arch.head_norms != HeadNorms::None,
            matches!(
                arch.norms,
                NormPositions::After | NormPositions::BeforeAndAfter
            ),
            !arch.fused.is_empty(),
        ];
        assert_eq!(found, wanted, "{}", arch.name);
    }
}

/// `query_pre_attn_scalar` of the config.json of each.
#[test]
fn gemma_3_scales_scores_by_its_size() {
    let known = |name: &str| {
        SHAPES
            .iter()
            .find(|shape| shape.name == name)
            .unwrap()
            .hyperparameters
            .clone()
    };
    let root = |h: &Hyperparameters| {
        let c = h.config();
        let first = c.attentions().next().unwrap();
        1.0 / f64::from(c.score_scale(first)).powi(2)
    };
    assert_eq!(root(&known("gemma3-4b")), 256.0);
    let large = Hyperparameters {
        layers: 62,
        hidden: 5376,
        heads: 32,
        kv_heads: 16,
        head_dim: 128,
        ..known("gemma3-4b")
    };
    assert!((root(&large) - 168.0).abs() < 1e-4);
    assert!(
        (root(&Hyperparameters {
            layers: 61,
            ..large
        }) - 128.0)
            .abs()
            < 1e-4
    );
}

#[test]
fn windows_are_between_layers_without() {
    let known = &SHAPES
        .iter()
        .find(|shape| shape.name == "gemma3-1b")
        .unwrap()
        .hyperparameters;
    let c = known.config();
    let found: Vec<_> = c.attentions().map(|a| (a.window, a.rope)).collect();
    let wanted: Vec<_> = (0..26)
        .map(|layer| match layer {
            5 | 11 | 17 | 23 => (None, 0),
            _ => (Some(512), 1),
        })
        .collect();
    assert_eq!(found, wanted);

    // A window as long as the context is none; the rotary base stays.
    let short = Hyperparameters {
        context: 512,
        ..known.clone()
    };
    let short = short.config();
    let first = short.attentions().next().unwrap();
    assert_eq!((first.window, first.rope), (None, 1));
}
