//! Tensors stored as `bf16`: the reference rounds in the same places as the oracle's `bf16sim`.
//!
//! Two such runs differ where a sum lies next to a tie, so they are compared by how far they are from `f64`.

use warpwright_train::reference::{References, Storage, Trainer};

use crate::compare::{distance, named};
use crate::setup::{Setup, read};

/// The fixtures' distances have three digits.
const DIGITS: f64 = 1.006;

/// Losses of 12 steps: at most 2.2e-3 apart, because the oracle's optimizer computes in `f32`.
const APART: f64 = 4e-3;

#[test]
fn bf16_is_as_far_from_f64_as_the_oracle() {
    for name in [
        "llama-r4",
        "llama-r4-dropout",
        "llama-r4-packed",
        "qwen2-r8",
        "qwen3-r4",
    ] {
        let fixture = read(name);
        let (setup, wanted) = (Setup::new(&fixture["config"]), &fixture["at_moved"]);
        let mut micro = setup.micros(1).swap_remove(0);
        micro.n = micro.labelled();
        let step = |storage| {
            let model = setup.model(
                setup.weights(&|nf4| setup.unpack(nf4)),
                storage,
                &References,
            );
            model.gradients(&setup.moved(), &micro).unwrap()
        };
        let (exact, rounded) = (step(Storage::F64), step(Storage::Bf16));
        let loss = rounded.loss - wanted["loss_bf16sim"].as_f64().unwrap();
        let mut worst = 1f64;
        for ((tensor, exact), (_, rounded)) in
            named(&exact.adapters).iter().zip(named(&rounded.adapters))
        {
            let oracle = wanted["gradients"][tensor]["bf16sim"].as_f64().unwrap();
            let ratio = distance(rounded, exact) / oracle;
            worst = worst.max(ratio).max(ratio.recip());
        }

        println!("{name}: loss {loss:.1e} off, a gradient is {worst:.3} times as far");
        assert!(
            loss.abs() < 1e-11 && worst < DIGITS,
            "{name}: {loss:e}, {worst}"
        );
    }
}

#[test]
fn losses_in_bf16_are_those_of_the_oracle() {
    for name in ["llama-r4", "qwen2-r8", "qwen3-r4"] {
        let fixture = read(name);
        let setup = Setup::new(&fixture["config"]);
        let model = setup.model(
            setup.weights(&|nf4| setup.unpack(nf4)),
            Storage::Bf16,
            &References,
        );
        let mut trainer = Trainer::new(&model, setup.training.clone(), setup.adapters()).unwrap();
        let wanted = fixture["training"]["bf16sim"]["loss"].as_array().unwrap();
        let apart = wanted.iter().zip(1..).map(|(wanted, step)| {
            (trainer.step(&setup.micros(step)).unwrap().loss - wanted.as_f64().unwrap()).abs()
        });
        let apart = apart.fold(0.0, f64::max);
        println!("{name}: losses at most {apart:.1e} apart");
        assert!(apart < APART, "{name}: {apart:e}");
    }
}
