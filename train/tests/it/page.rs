//! `train/GATES.md`: which gate catches which fault, and which kernel runs in which fixture.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use warpwright_driver::Context;
use warpwright_train::step::{Launch, Matrix, Precision, Settings, Tiles, Trainer};
use warpwright_train::{Error, Weights};

use crate::device_faults::{Bench, Caught};
use crate::gates::{self, FIXTURES};
use crate::hooked;
use crate::planted::Fault;
use crate::setup::Setup;

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

Kernels that the step in `f32` loads, and the fixtures whose graphs launch them, as the driver saw it. A number \
at the end of a name is its threads or the length of heads; `wide` is for sizes that are multiples of 4.

";

const HALF: &str = "
The same of the step in `bf16`. A product takes a tile by its size and by the device's multiprocessors, of which \
the emulator has 8; blocks go in pairs (`c2`) from 2,048 tokens on, which no fixture has. So `gates --precision bf16` makes \
the gradients of each fixture with each tile alone as well, and demands the same bits. Of two fixtures the last column \
says where kernels of products are launched then.

";

/// The fixtures of the last column: together they launch every product.
const TILED: [&str; 2] = ["llama-r4-dropout", "qwen2-r8"];

/// The whole page, from a device of a [hooked](crate::hooked) driver.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn text(context: &Context) -> Result<(String, Vec<Caught>), Error> {
    // Kernel by kernel gives the bits of the graph, of which the emulator would trace the first launch.
    let mut bench = Bench::new(context.clone(), Launch::Eager);
    let all = Fault::ALL
        .iter()
        .map(|fault| bench.run(*fault))
        .collect::<Result<Vec<Caught>, _>>()?;
    Ok((
        format!("{HEAD}{}{KERNELS}{}", faults(&all), kernels(context)?),
        all,
    ))
}

/// Where the page is.
pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("GATES.md")
}

/// The table of faults, with the digits that every machine gives.
fn faults(all: &[Caught]) -> String {
    let mut text = String::from(
        "| fault | planted in | gate | fixture | value | limit |\n|---|---|---|---|---|---|\n",
    );
    for Caught {
        fault,
        place,
        case,
        value,
        ..
    } in all
    {
        let (gate, limit) = (case.gate(), case.limit());
        writeln!(
            text,
            "| `{fault}` | {place} | {gate} | {case} | {value:.1e} | {limit:.0e} |"
        )
        .expect("a string takes all");
    }
    text
}

/// Kernels, and the fixtures that launch them.
type Reached = BTreeMap<String, Vec<&'static str>>;

/// The tables of kernels.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn kernels(context: &Context) -> Result<String, Error> {
    let (mut wide, mut half, mut tiles) = (Reached::new(), Reached::new(), Reached::new());
    for (fixture, _) in FIXTURES {
        let setup = gates::setup(fixture);
        let weights = gates::weights(&setup);
        let reach = |table: &mut Reached, settings: Settings| {
            reach(table, context, fixture, (&setup, &weights), settings)
        };
        let settings = gates::settings(&setup, Launch::Graph);
        let in_half = Settings {
            precision: Precision::Bf16,
            ..settings.clone()
        };
        reach(&mut wide, settings)?;
        reach(&mut half, in_half.clone())?;
        for tile in gates::all_tiles().filter(|_| TILED.contains(&fixture)) {
            reach(
                &mut tiles,
                Settings {
                    tiles: Tiles::Only(tile),
                    ..in_half.clone()
                },
            )?;
        }
    }

    tiles.retain(|kernel, _| kernel.starts_with("train_linear"));
    for kernel in tiles.keys() {
        half.entry(kernel.clone()).or_default();
    }

    Ok(format!(
        "{}{HALF}{}",
        table(&wide, None),
        table(&half, Some(&tiles))
    ))
}

/// Adds the kernels of a fixture's step.
fn reach(
    table: &mut Reached,
    context: &Context,
    fixture: &'static str,
    (setup, weights): (&Setup, &Weights<Vec<f32>, Matrix>),
    settings: Settings,
) -> Result<(), Error> {
    hooked::hollow();
    drop(Trainer::new(context, settings, weights, &setup.adapters())?);
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

    Ok(())
}

/// The table of kernels, with a last column of those of `tiles`.
fn table(reached: &Reached, tiles: Option<&Reached>) -> String {
    let (head, line) = if tiles.is_some() {
        ("| tile by tile ", "|---")
    } else {
        ("", "")
    };
    let mut text = format!("| kernel | fixtures {head}|\n|---|---{line}|\n");
    for (kernel, fixtures) in reached {
        let cell = |tiles: &Reached| {
            format!(
                "| {} ",
                tiles.get(kernel).map_or_else(String::new, |all| names(all))
            )
        };
        writeln!(
            text,
            "| `{kernel}` | {} {}|",
            names(fixtures),
            tiles.map(cell).unwrap_or_default()
        )
        .expect("a string takes all");
    }

    text
}

fn names(fixtures: &[&str]) -> String {
    let others: Vec<&str> = FIXTURES
        .map(|(name, _)| name)
        .into_iter()
        .filter(|name| !fixtures.contains(name))
        .collect();
    match (fixtures.len(), others.len()) {
        (0, _) => "none".into(),
        (_, 0) => "all".into(),
        (some, few) if few < some => format!("all but {}", others.join(", ")),
        _ => fixtures.join(", "),
    }
}
