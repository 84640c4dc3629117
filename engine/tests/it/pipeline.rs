//! The overlapped pipeline on the emulator: which models it supports, its logits, and its tokens.

use warpwright_engine::{
    Decoder, GenerationEnd, KernelPath, Launch, Options, Prefer, StepKind, Tuning, Unsupported,
};
use warpwright_model::config::{Architecture, Hyperparameters};
use warpwright_model::layer::{Attention, Mixer};
use warpwright_model::shape::QUANTIZATIONS;
use warpwright_model::{Model, Outline, Shape};

use crate::decode::{bits, check_logits, emulator, generate, logits};
use crate::random::small;
use crate::synth::{
    BF16, F16, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
    Synth, synth,
};

const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[Q8_0],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 304,
};

/// Formats of the down projection and the embedding, of q and the LM head, of k, v, o, gate and up.
type Formats = [u32; 7];
const K_QUANTS: &Formats = &[Q6_K, Q4_K, Q4_K, Q6_K, Q8_0, Q4_K, Q4_K];
const Q5_K_M: &Formats = &[Q6_K, Q5_K, Q5_K, Q6_K, Q5_K, Q5_K, Q5_K];
const LEGACY: &Formats = &[Q5_1, Q4_1, Q5_0, Q5_1, Q5_0, Q4_1, Q4_1];
const TABLES: &Formats = &[IQ4_XS, IQ4_NL, IQ4_XS, Q5_K, MXFP4, IQ4_NL, IQ4_NL];
const HALVES: &Formats = &[F16, BF16, BF16, BF16, F16, BF16, BF16];

fn open(name: &str, case: Synth) -> Model {
    Model::open(&synth(case).save(&format!("pipeline-{name}.gguf"))).unwrap()
}

fn decoder(model: &Model, options: Options) -> Decoder {
    let decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    decoder
}

#[test]
fn logits_are_the_oracles() {
    let qwen2 = Synth {
        arch: "qwen2",
        tied: false,
        ..LLAMA
    };
    let qwen3 = Synth {
        arch: "qwen3",
        ..LLAMA
    };
    let cases = [
        ("llama", LLAMA),
        (
            "llama-k-quants",
            Synth {
                formats: K_QUANTS,
                scaled: true,
                ..LLAMA
            },
        ),
        (
            "llama-halves",
            Synth {
                formats: HALVES,
                heads: 8,
                kv_heads: 1,
                head_dim: 32,
                tied: false,
                ..LLAMA
            },
        ),
        (
            "llama-q4-0",
            Synth {
                formats: &[Q4_0],
                ..LLAMA
            },
        ),
        (
            "llama-q5-k-m",
            Synth {
                formats: Q5_K_M,
                ..LLAMA
            },
        ),
        (
            "qwen2-k-quants",
            Synth {
                formats: K_QUANTS,
                ..qwen2
            },
        ),
        (
            "qwen3-k-quants",
            Synth {
                formats: K_QUANTS,
                ..qwen3
            },
        ),
        (
            "qwen3-bf16",
            Synth {
                formats: &[BF16],
                heads: 6,
                kv_heads: 3,
                head_dim: 128,
                tied: false,
                ..qwen3
            },
        ),
        (
            "llama-legacy",
            Synth {
                formats: LEGACY,
                ..LLAMA
            },
        ),
        (
            "llama-q2-k",
            Synth {
                formats: &[Q2_K, Q2_K, Q2_K, Q3_K, Q3_K, Q2_K, Q2_K],
                ..LLAMA
            },
        ),
        (
            "qwen2-q3-k",
            Synth {
                formats: &[Q3_K],
                ..qwen2
            },
        ),
        (
            "qwen3-tables",
            Synth {
                formats: TABLES,
                ..qwen3
            },
        ),
        (
            "llama-mxfp4",
            Synth {
                formats: &[MXFP4],
                ..LLAMA
            },
        ),
        (
            "gemma3-k-quants",
            Synth {
                arch: "gemma3",
                formats: K_QUANTS,
                ..LLAMA
            },
        ),
        (
            "gemma3-bf16",
            Synth {
                arch: "gemma3",
                formats: &[BF16],
                kv_heads: 1,
                head_dim: 256,
                ..LLAMA
            },
        ),
        (
            "phi3-k-quants",
            Synth {
                arch: "phi3",
                formats: K_QUANTS,
                tied: false,
                ..LLAMA
            },
        ),
        (
            "phi3-q4-0",
            Synth {
                arch: "phi3",
                formats: &[Q4_0],
                head_dim: 96,
                heads: 8,
                kv_heads: 8,
                ..LLAMA
            },
        ),
        (
            "qwen2-f16",
            Synth {
                formats: &[F16],
                heads: 6,
                kv_heads: 3,
                head_dim: 128,
                ..qwen2
            },
        ),
    ];
    for (name, case) in cases {
        let model = open(name, case);
        let ids = [3, 300, 0, 17, 17, 255, 40, 8];
        let rows = logits(&mut decoder(&model, Options::new(16, Launch::Graph)), &ids);
        check_logits(&model, &KernelPath::Overlapped, &rows, &ids);
    }
}

#[test]
fn every_number_of_tokens_a_launch_gives_the_same_tokens() {
    let model = open(
        "launches",
        Synth {
            formats: K_QUANTS,
            ..LLAMA
        },
    );
    let prompt = [3, 300, 0, 17];
    let of = |launch, tokens_per_launch, limit| {
        let options = Options {
            tokens_per_launch,
            ..Options::new(24, launch)
        };
        generate(&mut decoder(&model, options), &prompt, limit)
    };
    let wanted = of(Launch::Eager, 1, 24);
    assert_eq!(wanted.len(), 21);
    for (launch, tokens, limit) in [
        (Launch::Graph, 1, 24),
        (Launch::Graph, 2, 13),
        (Launch::Graph, 8, 24),
        (Launch::Graph, 8, 7),
        (Launch::Plain, 8, 24),
        (Launch::Capture, 5, 24),
    ] {
        let found = of(launch, tokens, limit);
        assert_eq!(found, wanted[..found.len()], "{launch:?}, {tokens} tokens");
        assert_eq!(
            found.len(),
            wanted.len().min(limit as usize),
            "{launch:?}, {tokens} tokens"
        );
    }
}

/// Batched prefill, whose last batch is not full, against prefill token by token.
#[test]
fn prompts_are_prefilled_in_batches() {
    let qwen3 = Synth {
        arch: "qwen3",
        heads: 6,
        kv_heads: 3,
        head_dim: 128,
        ..LLAMA
    };
    let cases = [
        (
            "k-quants",
            Synth {
                formats: K_QUANTS,
                tied: false,
                ..LLAMA
            },
        ),
        (
            "three-bytes",
            Synth {
                formats: &[Q3_K, Q2_K, Q2_K, Q4_K, Q3_K, Q2_K, Q2_K],
                ..LLAMA
            },
        ),
        (
            "raw",
            Synth {
                formats: K_QUANTS,
                ..qwen3
            },
        ),
        (
            "halves",
            Synth {
                formats: &[BF16],
                arch: "qwen2",
                ..qwen3
            },
        ),
        (
            "normed",
            Synth {
                formats: K_QUANTS,
                arch: "gemma3",
                ..qwen3
            },
        ),
    ];
    let ids = [3, 300, 0, 17, 17, 255, 40, 8, 1, 2, 77];
    for (name, case) in cases {
        let model = open(&format!("batch-{name}"), case);

        // The same plan gives the same bits for every batch.
        let tuning = "2x4_first".parse().unwrap();
        let of = |prefill_batch, launch| Options {
            prefill_batch,
            tuning,
            ..Options::new(14, launch)
        };
        let mut alone = decoder(&model, of(1, Launch::Graph));
        let wanted = logits(&mut alone, &ids);
        let text = generate(&mut alone, &ids, 3);
        assert_eq!(alone.launches(StepKind::PrefillBatch), 0);
        let modes = [
            (8, Launch::Graph),
            (4, Launch::Eager),
            (2, Launch::Plain),
            (8, Launch::Capture),
        ];
        for (batch, launch) in modes.into_iter().take(if name == "raw" { 4 } else { 2 }) {
            let mut together = decoder(&model, of(batch, launch));
            let found = logits(&mut together, &ids);
            assert_eq!(
                bits(&found),
                bits(&wanted),
                "{name}: batch {batch}, {launch:?}"
            );
            assert_eq!(
                generate(&mut together, &ids, 3),
                text,
                "{name}: batch {batch}, {launch:?}"
            );
            assert!(
                together.launches(StepKind::PrefillBatch) > 5,
                "{name}: batch {batch}, {launch:?}"
            );
        }
    }
}

#[test]
fn prompts_of_every_length_are_prefilled() {
    let model = open(
        "lengths",
        Synth {
            formats: K_QUANTS,
            ..LLAMA
        },
    );
    let ids = [
        3, 300, 0, 17, 17, 255, 40, 8, 1, 2, 77, 20, 21, 22, 23, 24, 25, 26,
    ];
    let tuning = "2x4_first".parse().unwrap();
    let options = |prefill_batch| Options {
        prefill_batch,
        tuning,
        ..Options::new(18, Launch::Graph)
    };
    let [mut alone, mut together] = [1, 8].map(|batch| decoder(&model, options(batch)));
    for len in [1, 2, 3, 7, 8, 9, 10, 16, 17, 18] {
        let wanted = generate(&mut alone, &ids[..len], 4);
        assert_eq!(
            generate(&mut together, &ids[..len], 4),
            wanted,
            "{len} tokens"
        );
    }
}

#[test]
fn a_text_ends_inside_a_launch() {
    let mut model = open("ends", LLAMA);
    let prompt = [3, 300, 0, 17];
    let wanted = generate(
        &mut decoder(&model, Options::new(40, Launch::Graph)),
        &prompt,
        12,
    );
    let at = (1..12)
        .find(|&i| !wanted[..i].contains(&wanted[i]))
        .unwrap();
    model.outline.stop = vec![wanted[at]];
    let mut decoder = decoder(&model, Options::new(40, Launch::Graph));
    assert_eq!(generate(&mut decoder, &prompt, 30), wanted[..=at]);
    assert_eq!(generate(&mut decoder, &prompt, 30), wanted[..=at]);
    assert_eq!(end(&mut decoder, &prompt, 30), GenerationEnd::Text);
}

/// Why the tokens end.
fn end(decoder: &mut Decoder, prompt: &[u32], limit: u32) -> GenerationEnd {
    let mut tokens = decoder.generate(prompt, limit).unwrap();
    for token in tokens.by_ref() {
        token.unwrap();
    }
    tokens.end()
}

#[test]
fn tokens_end_with_their_limit_or_with_the_context() {
    let mut decoder = decoder(&open("why", LLAMA), Options::new(8, Launch::Graph));
    // Four positions take the prompt; the last of them and each after makes a token.
    for (limit, why) in [
        (4, GenerationEnd::Limit),
        (5, GenerationEnd::Limit),
        (6, GenerationEnd::ContextFull),
    ] {
        assert_eq!(end(&mut decoder, &[3, 300, 0, 17], limit), why, "{limit}");
    }
}

#[test]
fn every_tuning_gives_the_same_logits() {
    let model = open(
        "tunings",
        Synth {
            formats: K_QUANTS,
            ..LLAMA
        },
    );
    let ids = [3, 300, 0];
    let mut decoder = decoder(&model, Options::new(8, Launch::Graph));
    for text in [
        "4x1_first",
        "2x2_first_prefetch1,head=8x1_first,shared=80000",
    ] {
        let options = Options {
            tuning: text.parse().unwrap(),
            ..Options::new(8, Launch::Graph)
        };
        decoder = decoder.with_options(&model.outline, options).unwrap();
        let rows = logits(&mut decoder, &ids);
        check_logits(&model, &KernelPath::Overlapped, &rows, &ids);
        let eager = Options {
            launch: Launch::Eager,
            ..options
        };
        decoder = decoder.with_options(&model.outline, eager).unwrap();
        assert_eq!(bits(&logits(&mut decoder, &ids)), bits(&rows), "{text}");
    }

    let options = Options {
        tuning: "shared=9000".parse().unwrap(),
        ..Options::new(8, Launch::Graph)
    };
    let message = decoder
        .with_options(&model.outline, options)
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("the LM head with rows of 256 does not fit 9000 bytes"),
        "{message}"
    );
}

/// The attention of the first layer.
fn attention(outline: &mut Outline) -> &mut Attention {
    let Mixer::Attention(attention) = &mut outline.config.layers[0].mixer;
    attention
}

/// A change to a supported model, and the reason why the pipeline then does not support it.
type Refusal = (Synth, fn(&mut Outline), &'static str);

#[test]
fn says_why_the_pipeline_does_not_support_a_model() {
    let none = |_: &mut Outline| ();
    #[rustfmt::skip] // one refusal a line
    let cases: [Refusal; 9] = [
        (Synth { vocab: 301, ..LLAMA }, none, "the vocabulary size 301 is not a multiple of 16"),
        (Synth { head_dim: 24, ..LLAMA }, none, "head_dim 24 is not a multiple of 16"),
        (Synth { head_dim: 32, heads: 34, ..LLAMA }, none, "17 query heads share a KV head, at most 16 are supported"),
        (LLAMA, |outline| attention(outline).head_dim = 272, "head_dim 272 is above 256"),
        (LLAMA, |outline| outline.config.ropes[0].dim = 32, "partial rotary embedding (rope_dim 32 of head_dim 64) is not supported"),
        (LLAMA, |outline| outline.config.ropes.push(outline.config.ropes[0]), "two rotary bases without head norms are not supported"),
        (Synth { formats: &[0], ..LLAMA }, none, "token_embd.weight is F32, which has no tiled layout"),
        (Synth { formats: &[Q8_0, Q8_0, F16], ..LLAMA }, none, "blk.0.attn_q.weight is Q8_0 and blk.0.attn_k.weight is F16: their activations are encoded differently"),
        (Synth { formats: &[Q8_0, Q8_0, Q8_0, Q8_0, Q8_0, Q4_K, Q6_K], ..LLAMA }, none, "blk.0.ffn_gate.weight is Q4_K and blk.0.ffn_up.weight is Q6_K: the two must have the same format"),
    ];
    let context = emulator();
    for (i, (case, edit, wanted)) in cases.into_iter().enumerate() {
        let mut outline = open(&format!("refused-{i}"), case).outline;
        edit(&mut outline);
        let path = KernelPath::for_model(&outline, context.device(), Tuning::default());
        assert_eq!(path.to_string(), format!("simple kernels: {wanted}"));
    }
}

/// The rows of the output projection have 96 weights, and tiles have 256 columns. Prompts are then
/// prefilled token by token.
#[test]
fn rows_that_end_inside_a_tile_are_padded() {
    let case = Synth {
        heads: 6,
        head_dim: 16,
        kv_heads: 3,
        ..LLAMA
    };
    let model = open("padded", case);
    let options = Options {
        prefill_batch: 8,
        ..Options::new(8, Launch::Graph)
    };
    let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    assert_eq!(decoder.prefill_batch(), 1);
    let rows = logits(&mut decoder, &[3, 300, 0]);
    check_logits(&model, decoder.path(), &rows, &[3, 300, 0]);
}

#[test]
fn the_simple_kernels_can_be_requested() {
    let model = open("requested", LLAMA);
    let options = Options {
        prefer: Prefer::Simple,
        ..Options::new(8, Launch::Graph)
    };
    let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
    assert_eq!(
        *decoder.path(),
        KernelPath::Simple {
            reason: Unsupported::Requested
        }
    );
    let rows = logits(&mut decoder, &[3, 300, 0]);
    check_logits(&model, decoder.path(), &rows, &[3, 300, 0]);
}

/// Random weights are tiles too, and every round and mode gives the same tokens.
#[test]
fn random_weights_decode_in_rounds() {
    for (architecture, name) in [
        (Architecture::QWEN2, "q4_k_m"),
        (Architecture::QWEN2, "bf16"),
        (Architecture::QWEN3, "q5_k_m"),
        (Architecture::LLAMA, "q4_0"),
    ] {
        let shape = small(architecture, true);

        // The LM head's tiles have 16 rows.
        let shape = Shape {
            hyperparameters: Hyperparameters {
                vocab: 304,
                ..shape.hyperparameters
            },
            ..shape
        };
        let quantization = QUANTIZATIONS.into_iter().find(|q| q.name == name).unwrap();
        let outline = Outline::of(&shape, quantization).unwrap();
        let mut decoder =
            Decoder::random(&emulator(), &outline, Options::new(110, Launch::Graph)).unwrap();
        assert_eq!(*decoder.path(), KernelPath::Overlapped, "{name}");
        let graph = decoder.round(100, 10).unwrap().tokens;
        let mut eager = decoder
            .with_options(&outline, Options::new(110, Launch::Eager))
            .unwrap();
        assert_eq!(eager.round(100, 10).unwrap().tokens, graph, "{name}");
    }
}
