//! What must hold of a step whatever the numbers are.

use warpwright_model::RopePairing;
use warpwright_train::Projection;
use warpwright_train::reference::{
    Adapters, LayerWeights, MicroBatch, Model, References, Storage, Trainer, Weights,
};

use crate::compare::{distance, worst};
use crate::generators::gauss;
use crate::setup::{Setup, read, wide};

fn setup(name: &str) -> Setup {
    Setup::new(&read(name)["config"])
}

fn model(setup: &Setup) -> Model<'static> {
    setup.model(
        setup.weights(&|nf4| setup.unpack(nf4)),
        Storage::F64,
        &References,
    )
}

/// Central differences along random directions: `(loss(p + e d) - loss(p - e d)) / 2 e = gradient . d`.
#[test]
fn gradients_are_those_of_the_loss() {
    const STEP: f64 = 1e-4;
    for name in [
        "llama-r4",
        "llama-r4-packed",
        "llama-r4-dropout",
        "qwen2-r8",
        "qwen3-r4",
    ] {
        let setup = setup(name);
        let (model, at, micro) = (model(&setup), setup.moved(), setup.micros(1).swap_remove(0));
        let loss = |at: &Adapters| model.gradients(at, &micro).unwrap().loss;
        let gradients = model.gradients(&at, &micro).unwrap().adapters;
        for seed in 0..3 {
            let count = at.tensors().flatten().count();
            let direction = wide(&gauss(seed, count, 1.0));
            let moved = |step: f64| {
                let mut at = at.clone();
                at.tensors_mut()
                    .flatten()
                    .zip(&direction)
                    .for_each(|(p, d)| *p += step * d);
                loss(&at)
            };
            let found = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let wanted: f64 = gradients
                .tensors()
                .flatten()
                .zip(&direction)
                .map(|(g, d)| g * d)
                .sum();
            let error = ((found - wanted) / wanted).abs();
            println!("{name}, direction {seed}: {error:.1e}");
            assert!(
                error < 1e-4,
                "{name}, direction {seed}: {found:e}, the gradient says {wanted:e}"
            );
        }
    }
}

/// The head's chunks change the order of no sum.
#[test]
fn chunks_of_the_head_change_no_bit() {
    let setup = setup("qwen2-r8");
    let micro = setup.micros(1).swap_remove(0);
    let mut model = model(&setup);
    let mut run = |chunk| {
        model.head_chunk = chunk;
        let found = model.gradients(&setup.moved(), &micro).unwrap();
        (found.head.lse, found.head.dh, found.adapters)
    };
    let whole = run(1024);
    for chunk in [1, 7, 47, 48] {
        assert!(run(chunk) == whole, "chunks of {chunk} tokens");
    }
}

/// Documents that are packed into a row give what they give in passes of their own.
#[test]
fn packed_documents_do_not_see_each_other() {
    let setup = setup("llama-r4-packed");
    let (model, at) = (model(&setup), setup.moved());
    let packed = setup.micros(1).swap_remove(0);
    let together = model.gradients(&at, &packed).unwrap();
    let mut sum = Adapters::zeros(&setup.config, &setup.lora);
    let mut loss = 0.0;
    for document in documents(&packed) {
        let found = model.gradients(&at, &document).unwrap();
        loss += found.loss;
        let gradients = sum
            .tensors_mut()
            .flatten()
            .zip(found.adapters.tensors().flatten());
        gradients.for_each(|(sum, g)| *sum += g);
    }

    assert!((loss / together.loss - 1.0).abs() < 1e-14);
    assert!(worst(&sum, &together.adapters).0 < 1e-13);
}

/// Each document alone; `n` stays that of all.
fn documents(packed: &MicroBatch) -> Vec<MicroBatch> {
    let mut bounds = packed.starts.clone();
    bounds.dedup();
    bounds.push(packed.ids.len() as u32);
    let alone = |bounds: &[u32]| {
        let range = bounds[0] as usize..bounds[1] as usize;
        MicroBatch {
            ids: packed.ids[range.clone()].to_vec(),
            labels: packed.labels[range.clone()].to_vec(),
            positions: packed.positions[range.clone()].to_vec(),
            starts: vec![0; range.len()],
            ..packed.clone()
        }
    };
    bounds.windows(2).map(alone).collect()
}

/// GGUF files of the llama family hold the rows of q and k in another order, and rotate neighbours: row `2 i + j` of a
/// head is row `j d / 2 + i`. The gradients are the same, those of B in that order.
#[test]
fn interleaved_rows_give_the_same_gradients() {
    let setup = setup("llama-r4");
    let micro = setup.micros(1).swap_remove(0);
    let half_split = model(&setup).gradients(&setup.moved(), &micro).unwrap();
    let (d, order) = (setup.config.head_dim, |d: usize, row: usize| {
        row / d * d + row % 2 * d / 2 + row % d / 2
    });
    let permuted = |matrix: &[f64], k: usize| -> Vec<f64> {
        (0..matrix.len() / k)
            .flat_map(|row| matrix[order(d, row) * k..][..k].to_vec())
            .collect()
    };
    let mut weights: Weights = setup.weights(&|nf4| setup.unpack(nf4));
    let (mut at, mut wanted) = (setup.moved(), half_split.adapters.clone());
    for p in [Projection::Q, Projection::K] {
        let matrix = |layer: &mut LayerWeights| {
            let w = &mut layer.projections[p as usize];
            *w = permuted(w, setup.config.hidden);
        };
        weights.layers.iter_mut().for_each(matrix);
        for adapters in [&mut at, &mut wanted] {
            let of = adapters
                .layers
                .iter_mut()
                .flat_map(|layer| &mut layer[p as usize]);
            of.for_each(|adapter| adapter.b = permuted(&adapter.b, setup.lora.rank));
        }
    }

    let mut model = setup.model(weights, Storage::F64, &References);
    model.pairing = RopePairing::Interleaved;
    let interleaved = model.gradients(&at, &micro).unwrap();
    assert!((interleaved.loss / half_split.loss - 1.0).abs() < 1e-14);
    assert!(worst(&interleaved.adapters, &wanted).0 < 1e-13);
}

/// A loss that is not finite changes nothing, and the next step is as if there had been none.
#[test]
fn a_step_that_is_not_finite_is_skipped() {
    let setup = setup("llama-r4");
    let mut broken = setup.weights(&|nf4| setup.unpack(nf4));
    broken.embed[0] = f64::NAN;
    let mut micros = setup.micros(1);
    micros[0].ids[0] = 0;
    let broken = setup.model(broken, Storage::F64, &References);
    let mut trainer = Trainer::new(&broken, setup.training.clone(), setup.adapters()).unwrap();
    let state = trainer.state;
    let record = trainer.step(&micros).unwrap();
    assert!(record.skipped && record.loss.is_nan());
    assert_eq!(
        (&trainer.adapters, trainer.state),
        (&setup.adapters(), state)
    );
    assert_eq!(
        trainer.moments.first,
        Adapters::zeros(&setup.config, &setup.lora)
    );
}

/// The carried corrections are `1 - beta^t`; at small `t` they have more digits.
#[test]
fn corrections_are_carried() {
    let adamw = setup("llama-r4").training.adamw;
    let mut carried = [0.0; 2];
    for t in 1..=1000 {
        carried = adamw.next_corrections(carried);
        let powers = [1.0 - adamw.beta1.powi(t), 1.0 - adamw.beta2.powi(t)];
        assert!(
            distance(&carried, &powers) < 1e-13,
            "step {t}: {carried:?}, {powers:?}"
        );
    }
}
