//! `train/GATES.md`: which gate catches which fault, and which kernel runs in which fixture.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use warpwright_driver::Context;
use warpwright_train::Error;
use warpwright_train::step::Launch;

use crate::device_faults::{Bench, Caught};
use crate::gates::{self, FIXTURES};
use crate::hooked::{self, Changes};
use crate::planted::Fault;

const HEAD: &str = "\
# Gates of training

What the example `gates` found on the emulator. `cargo run --release -p warpwright-train --example gates -- --update` writes \
this page; a test compares it.

## Faults that gates catch

Each fault is planted in what the device runs: a kernel of the step is replaced by a faulty one on its way to the driver, \
or an argument of its launches is changed (`train/tests/it/faulty/`). A gate is the largest relative L2 distance of a \
tensor from a step in `f64`: of gradients at a point where B is not zero, or of adapters after some steps. \
Without the fault the same run stays below half of the limit. So does, with the fault, the distance from a step in \
`f64` that has the same fault: nothing else is wrong with what was planted. `gates --faults` prints both.

";

const KERNELS: &str = "
## Kernels that fixtures reach

Kernels that the step loads, and the fixtures whose graphs launch them, as the driver saw it. A number \
at the end of a name is its threads or the length of heads; `wide` is for sizes that are multiples of 4.

";

/// The whole page, from a device of a [hooked](crate::hooked) driver.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn text(context: &Context) -> Result<(String, Vec<Caught>), Error> {
    // Kernel by kernel gives the bits of the graph, of which the emulator would trace the first launch.
    let mut bench = Bench::new(context.clone(), Launch::Eager);
    let all = Fault::ALL.iter().map(|fault| bench.run(*fault)).collect::<Result<Vec<Caught>, _>>()?;
    Ok((format!("{HEAD}{}{KERNELS}{}", faults(&all), kernels(context)?), all))
}

/// Where the page is.
pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("GATES.md")
}

/// The table of faults, with the digits that every machine gives.
fn faults(all: &[Caught]) -> String {
    let mut text =
        String::from("| fault | planted in | gate | fixture | value | limit |\n|---|---|---|---|---|---|\n");
    for Caught { fault, place, case, value, .. } in all {
        let (gate, limit) = (case.gate(), case.limit());
        writeln!(text, "| `{fault}` | {place} | {gate} | {case} | {value:.1e} | {limit:.0e} |")
            .expect("a string takes all");
    }
    text
}

/// The table of kernels.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn kernels(context: &Context) -> Result<String, Error> {
    let mut table: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (fixture, _) in FIXTURES {
        let setup = gates::setup(fixture);
        hooked::plant(context, &Changes::default());
        drop(gates::trainer(context, &setup, &setup.adapters(), Launch::Graph)?);
        let seen = hooked::seen();
        for name in seen.loaded {
            table.entry(name).or_default();
        }
        for name in seen.launched {
            let fixtures = table.entry(name).or_default();
            if fixtures.last() != Some(&fixture) {
                fixtures.push(fixture);
            }
        }
    }
    let mut text = String::from("| kernel | fixtures |\n|---|---|\n");
    for (kernel, fixtures) in table {
        let fixtures = match fixtures.len() {
            0 => "none".into(),
            n if n == FIXTURES.len() => "all".into(),
            _ => fixtures.join(", "),
        };
        writeln!(text, "| `{kernel}` | {fixtures} |").expect("a string takes all");
    }
    Ok(text)
}
