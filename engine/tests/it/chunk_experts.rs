//! Mixtures of experts in chunks and batches, on the emulator: their logits, the choice of experts,
//! and bits that do not depend on other tokens.

use std::sync::Arc;

use warpwright_engine::{
    Batch, BatchOptions, BatchRounding, Decoder, Error, KernelPath, Launch, Options, TimedNode,
};
use warpwright_model::{Model, info};

use crate::adapter::{self, Plan};
use crate::batch::{batch, compare_graphs, compare_neighbours, small};
use crate::decode::{distance, emulator, logits, numbers};
use crate::oracle::{self, Keep};
use crate::pipeline_experts::{HIDDEN, Mixture, QWEN3, VOCAB};
use crate::synth::{Q4_K, Q6_K, Q8_0};
use crate::write::File;

/// Three of five experts, so that most of them have rows, and some need more than one group.
const SMALL: Mixture = Mixture {
    formats: &[Q8_0],
    count: 5,
    chosen: 3,
    width: 256,
    ..QWEN3
};

const MIXTURES: [(&str, Mixture); 3] = [
    ("small", SMALL),
    // Another format and column order of down, experts without rows, and a matmul that rotates.
    (
        "medium",
        Mixture {
            arch: "llama",
            formats: &[Q4_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q4_K, Q6_K],
            count: 40,
            chosen: 1,
            width: 256,
            ..SMALL
        },
    ),
    // A dense layer of another width, and a factor of the weights.
    (
        "scaled",
        Mixture {
            chosen: 2,
            scale: Some(2.5),
            dense_first: true,
            ..SMALL
        },
    ),
];

const CONTEXT: u32 = 128;

/// The largest relative error of the logits. All matmuls round activations to `f16`, and the largest
/// error that was seen is 2.4e-3. A wrong expert causes more than 1e-2.
const BOUND: f64 = 4e-3;

fn open(name: &str, file: &File) -> Model {
    let mut model = Model::open(&file.save(&format!("chunk-experts-{name}.gguf"))).unwrap();
    model.outline.config.context = 512;
    model.outline.stop.clear();
    model
}

fn decoder(model: &Model, chunk: u32) -> Decoder {
    let options = Options {
        chunk,
        ..Options::new(CONTEXT, Launch::Graph)
    };
    let decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    assert_eq!(*decoder.path(), KernelPath::Overlapped);
    decoder
}

fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + 11 + i * i) % VOCAB).collect()
}

fn f64s(row: Vec<f32>) -> Vec<f64> {
    numbers(&[row]).remove(0)
}

/// All rows of a chunk, and the last row of a prompt of two chunks, whose last layer computes only
/// that row. A wrong expert moves logits by far more than the bound, so this also compares the
/// choice.
#[test]
fn chunks_of_mixtures_agree_with_float64() {
    let ids = ids(20);
    for (name, mixture) in MIXTURES {
        let model = open(name, &mixture.file());
        let mut decoder = decoder(&model, u32::MAX);
        assert_eq!(decoder.at_once(20), 20);
        let rows = logits(&mut decoder, &ids);
        let exact = oracle::logits(&model, &ids, Keep::Exact);
        let all = distance(&numbers(&rows).concat(), &exact.concat());
        let of_row = |(row, exact): (&Vec<f64>, &Vec<f64>)| distance(row, exact);
        let worst = numbers(&rows)
            .iter()
            .zip(&exact)
            .map(of_row)
            .fold(0.0, f64::max);
        println!("{name}: {all:e}, row {worst:e}");
        assert!(
            all < BOUND && worst < 2.0 * BOUND,
            "{name}: {all:e}, row {worst:e}"
        );

        decoder.prefill(&ids).unwrap();
        let last = f64s(decoder.last_logits().unwrap());
        let found = distance(&last, &exact[19]);
        println!("{name}, last: {found:e}");
        assert!(found < BOUND, "{name}: {found:e}");
    }
}

/// The bound of the logits finds a wrong choice of experts in chunks.
#[test]
fn the_bound_finds_wrong_experts_in_chunks() {
    let ids = ids(16);
    let model = open("right", &SMALL.file());
    let wanted = oracle::logits(&model, &ids, Keep::Half).concat();
    for (name, file) in SMALL.wrong() {
        let mut decoder = decoder(&open(name, &file), u32::MAX);
        assert_eq!(decoder.at_once(16), 16);
        let found = numbers(&logits(&mut decoder, &ids));
        let apart = distance(&found.concat(), &wanted);
        assert!(apart > 1e-2, "{name}: {apart:e}");
    }
}

/// Batches, with a bucket that all steps share.
#[test]
fn neighbors_change_no_bit_of_a_mixture() {
    let options = BatchOptions {
        bucket: Some(16),
        ..BatchOptions::new(5, 192)
    };
    compare_neighbours(&open("neighbors", &SMALL.file()), options);
}

/// With deterministic kernels, the bucket may differ.
#[test]
fn buckets_change_no_bit_of_a_deterministic_mixture() {
    let options = BatchOptions {
        rounding: BatchRounding::Same,
        ..BatchOptions::new(20, 192)
    };
    let model = open("buckets", &SMALL.file());
    let mut batch = batch(&model, options);
    let prompt = ids(9);
    let alone = batch.join().unwrap();
    let first = batch.step(&[(alone, &prompt)]).unwrap()[0];
    let wanted = batch.decode(&[(alone, first)], 2).unwrap().remove(0);
    let wanted_logits = batch.logits(alone).unwrap();

    // The prompt is a part of a step of 69 tokens, and the tokens are decoded next to others.
    let mut work = vec![];
    let again = batch.join().unwrap();
    let other = batch.join().unwrap();
    let others = ids(60);
    let firsts = batch.step(&[(other, &others), (again, &prompt)]).unwrap();
    assert_eq!(firsts[1], first);
    work.push((again, first));
    work.extend((0..16).map(|i| {
        let id = batch.fork(other, 40 + i).unwrap();
        (id, 7 * i)
    }));
    let found = batch.decode(&work, 2).unwrap();
    assert_eq!(found[0], wanted);
    assert_eq!(batch.logits(again).unwrap(), wanted_logits);
}

/// A sequence in a batch has the tokens of a decoder: in steps, in graphs, and alone with the kernels
/// of the pipeline.
#[test]
fn batches_of_mixtures_decode_what_a_decoder_decodes() {
    compare_graphs(&open("graphs", &SMALL.file()));
}

#[test]
fn a_lone_sequence_of_a_mixture_has_the_bits_of_a_decoder() {
    let model = open("lone", &SMALL.file());
    let ids = ids(6);
    let wanted = logits(&mut decoder(&model, 0), &ids);
    let mut batch = batch(&model, BatchOptions::new(2, CONTEXT));
    let id = batch.join().unwrap();
    for (&token, wanted) in ids.iter().zip(&wanted) {
        batch.step(&[(id, &[token])]).unwrap();
        assert_eq!(batch.logits(id).unwrap(), *wanted);
    }
}

/// The kernels of a step count the weights that random choices read on average, and the
/// multiplications of the chosen experts.
#[test]
fn a_profile_of_a_mixture_counts_its_experts() {
    let model = open("profile", &SMALL.file());
    let mut batch = batch(&model, BatchOptions::new(3, CONTEXT));
    let work = [9, 4, 5].map(|len| {
        let id = batch.join().unwrap();
        batch.step(&[(id, &ids(len))]).unwrap();
        (id, len)
    });
    let nodes = batch.profile(&work, 2).unwrap();
    let role = |role: &'static str| nodes.iter().filter(move |timed| timed.node.role == role);
    let roles = [
        "router",
        "choose_experts",
        "sort",
        "gather",
        "gate_up",
        "down",
        "combine",
    ];
    assert_eq!(roles.map(|name| role(name).count()), [2; 7]);
    let layers = ["qkv", "o", "router", "gate_up", "down"];
    let operations = |timed: &TimedNode| timed.node.operations;
    let all: u64 = layers.into_iter().flat_map(role).map(operations).sum();
    assert_eq!(all, 2 * 3 * info::layer_weights(&model.outline));

    // Three tokens that choose three of five experts leave an expert unread with probability
    // (2/5)^3. Gate and up have 512 rows of 256 weights in Q8_0.
    let read = 5.0 * 512.0 * 256.0 * 34.0 / 32.0 * (1.0 - 0.4f64.powi(3));
    for timed in role("gate_up") {
        assert!((timed.node.bytes as f64 - read).abs() < 2.0);
    }
}

/// A router logit that is not finite ends the text, in a chunk and in a batch.
#[test]
fn router_logits_of_chunks_that_are_not_finite_are_errors() {
    // Numbers that are not finite are refused when the file is read, but these logits overflow.
    let file = SMALL.file().edit("blk.1.ffn_gate_inp.weight", |router| {
        let row = 4 * HIDDEN as usize;
        for number in router.data[2 * row..3 * row].chunks_exact_mut(4) {
            number.copy_from_slice(&f32::MAX.to_le_bytes());
        }
    });
    let model = open("not-finite", &file);
    let ids = ids(17);
    let mut decoder = decoder(&model, u32::MAX);
    let error = decoder.generate(&ids, 2).unwrap().find_map(Result::err);
    assert!(matches!(error, Some(Error::Logit { .. })), "{error:?}");

    let mut batch = batch(&model, BatchOptions::new(2, CONTEXT));
    let id = batch.join().unwrap();
    let error = batch.step(&[(id, &ids)]).unwrap_err();
    assert!(matches!(error, Error::InSequence { .. }), "{error}");
}

/// An adapter of a dense model with the sizes of attention of a mixture.
#[test]
fn adapters_of_experts_are_refused_by_name() {
    let plan = Plan {
        ranks: [8, 8, 8, 8, 8, 8, 8],
        ..adapter::ALL
    };
    let dense = small("dense-for-experts");
    let made = adapter::make(&dense, "experts", &plan);
    let adapter = dense.outline.read_adapter(&made.folder).unwrap();
    let model = open("adapted", &SMALL.file());
    let mut batch: Batch = batch(&model, BatchOptions::new(2, CONTEXT));
    let error = batch.load_adapter(Arc::new(adapter)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the adapter does not fit the model: it changes gate_proj, but layer 0 has experts, and adapters of experts \
         are not supported: load an adapter of attention only"
    );
}
