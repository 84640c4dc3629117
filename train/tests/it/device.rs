//! The step on a device, the emulated one, against the reference: gradients, steps, and equal bits of all that must not
//! matter.

use warpwright_driver::{Context, Driver};
use warpwright_kernels::Pairing;
use warpwright_kernels::train::nested;
use warpwright_kernels::train::nf4::Nf4;
use warpwright_train::reference::{Adapters, References, Storage, Trainer as Reference, Weights};
use warpwright_train::step::{Launch, Matrix, Precision, Settings, Trainer};
use warpwright_train::{LayerWeights, Projection};

use crate::fixtures::{distance, named};
use crate::setup::{Setup, read};

/// Relative L2 of a gradient.
const GRADIENT: f64 = 1e-4;
/// Relative L2 of an adapter after all steps.
const ADAPTER: f64 = 1e-3;
/// Relative, of a loss of one pass, and of one after some steps.
const LOSS: [f64; 2] = [1e-5, 1e-4];

pub(crate) fn context() -> Context {
    Context::new(&Driver::of(warpwright_cuda_emu::library()).unwrap().device(0).unwrap()).unwrap()
}

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
    llama_dropout: "llama-r4-dropout", 3 steps;
    llama_packed: "llama-r4-packed", 3 steps;
    llama_qv: "llama-r4-qv", 3 steps;
    qwen2: "qwen2-r8", 3 steps;
    qwen2_accumulated: "qwen2-r8-accum", 3 steps;
    qwen2_nested: "qwen2-r8-nested", 3 steps;
    qwen3: "qwen3-r4", 12 steps;
}

/// A setup's weights as a device takes them: matrices of layers in NF4.
pub(crate) fn weights(setup: &Setup) -> Weights<Vec<f32>, Matrix> {
    let wide = setup.weights(&|nf4| setup.unpack(nf4));
    let narrow = |v: &Vec<f64>| v.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let layers = wide.layers.iter().enumerate().map(|(l, layer)| LayerWeights {
        attention_norm: narrow(&layer.attention_norm),
        feed_forward_norm: narrow(&layer.feed_forward_norm),
        q_norm: layer.q_norm.as_ref().map(narrow),
        k_norm: layer.k_norm.as_ref().map(narrow),
        projections: Projection::ALL.map(|p| Matrix::Nf4(unnested(setup, setup.nf4(l, p)))),
        biases: layer.biases.each_ref().map(|bias| bias.as_ref().map(narrow)),
    });
    Weights {
        embed: narrow(&wide.embed),
        head: wide.head.as_ref().map(narrow),
        norm: narrow(&wide.norm),
        layers: layers.collect(),
    }
}

/// With `absmax` as nested quantization leaves it, if the setup has that.
fn unnested(setup: &Setup, nf4: Nf4) -> Nf4 {
    if !setup.nested {
        return nf4;
    }
    let absmax = nested::dequantize(&nested::quantize(&nf4.absmax));
    Nf4 { absmax, ..nf4 }
}

pub(crate) fn trainer(setup: &Setup, adapters: &Adapters, launch: Launch) -> Trainer {
    in_precision(setup, adapters, launch, Precision::F32)
}

pub(crate) fn in_precision(
    setup: &Setup,
    adapters: &Adapters,
    launch: Launch,
    precision: Precision,
) -> Trainer {
    let settings = Settings {
        config: setup.config.clone(),
        lora: setup.lora.clone(),
        training: setup.training.clone(),
        pairing: Pairing::HalfSplit,
        tokens: setup.rows * setup.len,
        head_chunk: 20,
        launch,
        precision,
    };
    Trainer::new(&context(), settings, &weights(setup), adapters).unwrap()
}

fn gate(name: &str, steps: usize) {
    let setup = Setup::new(&read(name)["config"]);
    let model = setup.model(setup.weights(&|nf4| setup.unpack(nf4)), Storage::F64, &References);

    let mut micro = setup.micros(1).swap_remove(0);
    micro.n = micro.labelled();
    let wanted = model.gradients(&setup.moved(), &micro).unwrap();
    let mut device = trainer(&setup, &setup.moved(), Launch::Graph);
    device.accumulate(&micro).unwrap();
    let found = device.gradients().unwrap();
    let worst = worst(&found, &wanted.adapters);
    println!(
        "{name}: {} nodes; gradients at most {:.1e} off, at {}",
        device.nodes().unwrap(),
        worst.0,
        worst.1
    );
    assert!(worst.0 < GRADIENT, "{name}: the gradient of {} is {:e} off", worst.1, worst.0);

    let mut reference = Reference::new(&model, setup.training.clone(), setup.adapters()).unwrap();
    let mut device = trainer(&setup, &setup.adapters(), Launch::Graph);
    for step in 1..=steps {
        let (wanted, found) =
            (reference.step(&setup.micros(step)).unwrap(), device.step(&setup.micros(step)).unwrap());
        assert!(!found.skipped);
        let apart = |found: f64, wanted: f64| (found / wanted - 1.0).abs();
        let limit = if step == 1 { LOSS[0] } else { LOSS[1] };
        assert!(apart(found.loss, wanted.loss) < limit, "{name}, step {step}: {found:?}, not {wanted:?}");
        for (found, wanted) in [(found.norm, wanted.norm), (found.clip, wanted.clip), (found.lr, wanted.lr)] {
            assert!(apart(found, wanted) < 1e-3, "{name}, step {step}: {found:?}, not {wanted:?}");
        }
    }
    let worst = self::worst(&device.adapters().unwrap(), &reference.adapters);
    println!("{name}: after {steps} steps adapters at most {:.1e} off, at {}", worst.0, worst.1);
    assert!(worst.0 < ADAPTER, "{name}: {} is {:e} off after {steps} steps", worst.1, worst.0);
}

/// The largest relative L2 distance of a tensor, and which.
pub(crate) fn worst(found: &Adapters, wanted: &Adapters) -> (f64, String) {
    let tensors = named(found).into_iter().zip(named(wanted));
    let apart = tensors.map(|((name, found), (_, wanted))| (distance(found, wanted), name));
    apart.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap()
}

/// Some steps, and all that they leave.
fn leaves(setup: &Setup, launch: Launch, steps: usize) -> (Vec<[u64; 4]>, warpwright_train::step::Snapshot) {
    let mut trainer = trainer(setup, &setup.adapters(), launch);
    let records = (1..=steps).map(|step| bits(trainer.step(&setup.micros(step)).unwrap())).collect();
    (records, trainer.snapshot().unwrap())
}

fn bits(record: warpwright_train::reference::Record) -> [u64; 4] {
    [record.loss, record.norm, record.clip, record.lr].map(f64::to_bits)
}

#[test]
fn every_launch_gives_the_same_bits() {
    for name in ["llama-r4-dropout", "qwen2-r8-accum"] {
        let setup = Setup::new(&read(name)["config"]);
        let graph = leaves(&setup, Launch::Graph, 3);
        assert_eq!(graph, leaves(&setup, Launch::Graph, 3), "{name}, twice");
        assert_eq!(graph, leaves(&setup, Launch::Capture, 3), "{name}, captured");
        assert_eq!(graph, leaves(&setup, Launch::Eager, 3), "{name}, kernel by kernel");
    }
}

#[test]
fn a_restored_trainer_goes_on_to_the_same_bits() {
    let setup = Setup::new(&read("llama-r4-dropout")["config"]);
    let whole = leaves(&setup, Launch::Graph, 4);
    let (first, snapshot) = leaves(&setup, Launch::Graph, 2);
    let mut resumed = trainer(&setup, &setup.moved(), Launch::Graph);
    resumed.restore(&snapshot).unwrap();
    let rest = (3..=4).map(|step| bits(resumed.step(&setup.micros(step)).unwrap()));
    let records: Vec<_> = first.into_iter().chain(rest).collect();
    assert_eq!(whole, (records, resumed.snapshot().unwrap()));
}

/// A step whose loss is not finite changes nothing but the count of skipped steps, and the next one goes on.
#[test]
fn a_step_that_is_not_finite_is_skipped() {
    let mut setup = Setup::new(&read("llama-r4-qv")["config"]);
    setup.training.max_norm = 1e30;
    setup.training.schedule.lr = 1e30;
    setup.training.schedule.warmup = 1;
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    assert!(!trainer.step(&setup.micros(1)).unwrap().skipped);
    let before = trainer.snapshot().unwrap();
    for step in 2..4 {
        let record = trainer.step(&setup.micros(step)).unwrap();
        assert!(record.skipped && !record.loss.is_finite(), "{record:?}");
    }
    let after = trainer.snapshot().unwrap();
    assert_eq!((after.step, after.skipped, after.micro), (1, 2, 3));
    assert_eq!((after.adapters, after.moments), (before.adapters, before.moments));
    assert_eq!(after.corrections, before.corrections);
}

#[test]
fn refuses_what_a_device_does_not_take() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.number = 3;
    let error = trainer.step(&[micro.clone()]).unwrap_err().to_string();
    assert_eq!(error, "the micro-batch has number 3, must have 0, which comes next: dropout depends on it");
    micro.number = 0;
    for list in [&mut micro.ids, &mut micro.positions, &mut micro.starts] {
        list.push(0);
    }
    micro.labels.push(None);
    let error = trainer.step(&[micro]).unwrap_err().to_string();
    assert_eq!(error, "a micro-batch has 49 tokens, must have at most the 48 that the trainer was made for");
    assert_eq!(trainer.step(&[]).unwrap_err().to_string(), "a step has no micro-batch; give at least one");
}
