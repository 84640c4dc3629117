//! Every fault, planted in what the device runs, and the gate that catches it.
//!
//! A gate is one of those that the step passes ([`gates`]): gradients where B is not zero, or adapters after some steps. Each
//! fault runs on a small fixture that its gate has, for as few steps as the gate needs. The same harness runs without a
//! fault, and passes. With the fault the device must also be where the reference is that has the same one
//! ([`planted`](crate::planted)): then the gate has seen this fault, and nothing else that came with it.

use std::collections::HashMap;
use std::fmt;

use warpwright_driver::Context;
use warpwright_kernels::train::nested::Nested;
use warpwright_kernels::train::nf4::Nf4;
use warpwright_train::Error;
use warpwright_train::reference::{Adapters, Storage, Weights};
use warpwright_train::step::{Launch, Matrix};

use crate::compare::worst;
use crate::faults;
use crate::gates::{self, ADAPTER, GRADIENT};
use crate::hooked::{self, Changes};
use crate::planted::Fault;
use crate::setup::Setup;

/// What a gate saw of a fault.
pub(crate) struct Caught {
    pub(crate) fault: &'static str,
    pub(crate) place: &'static str,
    pub(crate) case: Case,
    /// How far the device with the fault is from the reference.
    pub(crate) value: f64,
    /// How far it is without the fault.
    pub(crate) without: f64,
    /// How far it is, with the fault, from the reference that has the same fault.
    pub(crate) meant: f64,
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
        if self.steps == 0 {
            "gradients"
        } else {
            "adapters"
        }
    }

    pub(crate) fn limit(self) -> f64 {
        if self.steps == 0 { GRADIENT } else { ADAPTER }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fixture)?;
        if self.steps > 0 {
            write!(f, ", {} steps", self.steps)
        } else {
            Ok(())
        }
    }
}

impl Caught {
    /// Whether the gate tells a step with the fault from one without, and the fault is the one that is meant. Roundings
    /// must stay below half of the limit.
    pub(crate) fn caught(&self) -> bool {
        let limit = self.case.limit();
        self.value > limit && self.without < limit / 2.0 && self.meant < limit / 2.0
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
        Bench {
            context,
            launch,
            right: HashMap::new(),
        }
    }

    /// Plants the fault, and runs its gate.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub(crate) fn run(&mut self, (name, fault): (&'static str, Fault)) -> Result<Caught, Error> {
        let case = case(fault);
        let setup = gates::setup(case.fixture);
        if !self.right.contains_key(&case) {
            let wanted = reference(&setup, case, None);
            let found = self.device(&setup, case, &Changes::default(), &gates::weights(&setup))?;
            let without = worst(&found, &wanted).0;
            self.right.insert(case, (wanted, without));
        }

        let site = fault.site(&setup);
        let weights = if site.is_none() {
            in_the_weights(fault, &setup)
        } else {
            gates::weights(&setup)
        };
        let place = site
            .as_ref()
            .map_or("weights: an offset of 0", |site| site.place);
        let none = Changes::default();
        let found = self.device(
            &setup,
            case,
            site.as_ref().map_or(&none, |site| &site.changes),
            &weights,
        )?;
        let (wanted, without) = &self.right[&case];
        let meant = worst(&found, &reference(&setup, case, Some(fault))).0;
        Ok(Caught {
            fault: name,
            place,
            case,
            value: worst(&found, wanted).0,
            without: *without,
            meant,
        })
    }

    /// What the gate compares. All changes must be met.
    fn device(
        &self,
        setup: &Setup,
        case: Case,
        changes: &Changes,
        weights: &Weights<Vec<f32>, Matrix>,
    ) -> Result<Adapters, Error> {
        hooked::plant(&self.context, changes);
        let adapters = if case.steps == 0 {
            setup.moved()
        } else {
            setup.adapters()
        };
        let mut trainer =
            gates::trainer_with(&self.context, setup, weights, &adapters, self.launch)?;
        let found = if case.steps == 0 {
            setup
                .micros(1)
                .iter()
                .try_for_each(|micro| trainer.accumulate(micro))?;
            trainer.gradients()
        } else {
            (1..=case.steps).try_for_each(|step| trainer.step(&setup.micros(step)).map(|_| ()))?;
            trainer.adapters()
        };
        assert!(
            hooked::seen().planted,
            "the step has no such kernel, or no such launch"
        );
        found
    }
}

/// The same of the reference.
fn reference(setup: &Setup, case: Case, fault: Option<Fault>) -> Adapters {
    match case.steps {
        0 => faults::gradients(setup, fault, Storage::F64),
        steps => faults::trained(setup, fault, Storage::F64, steps).0,
    }
}

/// The weights with the one fault that is in them.
fn in_the_weights(fault: Fault, setup: &Setup) -> Weights<Vec<f32>, Matrix> {
    assert!(
        fault == Fault::NestedWithoutOffset,
        "{fault:?} is planted nowhere"
    );
    gates::weights_with(setup, &|nf4| {
        let Nf4 { packed, absmax } = gates::nested(nf4);
        Matrix::Nested(Nf4 {
            packed,
            absmax: Nested {
                offset: 0.0,
                ..absmax
            },
        })
    })
}
