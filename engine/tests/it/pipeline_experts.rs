//! Mixtures of experts in the pipeline, on the emulator: their logits, and the choice of experts.

use warpwright_engine::{Decoder, Error, KernelPath, Launch, Options, StepKind};
use warpwright_kernels::Random;
use warpwright_model::Model;

use crate::decode::{bits, check_logits, distance, emulator, generate, logits, numbers};
use crate::oracle::{self, Keep};
use crate::synth::{BF16, F16, Make, Q2_K, Q4_K, Q5_K, Q6_K, Q8_0};
use crate::write::{Entry, File, Val, f32s};

/// A model of two layers with random weights.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    pub(crate) arch: &'static str,
    /// ggml's type numbers, given to the matrices in turn.
    pub(crate) formats: &'static [u32],
    pub(crate) count: u32,
    pub(crate) chosen: u32,
    pub(crate) width: u32,
    /// The factor of the weights, if the file has one.
    pub(crate) scale: Option<f32>,
    /// Whether the first layer is dense.
    pub(crate) dense_first: bool,
}

pub(crate) const HIDDEN: u32 = 256;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_DIM: u32 = 64;
pub(crate) const VOCAB: u32 = 304;
/// Formats of gate, up and down of the experts of `Q4_K_M` files, with those of the other matrices
/// in the order of the file: embedding, q, k, v, o, gate, up, down.
const MEDIUM: &[u32] = &[Q4_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q4_K, Q6_K];
const IDS: [u32; 6] = [3, 300, 0, 17, 17, 255];

pub(crate) const QWEN3: Mixture = Mixture {
    arch: "qwen3moe",
    formats: MEDIUM,
    count: 40,
    chosen: 8,
    width: 256,
    scale: None,
    dense_first: false,
};

const MIXTURES: [(&str, Mixture); 7] = [
    ("medium", QWEN3),
    (
        "one",
        Mixture {
            formats: &[Q8_0],
            count: 5,
            chosen: 1,
            ..QWEN3
        },
    ),
    (
        "all",
        Mixture {
            formats: &[BF16],
            count: 3,
            chosen: 3,
            width: 384,
            ..QWEN3
        },
    ),
    (
        "many",
        Mixture {
            formats: &[F16],
            count: 130,
            chosen: 4,
            width: 128,
            ..QWEN3
        },
    ),
    (
        "llama",
        Mixture {
            arch: "llama",
            formats: &[Q5_K, Q5_K, Q5_K, Q6_K, Q5_K, Q5_K, Q5_K, Q6_K],
            count: 8,
            chosen: 2,
            width: 512,
            ..QWEN3
        },
    ),
    (
        "scaled",
        Mixture {
            formats: &[Q6_K],
            count: 6,
            chosen: 3,
            scale: Some(2.5),
            dense_first: true,
            ..QWEN3
        },
    ),
    (
        "two-bits",
        Mixture {
            formats: &[Q2_K],
            count: 6,
            chosen: 2,
            ..QWEN3
        },
    ),
];

impl Mixture {
    pub(crate) fn file(&self) -> File {
        let key = |name: &str| format!("{}.{name}", self.arch);
        let mut file = File::default()
            .pair("general.architecture", Val::Str(self.arch.into()))
            .pair(&key("attention.layer_norm_rms_epsilon"), Val::F32(1e-5))
            .pair(&key("rope.freq_base"), Val::F32(500.0));
        let width = match self.arch {
            "qwen3moe" => "expert_feed_forward_length",
            _ => "feed_forward_length",
        };
        for (name, n) in [
            ("block_count", 2),
            ("embedding_length", HIDDEN),
            (width, self.width),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("attention.key_length", HEAD_DIM),
            ("context_length", 64),
            ("vocab_size", VOCAB),
            ("expert_count", self.count),
            ("expert_used_count", self.chosen),
        ] {
            file = file.pair(&key(name), Val::U32(n));
        }
        if let Some(scale) = self.scale {
            file = file.pair(&key("expert_weights_scale"), Val::F32(scale));
        }
        if self.dense_first {
            file = file.pair(&key("feed_forward_length"), Val::U32(2 * self.width));
        }

        let mut make = Make::new(file, self.formats);
        make.matrix("token_embd.weight", VOCAB, HIDDEN);
        for layer in 0..2 {
            self.layer(&mut make, layer);
        }
        make.norm("output_norm.weight", HIDDEN);
        make.file
    }

    /// Returns files that differ from [`file`](Mixture::file) as an error in the choice of experts
    /// would.
    pub(crate) fn wrong(&self) -> [(&'static str, File); 4] {
        let expert = |tensor| {
            self.file().edit(tensor, |tensor: &mut Entry| {
                let len = tensor.data.len() / self.count as usize;
                tensor.data.rotate_left(len);
            })
        };
        let key = format!("{}.expert_used_count", self.arch);
        let chosen = |n| self.file().pair(&key, Val::U32(n));
        [
            ("more", chosen(self.chosen + 1)),
            ("fewer", chosen(self.chosen - 1)),
            ("down", expert("blk.1.ffn_down_exps.weight")),
            ("gate", expert("blk.0.ffn_gate_exps.weight")),
        ]
    }

    fn layer(&self, make: &mut Make, layer: u32) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        make.norm(&name("attn_norm"), HIDDEN);
        make.matrix(&name("attn_q"), HEADS * HEAD_DIM, HIDDEN);
        make.matrix(&name("attn_k"), KV_HEADS * HEAD_DIM, HIDDEN);
        make.matrix(&name("attn_v"), KV_HEADS * HEAD_DIM, HIDDEN);
        if self.arch == "qwen3moe" {
            make.norm(&name("attn_q_norm"), HEAD_DIM);
            make.norm(&name("attn_k_norm"), HEAD_DIM);
        }
        make.matrix(&name("attn_output"), HIDDEN, HEADS * HEAD_DIM);
        make.norm(&name("ffn_norm"), HIDDEN);
        if self.dense_first && layer == 0 {
            make.matrix(&name("ffn_gate"), 2 * self.width, HIDDEN);
            make.matrix(&name("ffn_up"), 2 * self.width, HIDDEN);
            make.matrix(&name("ffn_down"), HIDDEN, 2 * self.width);
            return;
        }

        let router = Random(u64::from(layer)).units((self.count * HIDDEN) as usize);
        let router = f32s(router.into_iter().map(|w| w / 8.0));
        make.add(&name("ffn_gate_inp"), &[HIDDEN, self.count], 0, router);
        make.matrices(&name("ffn_gate_exps"), self.count, self.width, HIDDEN);
        make.matrices(&name("ffn_up_exps"), self.count, self.width, HIDDEN);
        make.matrices(&name("ffn_down_exps"), self.count, HIDDEN, self.width);
    }
}

fn open(name: &str, file: &File) -> Model {
    Model::open(&file.save(&format!("pipeline-experts-{name}.gguf"))).unwrap()
}

fn decoder(model: &Model, options: Options) -> Decoder {
    let decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    decoder
}

/// A wrong expert moves logits by far more than the bound, so this also compares the choice.
#[test]
fn logits_of_mixtures_are_the_oracles() {
    for (name, mixture) in MIXTURES {
        let model = open(name, &mixture.file());
        let mut decoder = decoder(&model, Options::new(16, Launch::Graph));
        let rows = logits(&mut decoder, &IDS);
        check_logits(&model, &KernelPath::Overlapped, &rows, &IDS);
    }
}

/// The bound of the logits must find a choice of one expert too many or too few, an expert in the
/// place of another, and the weights of a wrong slot.
#[test]
fn the_bound_finds_wrong_experts() {
    let wanted = oracle::logits(&open("right", &QWEN3.file()), &IDS, Keep::Half).concat();
    for (name, file) in QWEN3.wrong() {
        let changed = open(name, &file);
        let found = numbers(&logits(
            &mut decoder(&changed, Options::new(16, Launch::Graph)),
            &IDS,
        ));
        let apart = distance(&found.concat(), &wanted);
        assert!(apart > 1e-2, "{name}: {apart:e}");
    }
}

#[test]
fn mixtures_decode_alike_however_they_are_launched() {
    let model = open("launches", &QWEN3.file());
    let of = |launch, tokens_per_launch| {
        let options = Options {
            tokens_per_launch,
            ..Options::new(24, launch)
        };
        let mut decoder = decoder(&model, options);
        let rows = bits(&logits(&mut decoder, &IDS));
        (rows, generate(&mut decoder, &IDS, 12))
    };
    let wanted = of(Launch::Eager, 1);
    assert_eq!(wanted.1.len(), 12);
    for (launch, tokens) in [
        (Launch::Graph, 1),
        (Launch::Graph, 8),
        (Launch::Plain, 3),
        (Launch::Capture, 5),
    ] {
        assert_eq!(of(launch, tokens), wanted, "{launch:?}, {tokens} tokens");
    }
}

/// A stage of the ring may have tiles of one expert or of several.
#[test]
fn mixtures_have_the_same_logits_with_every_tuning() {
    let model = open("tunings", &QWEN3.file());
    for tuning in ["2x4_first", "3x4_first", "1x8_first_prefetch4", "4x2_first"] {
        let options = Options {
            tuning: tuning.parse().unwrap(),
            ..Options::new(16, Launch::Graph)
        };
        let rows = logits(&mut decoder(&model, options), &IDS);
        check_logits(&model, &KernelPath::Overlapped, &rows, &IDS);
    }
}

/// Too few tokens for a chunk.
#[test]
fn short_prompts_of_mixtures_are_prefilled_token_by_token() {
    let model = open("prompts", &QWEN3.file());
    let options = Options {
        prefill_batch: 8,
        ..Options::new(24, Launch::Graph)
    };
    let mut decoder = decoder(&model, options);
    assert_eq!(generate(&mut decoder, &IDS, 3).len(), 3);
    assert_eq!(decoder.prefill_batch(), 1);
    assert_eq!(decoder.launches(StepKind::PrefillBatch), 0);
}

/// A router logit that is not finite ends the text, even if its expert would not be chosen. The weights of the router
/// are finite, because others are refused when they are loaded.
#[test]
fn router_logits_that_are_not_finite_are_errors() {
    for value in [f32::MAX, f32::MIN] {
        let file = QWEN3.file().edit("blk.1.ffn_gate_inp.weight", |router| {
            let row = 4 * HIDDEN as usize;
            for number in router.data[7 * row..8 * row].chunks_exact_mut(4) {
                number.copy_from_slice(&value.to_le_bytes());
            }
        });
        let model = open("not-finite", &file);
        let mut decoder = decoder(&model, Options::new(16, Launch::Graph));
        let error = decoder
            .generate(&IDS, 4)
            .unwrap()
            .find_map(Result::err)
            .unwrap_or_else(|| panic!("{value}: no error"));
        assert!(matches!(error, Error::Logit { .. }), "{value}: {error}");
    }
}
