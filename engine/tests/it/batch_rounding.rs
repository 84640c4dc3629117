//! Batches that round alike in every step: a text has the same bits alone and among others that
//! come and go, whatever the parts of its prompt, with and without a cached prefix, and after a swap.

use warpwright_engine::{Batch, BatchOptions, BatchRounding};
use warpwright_model::Outline;
use warpwright_model::config::Architecture;
use warpwright_model::shape::QUANTIZATIONS;

use crate::decode::emulator;
use crate::random;
use crate::rounding::{RoundingCase, RoundingCounts, Text, tokens};

const VOCAB: u32 = 320;

/// A shape in which the splits of matmuls depend on the number of rows: on the emulator's eight
/// multiprocessors, eight rows split the columns of the down projection by four, and 64 rows do not
/// split them.
fn outline() -> Outline {
    let mut shape = random::small(Architecture::LLAMA, false);
    shape.hyperparameters.layers = 1;
    shape.hyperparameters.feed_forward = 1024;
    shape.hyperparameters.context = 256;
    shape.hyperparameters.vocab = VOCAB;
    let mixed = QUANTIZATIONS.iter().find(|of| of.name == "q4_k_m");
    Outline::of(&shape, *mixed.unwrap()).unwrap()
}

/// Prompts at the borders of pages of 64 positions, and some with a common beginning.
fn texts() -> Vec<Text> {
    let tokens = |seed, count| tokens(seed, count, VOCAB);
    let common = tokens(1, 66);
    let prompts = [
        [&common[..], &tokens(4, 63)].concat(),
        tokens(2, 1),
        [&common[..65], &tokens(5, 9)].concat(),
        tokens(3, 64),
        common[..65].to_vec(),
    ];
    let text = |prompt| Text { prompt, reply: 3 };
    prompts.into_iter().map(text).collect()
}

fn run(rounding: BatchRounding, texts: Vec<Text>) -> RoundingCounts {
    let outline = outline();
    let create = |options| Batch::random(&emulator(), &outline, options).unwrap();
    let case = RoundingCase {
        create: &create,
        options: BatchOptions {
            tokens: 96,
            steps_per_launch: 2,
            positions: 40 * 64,
            ..BatchOptions::new(33, 256)
        },
        vocab: VOCAB,
        texts,
        together: 4,
    };
    case.run(rounding)
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others() {
    let counts = run(BatchRounding::Same, texts());
    println!("{counts:?}");
    assert!(counts.compared >= 20 && counts.cached >= 300, "{counts:?}");
    assert!(counts.swaps >= 3, "{counts:?}");
    assert_eq!(counts.different, 0, "{counts:?}");
}

/// The comparison would see other bits: the fastest kernels have them.
#[test]
fn the_fastest_kernels_have_other_bits() {
    let counts = run(BatchRounding::Fastest, texts()[..2].to_vec());
    assert!(counts.compared >= 6 && counts.different > 0, "{counts:?}");
}
