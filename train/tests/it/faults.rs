//! Planted faults: each makes its gate fail, by as much as `faults.json` says, and the snapshot shows by how much.
//!
//! The gates are those that kernels in `f32` will have to pass: gradients at a point where B is not zero, and adapters
//! after twelve steps. The last column is for comparison: what a gate on the loss would see of the fault.

use std::sync::LazyLock;

use serde_json::Value;
use warpwright_train::Training;
use warpwright_train::reference::{Adapters, Model, Ops, References, Storage, Trainer};

use crate::compare::worst;
use crate::planted::Fault;
use crate::setup::{Setup, read};

const STEPS: usize = 12;

/// The largest relative L2 distance that a gradient may have from `f64`, and an adapter after the steps.
const GRADIENTS: f64 = 1e-4;
const ADAPTERS: f64 = 1e-3;

/// What the table of the oracle has four digits of.
const ROUNDING: f64 = 6e-4;

/// What gates look at.
struct Run {
    gradients: Adapters,
    adapters: Adapters,
    losses: Vec<f64>,
}

/// How far a run is from the one without a fault.
struct Figures {
    gradients: f64,
    adapters: f64,
    loss: f64,
}

/// The configuration of `tiny` with what a row of the table changes.
fn setup(changes: &Value) -> Setup {
    let mut config = read("tiny-100")["config"].clone();
    let changes = changes.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(changes);
    Setup::new(&config)
}

/// A run with a fault, or one without whose tensors have some type.
fn run(setup: &Setup, fault: Option<Fault>, storage: Storage) -> Run {
    let (adapters, losses) = trained(setup, fault, storage, STEPS);
    Run {
        gradients: gradients(setup, fault, storage),
        adapters,
        losses,
    }
}

/// The gradients of the first step where B is not zero.
pub(crate) fn gradients(setup: &Setup, fault: Option<Fault>, storage: Storage) -> Adapters {
    let micros = fault.map_or_else(|| setup.micros(1), |fault| fault.micros(setup, 1));
    with_model(setup, fault, storage, |model, training| {
        Trainer::new(model, training, setup.moved())
            .unwrap()
            .gradients(&micros)
            .unwrap()
            .1
    })
}

/// The adapters after some steps, and the losses.
pub(crate) fn trained(
    setup: &Setup,
    fault: Option<Fault>,
    storage: Storage,
    steps: usize,
) -> (Adapters, Vec<f64>) {
    with_model(setup, fault, storage, |model, training| {
        let mut trainer = Trainer::new(model, training, setup.adapters()).unwrap();
        let mut step = |step| match fault {
            Some(fault) => fault.step(setup, &mut trainer, step).unwrap().loss,
            None => trainer.step(&setup.micros(step)).unwrap().loss,
        };
        let losses = (1..=steps).map(&mut step).collect();
        (trainer.adapters, losses)
    })
}

/// Hands on a model and its training, with what of the fault is in them.
fn with_model<R>(
    setup: &Setup,
    fault: Option<Fault>,
    storage: Storage,
    then: impl FnOnce(&Model<'_>, Training) -> R,
) -> R {
    // A fault that no match names changes nothing: the oracle's table tells whether one was forgotten.
    let ops: &dyn Ops = fault.as_ref().map_or(&References, |fault| fault);
    let weights = fault.map_or_else(
        || setup.weights(&|nf4| setup.unpack(nf4)),
        |fault| fault.weights(setup),
    );
    let mut model = setup.model(weights, storage, ops);
    model.pairing = fault.map_or(model.pairing, |fault| fault.pairing());
    then(
        &model,
        fault.map_or_else(|| setup.training.clone(), |fault| fault.training(setup)),
    )
}

impl Figures {
    fn new(run: &Run, reference: &Run) -> Figures {
        let losses = run.losses.iter().zip(&reference.losses);
        Figures {
            gradients: worst(&run.gradients, &reference.gradients).0,
            adapters: worst(&run.adapters, &reference.adapters).0,
            loss: losses
                .map(|(loss, wanted)| (loss - wanted).abs())
                .fold(0.0, f64::max),
        }
    }

    /// The gate that fails, its figure and its limit.
    fn gate(&self) -> Option<(&'static str, f64, f64)> {
        let gates = [
            ("gradients", self.gradients, GRADIENTS),
            ("adapters", self.adapters, ADAPTERS),
        ];
        gates.into_iter().find(|(_, figure, limit)| figure > limit)
    }
}

/// The runs without a fault, for each set of changes that the table has.
static REFERENCES: LazyLock<Vec<(Value, Run)>> = LazyLock::new(|| {
    let mut found: Vec<(Value, Run)> = vec![];
    for row in read("faults")["rows"].as_array().unwrap() {
        if !found.iter().any(|(changes, _)| *changes == row["config"]) {
            let run = run(&setup(&row["config"]), None, Storage::F64);
            found.push((row["config"].clone(), run));
        }
    }
    found
});

fn figures(changes: &Value, fault: Option<Fault>, storage: Storage) -> Figures {
    let reference = REFERENCES.iter().find(|(of, _)| of == changes).unwrap();
    Figures::new(&run(&setup(changes), fault, storage), &reference.1)
}

/// To accept a table that is meant to change: `INSTA_UPDATE=always cargo test -p warpwright-train faults`.
#[test]
fn each_planted_fault_fails_its_gate() {
    use std::fmt::Write;

    let table = read("faults");
    let rows = &table["rows"].as_array().unwrap()[2..];
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        Fault::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
    let mut text = format!(
        "{:<18} {:<9} {:>8}   {:>7} {:>10}\n",
        "fault", "gate", "figure", "limit", "loss"
    );
    for ((name, fault), row) in Fault::ALL.iter().zip(rows) {
        let figures = figures(&row["config"], Some(*fault), Storage::F64);
        agrees(name, "gradient", figures.gradients, row);
        agrees(name, "adapters", figures.adapters, row);
        agrees(name, "loss_12", figures.loss, row);
        let (gate, figure, limit) = figures
            .gate()
            .unwrap_or_else(|| panic!("{name} passes every gate"));
        writeln!(
            text,
            "{name:<18} {gate:<9} {figure:>8.2e} > {limit:>7.0e} {:>10.1e}",
            figures.loss
        )
        .unwrap();
    }

    insta::assert_snapshot!("planted_faults", text);
}

/// The oracle saw the same: planted twice, by two implementations.
fn agrees(name: &str, figure: &str, found: f64, row: &Value) {
    let wanted = row[figure].as_f64().unwrap();
    assert!(
        (found - wanted).abs() <= wanted * ROUNDING,
        "{name}: {figure} is {found:e}, wanted {wanted:e}"
    );
}

/// Rounding is no fault: tensors in `f32` pass the gates of `f32`, and tensors in `bf16` are as far from `f64` as the
/// oracle's, which rounds in the same places.
#[test]
fn rounding_passes() {
    let none = Value::Object(Default::default());
    let single = figures(&none, None, Storage::F32);
    assert!(
        single.gate().is_none(),
        "{:e} and {:e}",
        single.gradients,
        single.adapters
    );
    assert!(
        single.gradients > 0.0 && single.loss < 1e-6,
        "{:e}",
        single.loss
    );
    let half = figures(&none, None, Storage::Bf16);
    let oracle = &read("faults")["rows"][1];

    // The largest of twelve differences of losses is a single outcome of rounding, so it may differ by more than the
    // distances, which are sums over whole tensors.
    let figures = [
        (half.gradients, "gradient", 0.8..1.25),
        (half.adapters, "adapters", 0.8..1.25),
        (half.loss, "loss_12", 0.5..2.0),
    ];
    for (found, figure, range) in figures {
        let ratio = found / oracle[figure].as_f64().unwrap();
        println!("bf16: {figure} {found:.3e}, {ratio:.3} times the oracle's");
        assert!(
            range.contains(&ratio),
            "{figure} is {found:e}, {ratio} times the oracle's"
        );
    }
}
