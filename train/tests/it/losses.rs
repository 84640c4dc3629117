//! Losses over many steps: a device's, mostly in `bf16`, held to those that NumPy gave in `f64`; and what the same gate says
//! of a step with a fault, so that it is seen to fail.

use warpwright_driver::Context;
use warpwright_train::Error;
use warpwright_train::step::{Launch, Precision};

use crate::gates;
use crate::hooked::{self, Changes};
use crate::planted::Fault;
use crate::setup::{Setup, read};

/// Fixtures with so many steps.
pub(crate) const FIXTURES: [&str; 2] = ["tiny-100", "hd128-100"];
pub(crate) const STEPS: usize = 100;
/// Nats between a loss and the one in `f64`.
pub(crate) const LIMIT: f64 = 0.02;
/// The fixture of faults.
pub(crate) const FAULTY: &str = "tiny-100";
/// Faults in kernels that both precisions have, and steps after which the gate tells them: twice those that NumPy needs
/// (`faults.json`, `first_over_002`).
pub(crate) const FAULTS: [(&str, usize); 7] = [
    ("pad_in_loss", 2),
    ("frozen_batch", 4),
    ("no_bias_correction", 10),
    ("frozen_step", 10),
    ("skip_capture_step", 10),
    ("l2_decay", 14),
    ("no_clip", 28),
];

/// The loss of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) wanted: f64,
    /// NaN of a step that was skipped.
    pub(crate) found: f64,
}

impl Pair {
    pub(crate) fn apart(self) -> f64 {
        (self.found - self.wanted).abs()
    }
}

/// What runs where.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// Of a [hooked](crate::hooked) driver.
    pub(crate) context: &'a Context,
    pub(crate) launch: Launch,
    pub(crate) precision: Precision,
}

impl Run<'_> {
    /// The losses of a fixture's first steps, or with a fault planted.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub(crate) fn losses(
        self,
        fixture: &str,
        steps: usize,
        fault: Option<Fault>,
    ) -> Result<Vec<Pair>, Error> {
        let fixture = read(fixture);
        let setup = Setup::new(&fixture["config"]);
        let changes = fault
            .and_then(|fault| fault.site(&setup))
            .map_or_else(Changes::default, |site| site.changes);
        assert!(
            fault.is_none() || !changes.kernels.is_empty(),
            "{fault:?} is in no kernel"
        );
        hooked::plant(self.context, &changes);
        let adapters = setup.adapters();
        let mut device =
            gates::trainer_in(self.context, &setup, &adapters, self.launch, self.precision)?;
        let wanted = |step: usize| fixture["training"]["f64"]["loss"][step - 1].as_f64();
        let mut pair = |step: usize| {
            let record = device.step(&setup.micros(step))?;
            let found = if record.skipped {
                f64::NAN
            } else {
                record.loss
            };
            Ok(Pair {
                wanted: wanted(step).expect("the fixture has the step"),
                found,
            })
        };
        let losses = (1..=steps).map(&mut pair).collect();
        assert!(hooked::seen().planted, "the step has no such kernel");
        losses
    }
}

/// How far the farthest loss is, and its step. NaN is farthest.
pub(crate) fn farthest(losses: &[Pair]) -> (f64, usize) {
    let apart = losses.iter().map(|pair| pair.apart()).zip(1..);
    apart
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .expect("there is a step")
}

/// Whether the gate is passed.
pub(crate) fn passes(losses: &[Pair]) -> bool {
    farthest(losses).0 < LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::hooked_context;

    #[test]
    fn no_step_may_be_farther_than_the_limit() {
        let of = |found: [f64; 3]| found.map(|found| Pair { wanted: 3.0, found });
        assert!(passes(&of([3.0199, 3.0, 2.9801])));
        for bad in [2.9799, 3.0201, f64::NAN, f64::INFINITY] {
            for step in 0..3 {
                let mut found = [3.0; 3];
                found[step] = bad;
                assert!(!passes(&of(found)), "{bad} at {step}");
                assert_eq!(farthest(&of(found)).1, step + 1);
            }
        }
    }

    /// Its first step is right. The example `gates` has 100 steps, and more faults.
    #[test]
    fn a_frozen_batch_is_told_by_losses_in_bf16() {
        let context = &hooked_context();
        let run = Run {
            context,
            launch: Launch::Eager,
            precision: Precision::Bf16,
        };
        let losses = run
            .losses("llama-r4-qv", 2, Some(Fault::FrozenBatch))
            .unwrap();
        assert!(
            passes(&losses[..1]) && losses[0].apart() > 0.0,
            "{losses:?}"
        );
        assert!(!passes(&losses) && farthest(&losses).1 == 2, "{losses:?}");
    }

    /// Fixtures have all steps; each fault has a row in the table of NumPy's, and is there long enough.
    #[test]
    fn fixtures_and_faults_are_long_enough() {
        for fixture in FIXTURES {
            assert_eq!(
                read(fixture)["training"]["f64"]["loss"]
                    .as_array()
                    .unwrap()
                    .len(),
                STEPS,
                "{fixture}"
            );
        }

        assert!(FIXTURES.contains(&FAULTY));
        let table = read("faults");
        for (name, steps) in FAULTS {
            let row = table["rows"]
                .as_array()
                .unwrap()
                .iter()
                .find(|row| row["name"] == name)
                .unwrap();
            assert_eq!(
                row["first_over_002"].as_u64(),
                Some(steps as u64 / 2),
                "{name}"
            );
        }
    }
}
