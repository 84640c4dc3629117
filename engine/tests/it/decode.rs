//! Whole models on the emulator, against the reference and the oracle.

use warpwright_driver::{Context, Driver};
use warpwright_engine::{Decoder, KernelPath, Launch, Options, StepKind};
use warpwright_model::Model;

use crate::oracle::{self, Keep};
use crate::synth::{Synth, synth};
use crate::write::Val;
use crate::{ids, models, reference};

pub(crate) fn emulator() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.devices().unwrap()[0]).unwrap()
}

/// The small model in one of the reference's quantizations.
fn open(quantization: &str) -> Model {
    let (_, path) = models()
        .into_iter()
        .find(|(name, _)| *name == quantization)
        .unwrap();
    Model::open(&path).unwrap()
}

pub(crate) fn decoder(model: &Model, ctx: u32, launch: Launch) -> Decoder {
    Decoder::new(&emulator(), model, Options::new(ctx, launch), |_| ()).unwrap()
}

pub(crate) fn generate(decoder: &mut Decoder, prompt: &[u32], limit: u32) -> Vec<u32> {
    decoder
        .generate(prompt, limit)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

pub(crate) fn logits(decoder: &mut Decoder, ids: &[u32]) -> Vec<Vec<f32>> {
    decoder
        .logits(ids)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

/// The error that making or using a decoder ends in.
fn refusal(model: &Model, ctx: u32, prompt: &[u32]) -> String {
    let options = Options::new(ctx, Launch::Eager);
    match Decoder::new(&emulator(), model, options, |_| ()) {
        Err(error) => error.to_string(),
        Ok(mut decoder) => match decoder.generate(prompt, 1) {
            Err(error) => error.to_string(),
            Ok(mut tokens) => tokens.next().unwrap().unwrap_err().to_string(),
        },
    }
}

/// Compares all logits with those of float64, and each row with those of float64 with its cache in f16, which
/// rounds by far the most. A number that rounds up here and down there moves a row by up to 3e-4. The pipeline also
/// rounds activations, to 16 bits against quantized weights.
pub(crate) fn check_logits(model: &Model, path: &KernelPath, rows: &[Vec<f32>], ids: &[u32]) {
    let bound = if matches!(path, KernelPath::Simple { .. }) {
        5e-4
    } else {
        1e-3
    };
    compare_logits(model, rows, ids, [1e-3, bound]);
}

/// The same with other bounds: of all logits, and of a row.
pub(crate) fn compare_logits(model: &Model, rows: &[Vec<f32>], ids: &[u32], bounds: [f64; 2]) {
    let all = |rows: &[Vec<f64>]| rows.concat();
    let found = numbers(rows);
    let whole = distance(&all(&found), &all(&oracle::logits(model, ids, Keep::Exact)));
    assert!(whole <= bounds[0], "the relative error is {whole:e}");
    for (position, wanted) in oracle::logits(model, ids, Keep::Half).iter().enumerate() {
        let row = distance(&found[position], wanted);
        assert!(
            row <= bounds[1],
            "after position {position} the relative error is {row:e}"
        );
    }
}

pub(crate) fn numbers(rows: &[Vec<f32>]) -> Vec<Vec<f64>> {
    rows.iter()
        .map(|row| row.iter().map(|x| f64::from(*x)).collect())
        .collect()
}

/// The L2 norm of the difference relative to that of what is wanted.
pub(crate) fn distance(found: &[f64], wanted: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut std::iter::zip(found, wanted).map(|(f, w)| f - w)) / norm(&mut wanted.iter().copied())
}

/// Writes on from each prompt, by so many tokens, as far as the reference leaves no doubt.
fn check_greedy(quantization: &str, tokens: usize) {
    let model = open(quantization);
    let mut decoder = decoder(&model, 64, Launch::Graph);
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    for run in reference()[quantization].as_array().unwrap() {
        let (prompt, wanted) = (ids(&run["prompt_ids"]), ids(&run["greedy_ids"]));
        let margins = run["top8"].as_array().unwrap().iter().map(|top| {
            let logit = |i: usize| top[i][1].as_f64().unwrap();
            logit(0) - logit(1)
        });

        // From the first doubtful token on the two texts may differ.
        let sure = margins
            .take(tokens)
            .take_while(|margin| *margin > 1e-3)
            .count();
        let found = generate(&mut decoder, &prompt, tokens as u32);
        assert_eq!(
            found[..sure],
            wanted[..sure],
            "{quantization}, {}",
            run["prompt"]
        );
    }
}

#[test]
fn greedy_tokens_are_the_references_in_f16() {
    check_greedy("F16", 6);
}

#[test]
fn greedy_tokens_are_the_references_in_q8_0() {
    check_greedy("Q8_0", 6);
}

#[test]
fn greedy_tokens_are_the_references_in_q4_0() {
    check_greedy("Q4_0", 6);
}

#[test]
fn greedy_tokens_are_the_references_in_q4_k_m() {
    check_greedy("Q4_K_M", 24);
}

#[test]
fn logits_are_the_oracles_in_every_mode() {
    for (quantization, path) in models() {
        let model = Model::open(&path).unwrap();
        let run = &reference()[quantization][0];
        let ids = [ids(&run["prompt_ids"]), ids(&run["greedy_ids"])].concat();
        let modes = [Launch::Graph, Launch::Plain, Launch::Capture, Launch::Eager];
        let [mut graph, mut plain, mut captured, mut eager] =
            modes.map(|mode| decoder(&model, 64, mode));
        let rows = logits(&mut graph, &ids[..4]);
        check_logits(&model, graph.path(), &rows, &ids[..4]);
        assert_eq!(
            bits(&rows),
            bits(&logits(&mut eager, &ids[..4])),
            "{quantization}: graph and eager"
        );
        assert_eq!(
            bits(&rows[..2]),
            bits(&logits(&mut plain, &ids[..2])),
            "{quantization}: plain"
        );
        assert_eq!(
            bits(&rows[..2]),
            bits(&logits(&mut captured, &ids[..2])),
            "{quantization}: captured"
        );
        for kind in [StepKind::Decode, StepKind::Prefill] {
            generate(&mut eager, &ids[..2], 1);
            assert_eq!(
                graph.launches(kind),
                eager.launches(kind),
                "{quantization}: {kind:?}"
            );
            assert_eq!(
                captured.launches(kind),
                eager.launches(kind),
                "{quantization}: {kind:?} captured"
            );
        }
    }
}

pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|x| x.to_bits()).collect()
}

/// The plainest model.
const ONE: Synth = Synth {
    arch: "llama",
    formats: &[0],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 301,
};

/// The number formats by their numbers in ggml.
const FORMATS: &[u32] = &[0, 1, 30, 2, 3, 6, 7, 8, 12, 13, 14, 10, 11, 20, 23, 39];

#[test]
fn every_architecture_and_format_agrees_with_the_oracle() {
    let llama = Synth {
        arch: "llama",
        formats: FORMATS,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        tied: true,
        scaled: false,
        vocab: 301,
    };
    let qwen2 = Synth {
        arch: "qwen2",
        tied: false,
        ..llama
    };
    let qwen3 = Synth {
        arch: "qwen3",
        ..llama
    };
    let cases = [
        ("llama-tied", llama),
        (
            "llama-scaled",
            Synth {
                tied: false,
                scaled: true,
                ..llama
            },
        ),
        ("qwen2", qwen2),
        (
            "qwen2-wide-heads",
            Synth {
                heads: 6,
                kv_heads: 1,
                head_dim: 128,
                ..qwen2
            },
        ),
        ("qwen3", qwen3),
        (
            "qwen3-wide-heads",
            Synth {
                kv_heads: 4,
                head_dim: 128,
                tied: false,
                ..qwen3
            },
        ),
        (
            "gemma3",
            Synth {
                arch: "gemma3",
                ..llama
            },
        ),
        (
            "phi3",
            Synth {
                arch: "phi3",
                tied: false,
                ..llama
            },
        ),
        (
            "llama-one-format",
            Synth {
                formats: &[14],
                kv_heads: 4,
                ..llama
            },
        ),
    ];
    for (name, case) in cases {
        let model = Model::open(&synth(case).save(&format!("synth-{name}.gguf"))).unwrap();
        let ids = [3, 300, 0, 17, 17];
        let mut decoder = decoder(&model, 16, Launch::Graph);
        let rows = logits(&mut decoder, &ids);
        check_logits(&model, decoder.path(), &rows, &ids);
    }
}

#[test]
fn a_decoder_starts_anew() {
    let model = Model::open(&crate::asset()).unwrap();
    let mut decoder = decoder(&model, 32, Launch::Graph);
    let first = generate(&mut decoder, &[0, 389, 1166], 4);
    generate(&mut decoder, &[0, 951], 2);
    drop(decoder.generate(&[0, 951], 20).unwrap().next());
    assert_eq!(generate(&mut decoder, &[0, 389, 1166], 4), first);
}

#[test]
fn a_text_ends_with_a_stop_token_or_the_context() {
    let mut model = Model::open(&crate::asset()).unwrap();
    let wanted = ids(&reference()["Q4_K_M"][0]["greedy_ids"]);
    let prompt = ids(&reference()["Q4_K_M"][0]["prompt_ids"]);
    model.outline.stop = vec![wanted[2]];
    let mut decoder = decoder(&model, 8, Launch::Graph);
    assert_eq!(generate(&mut decoder, &prompt, 48), wanted[..3]);
    assert_eq!(generate(&mut decoder, &prompt, 2), wanted[..2]);
    assert_eq!(
        generate(&mut decoder, &[prompt, wanted[..3].to_vec()].concat(), 48),
        wanted[3..4]
    );
}

#[test]
fn refuses_what_it_has_no_room_for() {
    let model = Model::open(&crate::asset()).unwrap();
    assert_eq!(
        refusal(&model, 0, &[1]),
        "invalid context of 0 positions: this model supports 1 to 2048"
    );
    assert_eq!(
        refusal(&model, 2049, &[1]),
        "invalid context of 2049 positions: this model supports 1 to 2048"
    );
    assert_eq!(
        refusal(&model, 8, &[]),
        "the prompt is empty: a model needs at least one token to continue from"
    );
    assert_eq!(
        refusal(&model, 8, &[1; 9]),
        "the prompt has 9 tokens, but the context holds 8"
    );
    let outside = "token 1 of the prompt is 4096, but the vocabulary has 4096 tokens";
    assert_eq!(refusal(&model, 8, &[1, 4096]), outside);
}

#[test]
fn compares_the_memory_it_needs_with_what_is_free() {
    let ctx = 1 << 24;
    let file = synth(ONE).pair("llama.context_length", Val::U32(ctx));
    let model = Model::open(&file.save("synth-long.gguf")).unwrap();
    let message = refusal(&model, ctx, &[1]);
    let wanted = "the model needs 16.1 GiB of device memory (weights 4.8 MiB, cache of 16777216 positions 16.0 GiB, \
                  work 64.3 MiB), but ";
    assert!(message.starts_with(wanted), "{message}");
    assert!(
        message.contains(" of 16.0 GiB are free, enough for a context of 16"),
        "{message}"
    );
}

#[test]
fn draws_the_graph() {
    let model = Model::open(&crate::asset()).unwrap();
    let decoder = decoder(&model, 16, Launch::Graph);
    let dot = decoder.dot(StepKind::Decode).unwrap();
    assert!(dot.starts_with("digraph"), "{dot}");
    assert!(dot.contains("k_cache.7"), "{dot}");
}
