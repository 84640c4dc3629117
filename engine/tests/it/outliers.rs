//! Models with a few numbers some ten thousand times as large as their neighbours, as trained models have them.
//!
//! In the residual stream the output projection of the first layer writes them, so that every norm from there on and
//! all behind it read them. Trained models weigh them down in the norms: here to ten times what the others are there,
//! so that neither drowns the other in the logits. Between the two halves of a feed-forward block, rows of the last
//! layer's up projection make them, for its down projection to read.

use ptx_gen::{bf16, f16};
use warpwright_engine::{KernelPath, Launch};
use warpwright_model::Model;

use crate::decode::{compare_logits, decoder, distance, logits, numbers};
use crate::oracle::{self, Grid, Keep, Place};
use crate::synth::{BF16, F16, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Synth, synth};
use crate::write::{Entry, File};

/// The channels: two that share a scale of activations, one at the end of its group, and the last.
const CHANNELS: [usize; 4] = [5, 17, 95, 255];
/// How much more is written to them.
const WRITTEN: f32 = 4e4;
/// Grids to round on.
const GRIDS: [f64; 3] = [1.0, 1.26, 1.59];
/// How many times the error of the best f16 product rows have, in the root of the mean square.
const NEAR: f64 = 2.0;
/// What norms behind the first multiply these channels by, and the others.
const NORMED: [f32; 2] = [0.2, 8e2];

/// Outliers in the residual stream.
fn in_stream(file: File) -> File {
    let norms = [
        "blk.0.ffn_norm",
        "blk.1.attn_norm",
        "blk.1.ffn_norm",
        "output_norm",
    ];
    let file = file.edit("blk.0.attn_output.weight", scale_rows);
    norms.iter().fold(file, |file, norm| {
        file.edit(&format!("{norm}.weight"), weigh)
    })
}

/// Outliers between the halves of the last feed-forward block.
fn in_block(file: File) -> File {
    file.edit("blk.1.ffn_up.weight", scale_rows)
}

fn weigh(norm: &mut Entry) {
    for (i, bytes) in norm.data.as_chunks_mut().0.iter_mut().enumerate() {
        let by = NORMED[usize::from(!CHANNELS.contains(&i))];
        *bytes = (f32::from_le_bytes(*bytes) * by).to_le_bytes();
    }
}

/// Multiplies rows of a matrix: the scales of their blocks.
fn scale_rows(matrix: &mut Entry) {
    let (block, scales): (usize, &[usize]) = match matrix.kind {
        F16 | BF16 => (2, &[0]),
        Q4_0 => (18, &[0]),
        Q8_0 => (34, &[0]),
        Q4_K => (144, &[0, 2]),
        Q5_K => (176, &[0, 2]),
        Q6_K => (210, &[208]),
        other => panic!("no scales known of type {other}"),
    };
    let bytes = matrix.data.len() / matrix.dims[1] as usize;
    for row in CHANNELS {
        for block in matrix.data[row * bytes..][..bytes].chunks_exact_mut(block) {
            for at in scales {
                let bits = u16::from_le_bytes([block[*at], block[at + 1]]);
                let scaled = match matrix.kind {
                    BF16 => bf16::from_f32(bf16(bits).to_f32() * WRITTEN).0,
                    _ => f16::from_f32(f16(bits).to_f32() * WRITTEN).0,
                };
                block[*at..at + 2].copy_from_slice(&scaled.to_le_bytes());
            }
        }
    }
}

const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 304,
};

/// The largest numbers among the outliers and among the others, wherever the oracle looks.
fn largest(model: &Model, ids: &[u32], at: Place) -> [f64; 2] {
    let mut largest = [0.0f64; 2];
    oracle::watched(model, ids, Keep::Exact, |place, x| {
        for (i, x) in x.iter().enumerate().filter(|_| place == at) {
            let largest = &mut largest[usize::from(!CHANNELS.contains(&i))];
            *largest = largest.max(x.abs());
        }
    });
    largest
}

/// The pipeline's logits against those of float64. What rounding keys and values to f16 costs is in the bound of all
/// logits, and can be more for a row: up to 4e-3 where the outliers of a block are differences of larger numbers.
fn check(name: &str, file: File, at: Place) {
    let model = Model::open(&file.save(&format!("outliers-{name}.gguf"))).unwrap();
    let ids = [3, 300, 0, 17, 17, 255, 40, 8];
    let [outliers, others] = largest(&model, &ids, at);
    assert!(
        (1e4..3e5).contains(&outliers) && others < 50.0,
        "{name}: {outliers}, {others}"
    );
    let mut decoder = decoder(&model, 16, Launch::Graph);
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    compare_logits(&model, &logits(&mut decoder, &ids), &ids, [2e-3; 2]);
}

fn cases() -> [(&'static str, Synth); 7] {
    // The down projection and the embedding, then q, k, v, o, gate and up.
    const Q4_K_M: &[u32] = &[Q6_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q4_K];
    const Q5_K_M: &[u32] = &[Q6_K, Q5_K, Q5_K, Q6_K, Q5_K, Q5_K, Q5_K];
    let qwen2 = Synth {
        arch: "qwen2",
        tied: false,
        ..LLAMA
    };
    let qwen3 = Synth {
        arch: "qwen3",
        ..LLAMA
    };
    [
        (
            "q4_k_m",
            Synth {
                formats: Q4_K_M,
                ..LLAMA
            },
        ),
        (
            "q5_k_m",
            Synth {
                formats: Q5_K_M,
                ..qwen2
            },
        ),
        (
            "q6_k",
            Synth {
                formats: &[Q6_K],
                ..LLAMA
            },
        ),
        (
            "q8_0",
            Synth {
                formats: &[Q8_0],
                ..LLAMA
            },
        ),
        (
            "q4_0",
            Synth {
                formats: &[Q4_0],
                ..qwen3
            },
        ),
        (
            "f16",
            Synth {
                formats: &[F16],
                ..LLAMA
            },
        ),
        (
            "bf16",
            Synth {
                formats: &[BF16],
                ..qwen2
            },
        ),
    ]
}

#[test]
fn logits_stand_outliers_of_ten_thousand() {
    for (name, case) in cases() {
        check(
            &format!("{name}-stream"),
            in_stream(synth(case)),
            Place::Stream,
        );
        check(
            &format!("{name}-block"),
            in_block(synth(case)),
            Place::Block,
        );
    }
}

/// The rows' errors.
fn errors(found: &[Vec<f64>], wanted: &[Vec<f64>]) -> Vec<f64> {
    std::iter::zip(found, wanted)
        .map(|(found, wanted)| distance(found, wanted))
        .collect()
}

/// What products in f16 cost each row at best: both operands rounded to the nearest, sums exact. The root of the mean
/// square over some grids, as rounding is luck.
fn at_best(model: &Model, ids: &[u32], exact: &[Vec<f64>]) -> Vec<f64> {
    let (unrounded, mut squares) = (oracle::weights(model), vec![0.0; ids.len()]);
    for grid in GRIDS.map(Grid) {
        let mut weights = unrounded.try_map(|w| Ok::<_, ()>(w.clone())).unwrap();
        for b in &mut weights.blocks {
            let attention = [&mut b.q, &mut b.k, &mut b.v, &mut b.o];
            let dense = [&mut b.gate, &mut b.up, &mut b.down];
            for matrix in attention.into_iter().chain(dense.into_iter().flatten()) {
                grid.round(matrix);
            }
        }

        let rows = oracle::logits_of(model, &weights, ids, Keep::Products(grid), |_, _| ());
        for (sum, error) in squares.iter_mut().zip(errors(&rows, exact)) {
            *sum += error * error / GRIDS.len() as f64;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

/// A prompt as a chunk, against float64. Outliers here are sums of random numbers of both signs, and where all of a row's
/// happen to be small, any product in f16 is off by a percent. So a row counts beside what it would cost such a product;
/// half of all are within 2e-3.
fn check_chunk(name: &str, file: File) {
    let model = Model::open(&file.save(&format!("outliers-{name}-chunk.gguf"))).unwrap();
    let ids: Vec<u32> = (0..20)
        .map(|i| (i * 37 + 11 + i * i) % LLAMA.vocab)
        .collect();
    let mut decoder = decoder(&model, 32, Launch::Graph);
    assert_eq!(decoder.at_once(20), 20);
    let exact = oracle::logits(&model, &ids, Keep::Exact);
    let mut found = errors(&numbers(&logits(&mut decoder, &ids)), &exact);
    let ratios =
        std::iter::zip(&found, at_best(&model, &ids, &exact)).map(|(found, best)| found / best);
    let ratio = (ratios.map(|ratio| ratio * ratio).sum::<f64>() / ids.len() as f64).sqrt();
    found.sort_by(f64::total_cmp);
    let middle = found[ids.len() / 2];
    assert!(
        middle <= 2e-3 && ratio <= NEAR,
        "{name}: {middle:e}, {ratio} times what f16 costs at best"
    );
}

#[test]
fn chunks_stand_outliers_of_ten_thousand() {
    for (name, case) in cases() {
        check_chunk(&format!("{name}-stream"), in_stream(synth(case)));
        check_chunk(&format!("{name}-block"), in_block(synth(case)));
    }
}
