//! The gates of a training step, on a GPU or on the emulator: fixture by fixture, or fault by fault.
//!
//! It holds the fixtures, so it runs on a machine without the repository. Exit code 1 says that a gate was missed, 2 that
//! it could not run.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use warpwright_driver::{Context, Driver};
use warpwright_train::step::Launch;

#[path = "../tests/it/compare.rs"]
mod compare;
#[path = "../tests/it/device_faults.rs"]
mod device_faults;
#[path = "../tests/it/faulty/mod.rs"]
mod faulty;
#[path = "../tests/it/fixtures.rs"]
#[allow(dead_code)] // The tests use the rest, here and below.
mod fixtures;
#[path = "../tests/it/gates.rs"]
mod gates;
#[path = "../tests/it/generators.rs"]
mod generators;
#[path = "../tests/it/hooked.rs"]
mod hooked;
#[path = "../tests/it/page.rs"]
mod page;
#[path = "../tests/it/planted.rs"]
#[allow(dead_code)]
mod planted;
#[path = "../tests/it/setup.rs"]
#[allow(dead_code)]
mod setup;

use device_faults::{Bench, Caught};
use gates::{FIXTURES, Figure};
use planted::Fault;

type Failure = Box<dyn std::error::Error>;

/// Holds a training step on a device to the reference in f64
#[derive(Parser)]
struct Options {
    /// cuda:N, or emu (the emulator)
    #[arg(long, default_value = "emu", value_parser = device)]
    device: Place,
    /// Of the tensors of the step
    #[arg(long, default_value = "f32", value_parser = ["f32"])]
    precision: String,
    /// Plant each fault in what the device runs, in place of the gates of the fixtures
    #[arg(long, conflicts_with_all = ["fixtures", "reference"])]
    faults: bool,
    /// Compare the reference with the numbers of NumPy as well; it needs no device
    #[arg(long)]
    reference: bool,
    /// Write train/GATES.md of what the emulator finds
    #[arg(long, conflicts_with_all = ["faults", "reference", "fixtures"])]
    update: bool,
    /// Fixtures; all, if none is named
    #[arg(value_name = "FIXTURE", value_parser = FIXTURES.map(|(name, _)| name))]
    fixtures: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Cuda(usize),
    Emulator,
}

fn device(text: &str) -> Result<Place, String> {
    let ordinal = || text.strip_prefix("cuda:")?.parse().ok();
    match text {
        "emu" => Ok(Place::Emulator),
        _ => ordinal().map(Place::Cuda).ok_or_else(|| "use cuda:N or emu".into()),
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Whether every gate did what it must.
fn run(options: &Options) -> Result<bool, Failure> {
    if options.update && options.device != Place::Emulator {
        return Err("train/GATES.md is of the emulator; leave --device out, or --update".into());
    }
    let context = open(options.device)?;
    println!("{}", context.device());
    match options {
        Options { update: true, .. } => update(&context),
        Options { faults: true, .. } => Ok(faults(context)),
        _ => Ok(fixtures(&context, options)),
    }
}

/// A context of the device, through a driver that sees what is loaded and launched.
fn open(place: Place) -> Result<Context, Failure> {
    let (driver, ordinal) = match place {
        Place::Emulator => (Driver::of(warpwright_cuda_emu::library())?, 0),
        Place::Cuda(ordinal) => (Driver::load()?, ordinal),
    };
    Ok(Context::new(&hooked::driver(&driver).device(ordinal)?)?)
}

fn fixtures(context: &Context, options: &Options) -> bool {
    println!("| fixture | gate | value | limit | farthest | pass |\n|---|---|---|---|---|---|");
    let wanted = |name: &str| options.fixtures.is_empty() || options.fixtures.iter().any(|one| one == name);
    let mut passed = true;
    for (name, steps) in FIXTURES.into_iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        let mut row = |figure: &Figure| {
            let Figure { gate, value, limit, place } = figure;
            let pass = figure.passes();
            println!(
                "| {name} | {gate} | {value:.1e} | {limit:.0e} | {place} | {} |",
                if pass { "yes" } else { "NO" }
            );
            passed &= pass;
        };
        if options.reference {
            let worst = fixtures::off(name, steps);
            let (gate, limit) = ("reference, of NumPy's", fixtures::LIMIT);
            row(&Figure { gate, value: worst.error, limit, place: worst.place });
        }
        for figure in gates::figures(context, &gates::setup(name), steps) {
            row(&figure);
        }
        eprintln!("{name}: {steps} steps, {:.1} s", start.elapsed().as_secs_f64());
    }
    passed
}

fn faults(context: Context) -> bool {
    let mut bench = Bench::new(context, Launch::Graph);
    let all: Vec<Caught> = Fault::ALL.iter().map(|fault| bench.run(*fault)).collect();
    print!("{}", page::faults(&all));
    let missed = all.iter().filter(|caught| !caught.caught());
    let missed: Vec<_> = missed.inspect(|caught| println!("MISSED: {}", caught.fault)).collect();
    println!("{} of {} faults caught", all.len() - missed.len(), all.len());
    missed.is_empty()
}

fn update(context: &Context) -> Result<bool, Failure> {
    let (text, right) = page::text(context, &mut |caught| {
        if !caught.caught() {
            println!("MISSED: {}, {:e}, {:e} without it", caught.fault, caught.value, caught.without);
        }
    });
    if right {
        std::fs::write(page::path(), text)?;
        println!("wrote {}", page::path().display());
    }
    Ok(right)
}
