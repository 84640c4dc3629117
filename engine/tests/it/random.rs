//! Models without a file, and timed rounds.

use warpwright_engine::{Decoder, Launch, Options, Round};
use warpwright_model::config::{Architecture, Hyperparameters};
use warpwright_model::rope::Rope;
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Model, Outline, Shape};

use crate::decode::emulator;

/// A shape small enough for the emulator, two layers of a known one's kind.
pub(crate) fn small(architecture: &Architecture, tied: bool) -> Shape {
    let known = SHAPES
        .iter()
        .find(|s| *s.hyperparameters.architecture == *architecture)
        .unwrap();
    let hyperparameters = Hyperparameters {
        layers: 2,
        hidden: 256,
        feed_forward: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        rope: Rope::plain(64, known.hyperparameters.rope.base),
        context: 200,
        vocab: 300,
        ..known.hyperparameters.clone()
    };
    Shape {
        name: "small",
        hyperparameters,
        tied,
    }
}

fn options(ctx: u32, launch: Launch) -> Options {
    Options::new(ctx, launch)
}

fn tokens(decoder: &mut Decoder, attended: u32) -> Vec<u32> {
    let Round {
        tokens,
        wall,
        device,
    } = decoder.round(attended, 3).unwrap();
    assert!(!wall.is_zero() && !device.is_zero());
    tokens
}

#[test]
fn every_quantization_decodes_alike_in_every_round_and_mode() {
    let shapes = [
        small(Architecture::LLAMA, false),
        small(Architecture::QWEN2, true),
        small(Architecture::QWEN3, false),
    ];
    for (quantization, shape) in QUANTIZATIONS.into_iter().zip(shapes.iter().cycle()) {
        let outline = Outline::of(shape, quantization).unwrap();
        let mut decoder =
            Decoder::random(&emulator(), &outline, options(102, Launch::Graph)).unwrap();
        let first = tokens(&mut decoder, 100);
        assert_eq!(first.len(), 3, "{}", quantization.name);
        assert_eq!(tokens(&mut decoder, 100), first, "{}", quantization.name);
        let mut decoder = decoder
            .with_options(&outline, options(102, Launch::Eager))
            .unwrap();
        assert_eq!(
            tokens(&mut decoder, 100),
            first,
            "{}: eager",
            quantization.name
        );
        let mut decoder = decoder
            .with_options(&outline, options(3, Launch::Graph))
            .unwrap();
        assert_eq!(
            tokens(&mut decoder, 1).len(),
            3,
            "{}: from nothing",
            quantization.name
        );
    }
}

#[test]
fn logits_of_random_weights_are_finite_and_not_huge() {
    for quantization in QUANTIZATIONS {
        let outline = Outline::of(&small(Architecture::LLAMA, false), quantization).unwrap();
        let mut decoder =
            Decoder::random(&emulator(), &outline, options(8, Launch::Graph)).unwrap();
        for row in decoder.logits(&[1, 2, 3]).unwrap() {
            let largest = row
                .unwrap()
                .into_iter()
                .fold(0f32, |max, x| max.max(x.abs()));
            assert!(
                (0.1..100.0).contains(&largest),
                "{}: {largest}",
                quantization.name
            );
        }
    }
}

#[test]
fn a_file_decodes_in_rounds_too() {
    let mut model = Model::open(&crate::asset()).unwrap();
    model.outline.stop.clear();
    let mut decoder =
        Decoder::new(&emulator(), &model, options(11, Launch::Graph), |_| ()).unwrap();
    assert_eq!(tokens(&mut decoder, 9), tokens(&mut decoder, 9));
}

#[test]
fn refuses_a_round_without_room() {
    let outline = Outline::of(&small(Architecture::LLAMA, true), QUANTIZATIONS[0]).unwrap();
    let mut decoder = Decoder::random(&emulator(), &outline, options(8, Launch::Graph)).unwrap();
    for (attended, needed) in [(6, 9), (0, 3)] {
        let message = decoder.round(attended, 4).unwrap_err().to_string();
        assert_eq!(
            message,
            format!("cannot measure {needed} positions: the decoder has 1 to 8"),
            "{attended}"
        );
    }
}
