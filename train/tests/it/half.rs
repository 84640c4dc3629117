//! The step in `bf16` on a device, the emulated one, against the reference in `f64`: gradients at most twice as far off as
//! those of the reference that rounds where fused kernels do, losses within 0.01, and equal bits of all that must not
//! matter.

use warpwright_kernels::ProductTile;
use warpwright_train::reference::Adapters;
use warpwright_train::step::{Launch, Precision, Settings, Snapshot, Trainer, Unpacking};

use crate::device::context;
use crate::gates::{self, Figure, figures};
use crate::setup::{Setup, read};

macro_rules! gates {
    ($($test:ident: $name:literal, $steps:literal steps;)*) => {$(
        #[test]
        fn $test() {
            gate($name, $steps);
        }
    )*};
}

// The example `gates` runs all fixtures, over more steps, on the emulator or on a GPU.
gates! {
    llama: "llama-r4", 1 steps;
    llama_dropout: "llama-r4-dropout", 0 steps;
    qwen3: "qwen3-r4", 0 steps;
}

fn trainer(setup: &Setup, adapters: &Adapters, launch: Launch) -> Trainer {
    gates::trainer_in(&context(), setup, adapters, launch, Precision::Bf16).unwrap()
}

fn gate(name: &str, steps: usize) {
    // Of a graph the emulator traces the first launch, which takes long.
    let found = figures(
        &context(),
        &gates::setup(name),
        Launch::Eager,
        Precision::Bf16,
        steps,
    )
    .unwrap();
    for Figure {
        gate,
        value,
        limit,
        place,
    } in &found
    {
        println!("{name}: {gate} {value:.1e} of {limit:.0e}, at {place}");
    }

    let missed = found.iter().find(|figure| !figure.passes());
    assert!(
        missed.is_none(),
        "{name}: {}",
        missed.map(Figure::to_string).unwrap_or_default()
    );
}

/// Some steps, and all that they leave.
fn leaves(
    setup: &Setup,
    launch: Launch,
    steps: usize,
    evaluate: bool,
) -> (Vec<[u64; 4]>, Snapshot) {
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

/// F-GRAPH-BWD-001: a graph trains as single launches do.
#[test]
fn every_launch_gives_the_same_bits() {
    let setup = Setup::new(&read("llama-r4-dropout")["config"]);
    let graph = leaves(&setup, Launch::Graph, 1, false);
    assert_eq!(
        graph,
        leaves(&setup, Launch::Eager, 1, true),
        "kernel by kernel, after an evaluation"
    );
}

/// Kernels that only large models take, or that unpack NF4; the example `gates` has all of them, in each fixture.
#[test]
fn neither_pairs_of_blocks_nor_unpacking_change_a_bit() {
    let tiles = [ProductTile::ALL[0].in_pairs(), ProductTile::ALL[0]];
    let figure = gates::tiles(
        &context(),
        &gates::setup("llama-r4-qv"),
        Launch::Eager,
        &tiles,
    )
    .unwrap();
    assert!(figure.passes(), "{figure}");
}

/// Of 25 matrices in two layers kernels unpack the first of each pass, and products the rest.
#[test]
fn products_unpack_what_the_next_ones_take() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let unpacked = |unpacking| {
        let settings = Settings {
            precision: Precision::Bf16,
            unpacking,
            ..gates::settings(&setup, Launch::Eager)
        };
        let mut trainer = Trainer::new(
            &context(),
            settings,
            &gates::weights(&setup),
            &setup.adapters(),
        )
        .unwrap();
        let kernels = trainer.profile(&setup.micros(1)[0]).unwrap();
        kernels
            .iter()
            .filter(|timed| timed.kernel == "train_bf16_nf4_dequantize")
            .count()
    };
    assert_eq!(
        [Unpacking::Apart, Unpacking::Ahead, Unpacking::Fitting].map(unpacked),
        [25, 2, 25]
    );
}

#[test]
fn a_restored_trainer_goes_on_to_the_same_bits() {
    let setup = Setup::new(&read("llama-r4-dropout")["config"]);
    let whole = leaves(&setup, Launch::Eager, 2, false);
    let (first, snapshot) = leaves(&setup, Launch::Eager, 1, false);
    let mut resumed = trainer(&setup, &setup.moved(), Launch::Eager);
    resumed.restore(&snapshot).unwrap();
    let record = resumed.step(&setup.micros(2)).unwrap();
    let second = [record.loss, record.norm, record.clip, record.lr].map(f64::to_bits);
    assert_eq!(whole, (vec![first[0], second], resumed.snapshot().unwrap()));
}

/// Each refusal says what it takes.
#[test]
fn refuses_what_has_no_step_in_bf16() {
    let refused = |change: &dyn Fn(&mut Setup)| {
        let mut setup = Setup::new(&read("llama-r4-qv")["config"]);
        change(&mut setup);
        let adapters = setup.adapters();
        let trainer = gates::trainer_in(
            &context(),
            &setup,
            &adapters,
            Launch::Eager,
            Precision::Bf16,
        );
        trainer.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&|_| {}), None);
    let rank = refused(&|setup| setup.lora.rank = 129);
    assert_eq!(
        rank.as_deref(),
        Some("training in bf16 needs a rank up to 128, not 129: use f32")
    );
    let vocab = refused(&|setup| setup.config.vocab = 190);
    let wanted = "training in bf16 needs sizes that are multiples of 8, and vocab is 190: use f32";
    assert_eq!(vocab.as_deref(), Some(wanted));
}

/// Documents out of order would be read wrongly.
#[test]
fn refuses_documents_out_of_order() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.starts[3] = 2;
    let refused = trainer.step(&[micro]).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the document of token 4 begins before the document of the previous token: documents must be in order"
    );
}
