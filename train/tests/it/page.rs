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
`without` is the same run without the fault. `meant` is the distance, with the fault, from a step in `f64` that has the \
same one: so nothing else is wrong with what was planted. Both must stay below the limit.

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

/// The table of faults.
pub(crate) fn faults(all: &[Caught]) -> String {
    let mut text =
        String::from("| fault | planted in | gate | fixture | value | limit | without | meant |\n");
    text += "|---|---|---|---|---|---|---|---|\n";
    for Caught { fault, place, case, value, without, meant } in all {
        let (gate, fixture, limit) = (case.gate(), case.fixture, case.limit());
        let steps = if case.steps == 0 { String::new() } else { format!(", {} steps", case.steps) };
        writeln!(
            text,
            "| `{fault}` | {place} | {gate} | {fixture}{steps} | {value:.1e} | {limit:.0e} | {without:.0e} | {meant:.0e} |"
        )
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

#[test]
fn every_fault_in_what_the_device_runs_is_caught_and_the_page_says_so() {
    let driver = warpwright_driver::Driver::of(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&hooked::driver(&driver).device(0).unwrap()).unwrap();
    let (text, all) = text(&context).unwrap();
    for Caught { fault, value, without, meant, .. } in all.iter().filter(|caught| !caught.caught()) {
        println!("{fault}: {value:e}, without it {without:e}, from the reference with it {meant:e}");
    }
    assert!(
        all.iter().all(Caught::caught),
        "the gate does not tell, or something else was planted; see above"
    );
    let page = std::fs::read_to_string(path()).unwrap_or_default();
    let command = "cargo run --release -p warpwright-train --example gates -- --update";
    assert!(
        page == text,
        "train/GATES.md is not what is found now; `{command}` writes it, then read the diff"
    );
}
