//! The step in `bf16` on a device, the emulated one, against the reference in `f64`: gradients at most twice as far off as
//! those of the reference that rounds where fused kernels do, losses within 0.01, and equal bits of all that must not
//! matter.

use warpwright_train::reference::{Adapters, References, Storage, Trainer as Reference};
use warpwright_train::step::{Launch, Precision, Snapshot, Trainer};

use crate::device::in_precision;
use crate::fixtures::{distance, named};
use crate::setup::{Setup, read};

/// Times the distance of the reference that rounds.
const GRADIENT: f64 = 2.0;
/// Of a loss.
const LOSS: f64 = 0.01;

macro_rules! gates {
    ($($test:ident: $name:literal, $steps:literal steps;)*) => {$(
        #[test]
        fn $test() {
            gate($name, $steps);
        }
    )*};
}

gates! {
    llama: "llama-r4", 12 steps;
    llama_dropout: "llama-r4-dropout", 2 steps;
    llama_packed: "llama-r4-packed", 2 steps;
    llama_qv: "llama-r4-qv", 2 steps;
    qwen2: "qwen2-r8", 2 steps;
    qwen2_accumulated: "qwen2-r8-accum", 2 steps;
    qwen2_nested: "qwen2-r8-nested", 2 steps;
    qwen3: "qwen3-r4", 2 steps;
    tiny: "tiny-100", 2 steps;
    head_of_128: "hd128-100", 2 steps;
}

fn trainer(setup: &Setup, adapters: &Adapters, launch: Launch) -> Trainer {
    in_precision(setup, adapters, launch, Precision::Bf16)
}

fn gate(name: &str, steps: usize) {
    let setup = Setup::new(&read(name)["config"]);
    let model = |storage| setup.model(setup.weights(&|nf4| setup.unpack(nf4)), storage, &References);
    let exact = model(Storage::F64);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.n = micro.labelled();
    let wanted = exact.gradients(&setup.moved(), &micro).unwrap().adapters;
    let rounded = model(Storage::Bf16).gradients(&setup.moved(), &micro).unwrap().adapters;
    let mut device = trainer(&setup, &setup.moved(), Launch::Graph);
    device.accumulate(&micro).unwrap();
    let found = device.gradients().unwrap();
    let mut worst = (0.0, String::new());
    for (((tensor, found), (_, rounded)), (_, wanted)) in
        named(&found).into_iter().zip(named(&rounded)).zip(named(&wanted))
    {
        let times = distance(found, wanted) / distance(rounded, wanted);
        if times > worst.0 {
            worst = (times, format!("{tensor}, {:.1e}", distance(found, wanted)));
        }
    }
    println!("{name}: gradients at most {:.2} times as far off, at {}", worst.0, worst.1);
    assert!(worst.0 < GRADIENT, "{name}: the gradient of {} is {:.2} times as far off", worst.1, worst.0);

    let mut reference = Reference::new(&exact, setup.training.clone(), setup.adapters()).unwrap();
    let mut device = trainer(&setup, &setup.adapters(), Launch::Graph);
    let mut farthest: f64 = 0.0;
    for step in 1..=steps {
        let micros = setup.micros(step);
        let (wanted, found) = (reference.step(&micros).unwrap(), device.step(&micros).unwrap());
        assert!(!found.skipped);
        farthest = farthest.max((found.loss - wanted.loss).abs());
        assert!(farthest < LOSS, "{name}, step {step}: {found:?}, not {wanted:?}");
        assert!((found.lr / wanted.lr - 1.0).abs() < 1e-6, "{name}, step {step}: {found:?}, not {wanted:?}");
    }
    println!("{name}: losses of {steps} steps at most {farthest:.1e} off");
}

/// Some steps, and all that they leave.
fn leaves(setup: &Setup, launch: Launch, steps: usize, evaluate: bool) -> (Vec<[u64; 4]>, Snapshot) {
    let mut trainer = trainer(setup, &setup.adapters(), launch);
    let step = |step: usize| {
        if evaluate {
            trainer.evaluate(&setup.micros(1)[0]).unwrap();
        }
        let record = trainer.step(&setup.micros(step)).unwrap();
        [record.loss, record.norm, record.clip, record.lr].map(f64::to_bits)
    };
    ((1..=steps).map(step).collect(), trainer.snapshot().unwrap())
}

#[test]
fn every_launch_gives_the_same_bits() {
    let setup = Setup::new(&read("llama-r4-dropout")["config"]);
    let graph = leaves(&setup, Launch::Graph, 2, false);
    assert_eq!(graph, leaves(&setup, Launch::Graph, 2, true), "with evaluations in between");
    assert_eq!(graph, leaves(&setup, Launch::Capture, 2, false), "captured");
    assert_eq!(graph, leaves(&setup, Launch::Eager, 2, false), "kernel by kernel");
}

#[test]
fn a_restored_trainer_goes_on_to_the_same_bits() {
    let setup = Setup::new(&read("qwen2-r8-accum")["config"]);
    let whole = leaves(&setup, Launch::Graph, 2, false);
    let (first, snapshot) = leaves(&setup, Launch::Graph, 1, false);
    let mut resumed = trainer(&setup, &setup.moved(), Launch::Graph);
    resumed.restore(&snapshot).unwrap();
    let record = resumed.step(&setup.micros(2)).unwrap();
    let second = [record.loss, record.norm, record.clip, record.lr].map(f64::to_bits);
    assert_eq!(whole, (vec![first[0], second], resumed.snapshot().unwrap()));
}
