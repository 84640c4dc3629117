//! Every fault, planted in what the device runs, and the gate that catches it.
//!
//! A gate is one of those that the step passes ([`gates`]): gradients where B is not zero, or adapters after some steps. Each
//! fault runs on a small fixture that its gate has, for as few steps as the gate needs. The same harness runs without a
//! fault, and passes.

use std::collections::HashMap;

use warpwright_driver::Context;
use warpwright_kernels::train::nested;
use warpwright_kernels::train::nf4::Nf4;
use warpwright_train::reference::{Adapters, References, Storage, Trainer as Reference, Weights};
use warpwright_train::step::{Launch, Matrix};

use crate::compare::worst;
use crate::gates::{self, ADAPTER, GRADIENT};
use crate::hooked::{self, Changes};
use crate::planted::Fault;
use crate::setup::Setup;

/// What a gate saw of a fault.
pub(crate) struct Caught {
    pub(crate) fault: &'static str,
    pub(crate) place: &'static str,
    pub(crate) case: Case,
    pub(crate) value: f64,
    /// Of the same gate without the fault.
    pub(crate) without: f64,
}

/// A gate, and what it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Case {
    pub(crate) fixture: &'static str,
    /// Steps before adapters are compared; none for gradients.
    pub(crate) steps: usize,
}

impl Case {
    pub(crate) fn gate(self) -> &'static str {
        if self.steps == 0 { "gradients" } else { "adapters" }
    }

    pub(crate) fn limit(self) -> f64 {
        if self.steps == 0 { GRADIENT } else { ADAPTER }
    }
}

impl Caught {
    /// Whether the gate tells a step with the fault from one without.
    pub(crate) fn caught(&self) -> bool {
        // NaN is caught, by a step without the fault it is not passed.
        !(self.value <= self.case.limit()) && self.without < self.case.limit()
    }
}

/// The smallest fixture that has what the fault needs. Two steps: the first one of Adam does not depend on the size of
/// gradients.
fn case(fault: Fault) -> Case {
    let (fixture, steps) = match fault {
        Fault::FrozenStep | Fault::SkipCaptureStep | Fault::FrozenBatch => ("llama-r4-qv", 2),
        Fault::PerLayerClip | Fault::NoClip | Fault::Bf16Master => ("llama-r4-qv", 2),
        Fault::NoBiasCorrection | Fault::EpsInside | Fault::L2Decay => ("llama-r4-qv", 2),
        Fault::NoBias | Fault::NestedWithoutOffset => ("qwen2-r8-nested", 0),
        Fault::MeanOfMicro => ("qwen2-r8-accum", 0),
        Fault::DropoutMaskBackward => ("llama-r4-dropout", 0),
        Fault::PackingLeak => ("llama-r4-packed", 0),
        _ => ("llama-r4-qv", 0),
    };
    Case { fixture, steps }
}

/// A device whose driver is [hooked](crate::hooked), and what was computed for it.
pub(crate) struct Bench {
    context: Context,
    launch: Launch,
    /// What the reference says, and how far the device is without a fault.
    right: HashMap<Case, (Adapters, f64)>,
}

impl Bench {
    /// Of a context of a hooked driver.
    pub(crate) fn new(context: Context, launch: Launch) -> Bench {
        Bench { context, launch, right: HashMap::new() }
    }

    /// Plants the fault, and runs its gate.
    pub(crate) fn run(&mut self, (name, fault): (&'static str, Fault)) -> Caught {
        let case = case(fault);
        let setup = gates::setup(case.fixture);
        if !self.right.contains_key(&case) {
            let wanted = reference(&setup, case);
            let (found, _) = self.device(&setup, case, &Changes::default(), &gates::weights(&setup));
            let without = worst(&found, &wanted).0;
            self.right.insert(case, (wanted, without));
        }
        let site = fault.site(&setup);
        let weights = if site.is_none() { in_the_weights(fault, &setup) } else { gates::weights(&setup) };
        let place = site.as_ref().map_or("weights, as the host unpacks them", |site| site.place);
        let none = Changes::default();
        let (found, planted) = self.device(&setup, case, site.as_deref().unwrap_or(&none), &weights);
        assert!(planted, "{name}: the step has no such kernel, or no such launch: it was planted nowhere");
        let (wanted, without) = &self.right[&case];
        Caught { fault: name, place, case, value: worst(&found, wanted).0, without: *without }
    }

    /// What the gate compares, and whether all changes were met.
    fn device(
        &self,
        setup: &Setup,
        case: Case,
        changes: &Changes,
        weights: &Weights<Vec<f32>, Matrix>,
    ) -> (Adapters, bool) {
        hooked::plant(&self.context, changes);
        let adapters = if case.steps == 0 { setup.moved() } else { setup.adapters() };
        let mut trainer = gates::trainer_with(&self.context, setup, weights, &adapters, self.launch);
        let found = if case.steps == 0 {
            setup.micros(1).iter().for_each(|micro| trainer.accumulate(micro).unwrap());
            trainer.gradients()
        } else {
            (1..=case.steps).for_each(|step| assert!(!trainer.step(&setup.micros(step)).unwrap().skipped));
            trainer.adapters()
        };
        (found.unwrap(), hooked::seen().planted)
    }
}

/// The same of the reference.
fn reference(setup: &Setup, case: Case) -> Adapters {
    let model = setup.model(setup.weights(&|nf4| setup.unpack(nf4)), Storage::F64, &References);
    let adapters = if case.steps == 0 { setup.moved() } else { setup.adapters() };
    let mut trainer = Reference::new(&model, setup.training.clone(), adapters).unwrap();
    if case.steps == 0 {
        return trainer.gradients(&setup.micros(1)).unwrap().1;
    }
    (1..=case.steps).for_each(|step| assert!(!trainer.step(&setup.micros(step)).unwrap().skipped));
    trainer.adapters
}

/// The weights with the one fault that is in the host's part: `absmax` is whole when it reaches the device.
fn in_the_weights(fault: Fault, setup: &Setup) -> Weights<Vec<f32>, Matrix> {
    assert!(fault == Fault::NestedWithoutOffset, "{fault:?} is planted nowhere");
    gates::weights_with(setup, &|nf4| {
        let nested = nested::Nested { offset: 0.0, ..nested::quantize(&nf4.absmax) };
        Nf4 { absmax: nested::dequantize(&nested), ..nf4 }
    })
}
