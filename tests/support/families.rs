//! Every model family against Hugging Face transformers in float64.
//!
//! The models are random and tiny: [`MODELS`] says what each is made of. `cargo run -p warpwright-model --example
//! families -- DIR` writes them as GGUF files, `engine/tests/data/families.py DIR` lets transformers read and run those
//! files, and `engine/tests/data/families.json` keeps the logits that it gave, with the checksum of each file.

use crate::splitmix::Random;
use crate::write::{File, Val, f32s};

/// ggml's number of the type of all matrices: Q8_0.
const Q8_0: u32 = 8;
/// Weights and bytes of one of its blocks.
const BLOCK: (usize, usize) = (32, 34);

const HIDDEN: u32 = 256;
const FEED_FORWARD: u32 = 256;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_DIM: u32 = 64;
const VOCAB: u32 = 96;
/// Positions of the random models.
const CONTEXT: u32 = 64;

/// What a random model is made of. Its name is that of its file and of its entry in `families.json`.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) family: &'static str,
    layers: u32,
    /// Positions that the decoder has room for.
    pub(crate) room: u32,
    /// Whether the embedding serves as LM head.
    tied: bool,
    /// Keys below the family's name besides those that every model has.
    keys: &'static [(&'static str, Key)],
    /// Vectors besides the weights of the blocks: name, length, and the first element and the step to the next.
    vectors: &'static [(&'static str, u32, [f32; 2])],
}

/// A metadata value.
enum Key {
    U32(u32),
    F32(f32),
    Str(&'static str),
}

/// A weight of a block: its name, and rows and columns of a matrix or the length of a vector.
type Weight = (&'static str, &'static [u32]);

const Q_ROWS: u32 = HEADS * HEAD_DIM;
const KV_ROWS: u32 = KV_HEADS * HEAD_DIM;

/// The weights of a block of every family that keeps Q, K, V, gate and up apart.
const APART: [Weight; 9] = [
    ("attn_norm.weight", &[HIDDEN]),
    ("attn_q.weight", &[Q_ROWS, HIDDEN]),
    ("attn_k.weight", &[KV_ROWS, HIDDEN]),
    ("attn_v.weight", &[KV_ROWS, HIDDEN]),
    ("attn_output.weight", &[HIDDEN, Q_ROWS]),
    ("ffn_norm.weight", &[HIDDEN]),
    ("ffn_gate.weight", &[FEED_FORWARD, HIDDEN]),
    ("ffn_up.weight", &[FEED_FORWARD, HIDDEN]),
    ("ffn_down.weight", &[HIDDEN, FEED_FORWARD]),
];
const BIASES: [Weight; 3] = [
    ("attn_q.bias", &[Q_ROWS]),
    ("attn_k.bias", &[KV_ROWS]),
    ("attn_v.bias", &[KV_ROWS]),
];
const HEAD_NORMS: [Weight; 2] = [
    ("attn_q_norm.weight", &[HEAD_DIM]),
    ("attn_k_norm.weight", &[HEAD_DIM]),
];
const NORMS_AFTER: [Weight; 2] = [
    ("post_attention_norm.weight", &[HIDDEN]),
    ("post_ffw_norm.weight", &[HIDDEN]),
];
const FUSED: [Weight; 6] = [
    ("attn_norm.weight", &[HIDDEN]),
    ("attn_qkv.weight", &[Q_ROWS + 2 * KV_ROWS, HIDDEN]),
    ("attn_output.weight", &[HIDDEN, Q_ROWS]),
    ("ffn_norm.weight", &[HIDDEN]),
    ("ffn_up.weight", &[2 * FEED_FORWARD, HIDDEN]),
    ("ffn_down.weight", &[HIDDEN, FEED_FORWARD]),
];

/// The weights of a block.
fn weights(family: &str) -> Vec<Weight> {
    match family {
        "qwen2" => [&APART[..], &BIASES].concat(),
        "qwen3" => [&APART[..], &HEAD_NORMS].concat(),
        "gemma3" => [&APART[..], &HEAD_NORMS, &NORMS_AFTER].concat(),
        "phi3" => FUSED.to_vec(),
        _ => APART.to_vec(),
    }
}

/// The models.
pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "llama",
        family: "llama",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[("rope.freq_base", Key::F32(500.0))],
        vectors: &[],
    },
    Model {
        name: "llama-linear",
        family: "llama",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[("rope.scaling.factor", Key::F32(4.0))],
        vectors: &[],
    },
    Model {
        name: "llama3-rope",
        family: "llama",
        layers: 2,
        room: CONTEXT,
        tied: true,
        keys: &[("rope.freq_base", Key::F32(500.0))],
        vectors: &[("rope_freqs.weight", HEAD_DIM / 2, [1.0, 0.125])],
    },
    Model {
        name: "qwen2",
        family: "qwen2",
        layers: 2,
        room: CONTEXT,
        tied: true,
        keys: &[("rope.freq_base", Key::F32(500.0))],
        vectors: &[],
    },
    Model {
        name: "qwen3",
        family: "qwen3",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[("rope.freq_base", Key::F32(500.0))],
        vectors: &[],
    },
    Model {
        name: "gemma3",
        family: "gemma3",
        layers: 7,
        room: CONTEXT,
        tied: true,
        keys: &[
            ("rope.freq_base", Key::F32(1e6)),
            ("attention.sliding_window", Key::U32(8)),
        ],
        vectors: &[],
    },
    Model {
        name: "gemma3-linear",
        family: "gemma3",
        layers: 6,
        room: CONTEXT,
        tied: true,
        keys: &[
            ("rope.freq_base", Key::F32(1e6)),
            ("rope.scaling.type", Key::Str("linear")),
            ("rope.scaling.factor", Key::F32(8.0)),
            ("attention.sliding_window", Key::U32(5)),
        ],
        vectors: &[],
    },
    Model {
        name: "phi3",
        family: "phi3",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[("rope.freq_base", Key::F32(500.0))],
        vectors: &[],
    },
    Model {
        name: "phi3-window",
        family: "phi3",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[
            ("rope.freq_base", Key::F32(500.0)),
            ("attention.sliding_window", Key::U32(6)),
        ],
        vectors: &[],
    },
    Model {
        name: "phi3-longrope",
        family: "phi3",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[
            ("rope.freq_base", Key::F32(500.0)),
            (
                "rope.scaling.original_context_length",
                Key::U32(CONTEXT / 4),
            ),
            // sqrt(1 + ln(4) / ln(16)), as transformers computes it of these lengths.
            ("rope.scaling.attn_factor", Key::F32(1.224_744_9)),
        ],
        vectors: &[
            ("rope_factors_long.weight", HEAD_DIM / 2, [1.0, 0.25]),
            ("rope_factors_short.weight", HEAD_DIM / 2, [1.0, 0.0625]),
        ],
    },
    Model {
        name: "phi3-partial",
        family: "phi3",
        layers: 2,
        room: CONTEXT,
        tied: false,
        keys: &[
            ("rope.dimension_count", Key::U32(HEAD_DIM * 3 / 4)),
            ("rope.freq_base", Key::F32(500.0)),
            (
                "rope.scaling.original_context_length",
                Key::U32(CONTEXT / 4),
            ),
            // sqrt(1 + ln(4) / ln(16)), as transformers computes it of these lengths.
            ("rope.scaling.attn_factor", Key::F32(1.224_744_9)),
        ],
        vectors: &[
            ("rope_factors_long.weight", HEAD_DIM * 3 / 8, [1.0, 0.25]),
            ("rope_factors_short.weight", HEAD_DIM * 3 / 8, [1.0, 0.0625]),
        ],
    },
    Model {
        name: "phi3-shortrope",
        family: "phi3",
        layers: 2,
        // As many positions as there are tokens, and fewer than the original context.
        room: 20,
        tied: false,
        keys: &[
            ("rope.freq_base", Key::F32(500.0)),
            (
                "rope.scaling.original_context_length",
                Key::U32(CONTEXT / 2),
            ),
            // sqrt(1 + ln(2) / ln(32)), as transformers computes it of these lengths.
            ("rope.scaling.attn_factor", Key::F32(1.095_445_1)),
        ],
        vectors: &[
            ("rope_factors_long.weight", HEAD_DIM / 2, [1.0, 0.25]),
            ("rope_factors_short.weight", HEAD_DIM / 2, [1.0, 0.0625]),
        ],
    },
];

impl Model {
    /// The file.
    pub(crate) fn file(&self) -> File {
        let mut make = Make {
            file: self.metadata(),
            random: Random(11),
        };
        make.weight("token_embd.weight", &[VOCAB, HIDDEN]);
        for layer in 0..self.layers {
            for (name, shape) in weights(self.family) {
                make.weight(&format!("blk.{layer}.{name}"), shape);
            }
        }

        make.weight("output_norm.weight", &[HIDDEN]);
        if !self.tied {
            make.weight("output.weight", &[VOCAB, HIDDEN]);
        }

        let vector = |file: File, &(name, n, [first, step]): &(&str, u32, [f32; 2])| {
            file.tensor(
                name,
                &[n.into()],
                0,
                f32s((0..n).map(|i| first + step * i as f32)),
            )
        };
        self.vectors.iter().fold(make.file, vector)
    }

    fn metadata(&self) -> File {
        let sizes = [
            ("block_count", self.layers),
            ("embedding_length", HIDDEN),
            ("feed_forward_length", FEED_FORWARD),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("attention.key_length", HEAD_DIM),
            ("attention.value_length", HEAD_DIM),
            ("rope.dimension_count", HEAD_DIM),
            ("context_length", CONTEXT),
            ("vocab_size", VOCAB),
        ];
        let key = |name: &str| format!("{}.{name}", self.family);
        let file = File::default()
            .pair("general.architecture", Val::Str(self.family.into()))
            .pair("general.name", Val::Str(self.name.into()))
            .pair(&key("attention.layer_norm_rms_epsilon"), Val::F32(1e-5));
        let file = sizes
            .iter()
            .fold(file, |file, &(name, n)| file.pair(&key(name), Val::U32(n)));
        self.keys.iter().fold(file, |file, (name, value)| {
            let value = match value {
                Key::U32(n) => Val::U32(*n),
                Key::F32(x) => Val::F32(*x),
                Key::Str(s) => Val::Str((*s).into()),
            };
            file.pair(&key(name), value)
        })
    }
}

struct Make {
    file: File,
    random: Random,
}

impl Make {
    /// A matrix of rows and columns, a bias, or a norm's weights, which are about one.
    fn weight(&mut self, name: &str, shape: &[u32]) {
        let count = shape.iter().product::<u32>() as usize;
        let r = &mut self.random;
        let (kind, data) = match shape {
            [_, n] => (Q8_0, blocks(r, count, 1.7 / (*n as f32).sqrt())),
            _ if name.ends_with("bias") => (0, f32s((0..count).map(|_| r.unit()))),
            _ => (0, f32s((0..count).map(|_| 1.0 + r.unit() / 2.0))),
        };
        let dims: Vec<u64> = shape.iter().rev().map(|&n| n.into()).collect();
        self.file = std::mem::take(&mut self.file).tensor(name, &dims, kind, data);
    }
}

/// Random blocks of Q8_0, their weights up to `size`.
fn blocks(r: &mut Random, count: usize, size: f32) -> Vec<u8> {
    let scale = half::f16::from_f32(size / 127.0).to_le_bytes();
    let block = |_| {
        let mut block: Vec<u8> = (0..BLOCK.1).map(|_| r.bits() as u8).collect();
        block[..2].copy_from_slice(&scale);
        block
    };
    (0..count / BLOCK.0).flat_map(block).collect()
}

/// The CRC-32 of zlib and PNG: <https://www.w3.org/TR/png/#D-CRCAppendix>.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| {
        if crc & 1 == 1 {
            0xedb8_8320 ^ (crc >> 1)
        } else {
            crc >> 1
        }
    };
    !bytes
        .iter()
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}
