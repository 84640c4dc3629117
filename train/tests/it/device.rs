//! The step on a device, the emulated one, against the reference: gradients, steps, and equal bits of all that must not
//! matter.

use warpwright_driver::{Context, Driver};
use warpwright_train::reference::Adapters;
use warpwright_train::step::{Launch, Precision, Recomputation, Settings, Trainer, Unpacking};

use crate::gates::{self, FIXTURES, Figure, figures};
use crate::hooked;
use crate::setup::{Setup, read};

pub(crate) fn context() -> Context {
    Context::new(
        &Driver::from_library(warpwright_cuda_emu::library())
            .unwrap()
            .device(0)
            .unwrap(),
    )
    .unwrap()
}

/// The same, through a driver that sees what is loaded and launched.
pub(crate) fn hooked_context() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&hooked::driver(&driver).device(0).unwrap()).unwrap()
}

macro_rules! gates {
    ($($test:ident: $name:literal;)*) => {
        const TESTED: &[&str] = &[$($name),*];

        $(
            #[test]
            fn $test() {
                gate($name);
            }
        )*
    };
}

gates! {
    llama: "llama-r4";
    llama_dropout: "llama-r4-dropout";
    llama_packed: "llama-r4-packed";
    llama_qv: "llama-r4-qv";
    qwen2: "qwen2-r8";
    qwen2_accumulated: "qwen2-r8-accum";
    qwen2_nested: "qwen2-r8-nested";
    qwen3: "qwen3-r4";
    llama_uneven: "llama-r6";
}

/// Those for which the emulator takes too long here: the example `gates` runs them, on it or on a GPU.
const LARGE: &[&str] = &[
    "tiny-100",
    "hd128-100",
    "qwen3-hd128",
    "gqa6-hd128",
    "gqa7-hd64",
];

pub(crate) fn trainer(setup: &Setup, adapters: &Adapters, launch: Launch) -> Trainer {
    gates::trainer(&context(), setup, adapters, launch).unwrap()
}

fn gate(name: &str) {
    let steps = FIXTURES
        .iter()
        .find(|(fixture, _)| *fixture == name)
        .expect("it is in the list")
        .1;
    let figures = figures(
        &context(),
        &gates::setup(name),
        Launch::Graph,
        Precision::F32,
        steps,
    )
    .unwrap();
    for Figure {
        gate,
        value,
        limit,
        place,
    } in &figures
    {
        println!("{name}: {gate} {value:.1e} of {limit:.0e}, at {place}");
    }

    let missed = figures.iter().find(|figure| !figure.passes());
    assert!(
        missed.is_none(),
        "{name}: {}",
        missed.map(Figure::to_string).unwrap_or_default()
    );
}

#[test]
fn the_list_of_gates_is_whole() {
    assert_eq!(FIXTURES.map(|(name, _)| name)[..], [TESTED, LARGE].concat());
}

/// Some steps, and all that they leave.
fn leaves(
    setup: &Setup,
    launch: Launch,
    steps: usize,
) -> (Vec<[u64; 4]>, warpwright_train::step::Snapshot) {
    let mut trainer = trainer(setup, &setup.adapters(), launch);
    let records = (1..=steps)
        .map(|step| bits(trainer.step(&setup.micros(step)).unwrap()))
        .collect();
    (records, trainer.snapshot().unwrap())
}

fn bits(record: warpwright_train::reference::Record) -> [u64; 4] {
    [record.loss, record.norm, record.clip, record.lr].map(f64::to_bits)
}

/// F-GRAPH-BWD-001 and -002: a graph can be captured, and trains as single launches do.
#[test]
fn every_launch_gives_the_same_bits() {
    for name in ["llama-r4-dropout", "qwen2-r8-accum"] {
        let setup = Setup::new(&read(name)["config"]);
        let graph = leaves(&setup, Launch::Graph, 3);
        assert_eq!(graph, leaves(&setup, Launch::Graph, 3), "{name}, twice");
        assert_eq!(
            graph,
            leaves(&setup, Launch::Capture, 3),
            "{name}, captured"
        );
        assert_eq!(
            graph,
            leaves(&setup, Launch::Eager, 3),
            "{name}, kernel by kernel"
        );
    }
}

/// In both precisions: what the backward computes again are the bits that the forward had. There, products in `bf16` unpack
/// the matrices of the next ones, which few tokens do not otherwise.
#[test]
fn recomputing_gives_the_same_bits() {
    for (name, precision, launch) in [
        ("llama-r4-dropout", Precision::F32, Launch::Graph),
        ("qwen3-r4", Precision::F32, Launch::Eager),
        ("llama-r4-qv", Precision::F32, Launch::Eager),
        ("llama-r4-dropout", Precision::Bf16, Launch::Graph),
        ("qwen3-r4", Precision::Bf16, Launch::Eager),
    ] {
        let setup = Setup::new(&read(name)["config"]);
        let leaves = |recomputation| {
            let unpacking = match recomputation {
                Recomputation::None => Unpacking::Apart,
                Recomputation::Cheap | Recomputation::Layers => Unpacking::Ahead,
            };
            let settings = Settings {
                precision,
                recomputation,
                unpacking,
                ..gates::settings(&setup, launch)
            };
            let weights = gates::weights(&setup);
            let mut trainer = Trainer::new(&context(), settings, &weights, &setup.moved()).unwrap();
            let record = bits(trainer.step(&setup.micros(1)).unwrap());
            (record, trainer.snapshot().unwrap())
        };
        let kept = leaves(Recomputation::None);
        for again in [Recomputation::Cheap, Recomputation::Layers] {
            assert!(kept == leaves(again), "{name}, {precision:?}, {again:?}");
        }
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
    setup.training.schedule.warmup = 0;
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    assert!(!trainer.step(&setup.micros(1)).unwrap().skipped);
    let before = trainer.snapshot().unwrap();
    for step in 2..4 {
        let record = trainer.step(&setup.micros(step)).unwrap();
        assert!(record.skipped && !record.loss.is_finite(), "{record:?}");
    }

    let after = trainer.snapshot().unwrap();
    assert_eq!((after.step, after.skipped, after.micro), (1, 2, 3));
    assert_eq!(
        (after.adapters, after.moments),
        (before.adapters, before.moments)
    );
    assert_eq!(after.corrections, before.corrections);
}

#[test]
fn refuses_what_a_device_does_not_take() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.number = 3;
    let error = trainer.step(&[micro.clone()]).unwrap_err().to_string();
    assert_eq!(
        error,
        "the micro-batch has number 3, but 0 comes next, and dropout depends on the number"
    );
    micro.number = 0;
    for list in [&mut micro.ids, &mut micro.positions, &mut micro.starts] {
        list.push(0);
    }

    micro.labels.push(None);
    let error = trainer.step(&[micro]).unwrap_err().to_string();
    assert_eq!(
        error,
        "a micro-batch has 49 tokens, but the trainer was created for at most 48"
    );
    assert_eq!(
        trainer.step(&[]).unwrap_err().to_string(),
        "the step has no micro-batch: pass at least one"
    );
}
