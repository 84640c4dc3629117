//! Rotary embedding as a file's keys have it, on both paths, against the oracle, which reads the keys itself.

use warpwright_engine::{Decoder, Launch, Options, Prefer};
use warpwright_model::Model;
use warpwright_model::rope::{Rope, Scaling, Yarn, YarnBounds};

use crate::decode::{check_logits, compare_logits, emulator, logits};
use crate::synth::{Q8_0, Synth, synth};
use crate::write::{File, Val};

const MODEL: Synth = Synth {
    arch: "llama",
    formats: &[Q8_0],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 304,
};

fn file(arch: &'static str, pairs: &[(&str, Val)]) -> File {
    let file = synth(Synth { arch, ..MODEL });
    pairs.iter().fold(file, |file, (name, value)| {
        file.pair(&format!("{arch}.rope.{name}"), value.clone())
    })
}

fn text(s: &str) -> Val {
    Val::Str(s.into())
}

/// Key-value pairs under `rope.`
type Pairs = Vec<(&'static str, Val)>;

/// Scalings by name.
fn cases() -> Vec<(&'static str, Pairs)> {
    let (factor, linear) = (
        ("scaling.factor", Val::F32(4.0)),
        ("scaling.type", text("linear")),
    );
    let yarn = ("scaling.type", text("yarn"));
    vec![
        ("factor-alone", vec![factor.clone()]),
        ("old-factor-alone", vec![("scale_linear", Val::F32(4.0))]),
        ("linear", vec![linear.clone(), factor.clone()]),
        (
            "linear-old-factor",
            vec![linear.clone(), ("scale_linear", Val::F32(4.0))],
        ),
        (
            "attention-factor",
            vec![("scaling.attn_factor", Val::F32(1.5))],
        ),
        (
            "none-attention-factor",
            vec![
                ("scaling.type", text("none")),
                ("scaling.attn_factor", Val::F32(0.5)),
            ],
        ),
        (
            "yarn",
            vec![
                yarn.clone(),
                factor.clone(),
                ("scaling.original_context_length", Val::U32(16)),
            ],
        ),
        (
            "yarn-attention-factor",
            vec![
                yarn.clone(),
                factor.clone(),
                ("scaling.original_context_length", Val::U32(32)),
                ("scaling.attn_factor", Val::F32(0.75)),
            ],
        ),
        (
            "yarn-betas",
            vec![
                yarn,
                factor,
                ("scaling.yarn_beta_fast", Val::F32(8.0)),
                ("scaling.yarn_beta_slow", Val::F32(0.25)),
            ],
        ),
    ]
}

#[test]
fn every_scaling_is_the_oracles_on_both_paths() {
    let ids = [3, 300, 0, 17, 17, 255, 40, 8];
    let run = |model: &Model, prefer| {
        let options = Options {
            prefer,
            ..Options::new(16, Launch::Graph)
        };
        let mut decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
        let rows = logits(&mut decoder, &ids);

        // A magnitude is left out of the cache, so that its numbers are rounded elsewhere than the oracle's.
        match model.outline.config.ropes[0].magnitude {
            1.0 => check_logits(model, decoder.path(), &rows, &ids),
            _ => compare_logits(model, &rows, &ids, [1e-3; 2]),
        }

        rows
    };
    for arch in ["llama", "qwen2"] {
        let plain = Model::open(&file(arch, &[]).save(&format!("rope-{arch}.gguf"))).unwrap();
        let plain = run(&plain, Prefer::Fast);
        for (name, pairs) in cases() {
            let model =
                Model::open(&file(arch, &pairs).save(&format!("rope-{arch}-{name}.gguf"))).unwrap();
            let fast = run(&model, Prefer::Fast);
            run(&model, Prefer::Simple);
            let moved = std::iter::zip(&fast[7], &plain[7])
                .map(|(a, b)| (a - b).abs())
                .fold(0f32, f32::max);
            assert!(
                moved > 0.01,
                "{arch}, {name}: no logit moved by more than {moved}"
            );
        }
    }
}

#[test]
fn neutral_values_change_nothing() {
    let plain = Model::open(&file("llama", &[]).save("rope-plain.gguf"))
        .unwrap()
        .outline
        .config;
    for (name, pairs) in [
        ("factor-0", vec![("scaling.factor", Val::F32(0.0))]),
        (
            "factor-1",
            vec![
                ("scaling.type", text("linear")),
                ("scaling.factor", Val::F32(1.0)),
            ],
        ),
        // As in llama.cpp, the new key counts where both are there.
        (
            "both",
            vec![
                ("scaling.factor", Val::F32(1.0)),
                ("scale_linear", Val::F32(8.0)),
            ],
        ),
        (
            "none",
            vec![
                ("scaling.type", text("none")),
                ("scaling.factor", Val::F32(8.0)),
            ],
        ),
        ("finetuned", vec![("scaling.finetuned", Val::Bool(true))]),
        ("magnitude", vec![("scaling.attn_factor", Val::F32(1.0))]),
        (
            "original",
            vec![("scaling.original_context_length", Val::U32(8))],
        ),
    ] {
        let model = Model::open(&file("llama", &pairs).save(&format!("rope-{name}.gguf"))).unwrap();
        assert_eq!(model.outline.config, plain, "{name}");
    }
}

/// Qwen 2.5 and Qwen 3 with YaRN over 131072 positions, by hand: pairs below 23 rotate more than 32 times over 32768
/// positions and keep their frequency, those from 40 on rotate less than once and have a quarter of it.
#[test]
fn yarn_of_real_models() {
    let yarn = Yarn {
        bounds: YarnBounds::Whole,
        factor: 4.0,
        original_context: 32768,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    let plain = Rope::plain(128, 1e6);
    let scaled = Rope {
        scaling: Scaling::Yarn(yarn),
        ..plain
    };
    let share = |i: usize| scaled.revolutions(None)[i] / plain.revolutions(None)[i];
    for (i, expected) in [
        (0, 1.0),
        (23, 1.0),
        (40, 0.25),
        (63, 0.25),
        (24, 1.0 - 0.75 / 17.0),
    ] {
        assert!(
            (share(i) - expected).abs() < 1e-12,
            "{i}: {}, not {expected}",
            share(i)
        );
    }
}

#[test]
fn refuses_what_it_cannot_scale() {
    let yarn = ("scaling.type", text("yarn"));
    for (i, (pairs, message)) in [
        (
            vec![("scaling.type", text("longrope"))],
            "rope scaling \"longrope\" is not supported; supported: none, linear, yarn, and per-pair factors in \
             rope_freqs.weight",
        ),
        (
            vec![("scaling.factor", Val::F32(-2.0))],
            "key \"llama.rope.scaling.factor\" is -2; expected a finite floating-point number from zero up",
        ),
        (
            vec![("scaling.attn_factor", Val::U32(1))],
            "key \"llama.rope.scaling.attn_factor\" is an unsigned integer, 1; \
             expected a finite floating-point number above zero",
        ),
        (
            vec![yarn, ("scaling.yarn_log_multiplier", Val::F32(0.1))],
            "key \"llama.rope.scaling.yarn_log_multiplier\" is 0.10000000149011612; \
             expected 0: another value is not supported",
        ),
        (
            vec![("scaling.alpha", Val::F32(1000.0))],
            "key \"llama.rope.scaling.alpha\" is 1000: \
             NTK-aware rope scaling by alpha is not supported; none, linear and yarn are",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let path = file("llama", &pairs).save(&format!("rope-refused-{i}.gguf"));
        let error = Model::open(&path).unwrap_err().to_string();
        assert_eq!(error.split_once(": ").unwrap().1, message);
    }
}
