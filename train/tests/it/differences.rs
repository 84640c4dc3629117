//! Gradients of the step in `f32` on a device, the emulated one, against differences of its own losses. No reference is in
//! it: what it finds wrong is wrong in the forward or in the backward.

use warpwright_train::reference::Adapters;
use warpwright_train::step::{Launch, Snapshot};

use crate::device::trainer;
use crate::generators::unit;
use crate::setup::{Setup, read};

/// How far a difference may be from a slope, relative to it.
const LIMIT: f64 = 0.01;
/// How far a parameter vector is moved to either side, along each tensor at most one and a half times as far.
const STEP: f64 = 1e-2;

/// Each tensor's gradient, brought to a length between 1/2 and 3/2.
fn direction(gradients: &Adapters, seed: u64) -> Adapters {
    let mut along = gradients.clone();
    for (i, tensor) in (0..).zip(along.tensors_mut()) {
        let length = tensor.iter().map(|x| x * x).sum::<f64>().sqrt();
        for x in tensor {
            *x *= (0.5 + unit(seed, i)) / length;
        }
    }
    along
}

#[test]
fn gradients_are_slopes_of_the_loss() {
    let setup = Setup::new(&read("llama-r4")["config"]);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.n = micro.labelled();
    let mut device = trainer(&setup, &setup.moved(), Launch::Eager);
    let start = device.snapshot().unwrap();
    device.accumulate(&micro).unwrap();
    let gradients = device.gradients().unwrap();
    for seed in 1..=3 {
        let along = direction(&gradients, seed);
        let mut loss = |far: f64| {
            let mut adapters = start.adapters.clone();
            for (tensor, along) in adapters.tensors_mut().zip(along.tensors()) {
                tensor
                    .iter_mut()
                    .zip(along)
                    .for_each(|(x, along)| *x += far * along);
            }

            device
                .restore(&Snapshot {
                    adapters,
                    ..start.clone()
                })
                .unwrap();
            let found = device.evaluate(&micro).unwrap();
            found.loss / found.tokens as f64
        };
        let difference = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        let pairs = gradients.tensors().zip(along.tensors());
        let parts: Vec<f64> = pairs
            .map(|(g, along)| g.iter().zip(along).map(|(g, along)| g * along).sum())
            .collect();
        let slope: f64 = parts.iter().sum();
        println!("direction {seed}: a slope of {slope:.6}, a difference of {difference:.6}");
        assert!(
            (difference / slope - 1.0).abs() < LIMIT,
            "{difference}, not {slope}"
        );

        // So that a tensor of zeros in place of a gradient would be found.
        let least = parts.iter().copied().fold(f64::INFINITY, f64::min) / slope;
        assert!(least > LIMIT / 4.0, "a tensor has {least} of the slope");
    }
}
