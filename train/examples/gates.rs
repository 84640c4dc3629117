//! The gates of a training step, on a GPU or on the emulator: fixture by fixture, or fault by fault.
//!
//! It holds the fixtures, so it runs on a machine without the repository. Exit code 1 says that a gate was missed, 2 that
//! it could not run.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use warpwright_driver::{Context, Driver};
use warpwright_train::step::{Launch, Precision};

#[path = "../tests/it/compare.rs"]
mod compare;
#[path = "../tests/it/device_faults.rs"]
mod device_faults;
#[path = "../tests/it/faults.rs"]
#[allow(dead_code)] // The tests use the rest, here and below.
mod faults;
#[path = "../tests/it/faulty/mod.rs"]
mod faulty;
#[path = "../tests/it/fixtures.rs"]
#[allow(dead_code)]
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
    #[arg(long, default_value = "f32", value_parser = precision)]
    precision: Precision,
    /// How a step reaches the device; of a graph the emulator traces the first launch, which takes long
    #[arg(long, default_value = "graph", value_parser = launch)]
    launch: Launch,
    /// Steps of each fixture, in place of its own number; 0 leaves gradients alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=100))]
    steps: Option<u16>,
    /// Plant each fault in what the device runs, in place of the gates of the fixtures
    #[arg(long, conflicts_with_all = ["fixtures", "reference", "steps"])]
    faults: bool,
    /// Compare the reference with the numbers of NumPy as well
    #[arg(long)]
    reference: bool,
    /// Write train/GATES.md of what the emulator finds
    #[arg(long, conflicts_with_all = ["faults", "reference", "fixtures", "steps", "launch"])]
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

fn launch(text: &str) -> Result<Launch, String> {
    match text {
        "graph" => Ok(Launch::Graph),
        "eager" => Ok(Launch::Eager),
        _ => Err("use graph or eager".into()),
    }
}

fn precision(text: &str) -> Result<Precision, String> {
    match text {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        _ => Err("use f32 or bf16".into()),
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
    if (options.faults || options.update) && options.precision != Precision::F32 {
        return Err("faults are planted in the step in f32; leave --precision out".into());
    }
    if options.update && options.device != Place::Emulator {
        return Err("train/GATES.md is of the emulator; leave --device out, or --update".into());
    }
    let context = open(options.device)?;
    let out = &mut std::io::stdout();
    writeln!(out, "{}", context.device())?;
    match options {
        Options { update: true, .. } => update(&context, out),
        Options { faults: true, .. } => plant(context, options.launch, out),
        _ => hold(&context, options, out),
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

fn hold(context: &Context, options: &Options, out: &mut dyn Write) -> Result<bool, Failure> {
    writeln!(out, "| fixture | gate | value | limit | farthest | pass |\n|---|---|---|---|---|---|")?;
    let wanted = |name: &str| options.fixtures.is_empty() || options.fixtures.iter().any(|one| one == name);
    let mut passed = true;
    for (name, steps) in FIXTURES.into_iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        let steps = options.steps.map_or(steps, usize::from);
        let mut figures =
            gates::figures(context, &gates::setup(name), options.launch, options.precision, steps)?;
        if options.reference {
            let (gate, limit, worst) = ("reference, of NumPy's", fixtures::LIMIT, fixtures::off(name, steps));
            figures.push(Figure { gate, limit, value: worst.error, place: worst.place });
        }
        for figure in figures {
            let Figure { gate, value, limit, place } = &figure;
            let pass = if figure.passes() { "yes" } else { "NO" };
            writeln!(out, "| {name} | {gate} | {value:.1e} | {limit:.0e} | {place} | {pass} |")?;
            passed &= figure.passes();
        }
        eprintln!("{name}: {steps} steps, {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(passed)
}

fn plant(context: Context, launch: Launch, out: &mut dyn Write) -> Result<bool, Failure> {
    let mut bench = Bench::new(context, launch);
    let all = Fault::ALL.iter().map(|fault| bench.run(*fault)).collect::<Result<Vec<Caught>, _>>()?;
    writeln!(out, "| fault | gate | fixture | value | limit | without the fault | from f64 with it |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for Caught { fault, case, value, without, meant, .. } in &all {
        let (gate, limit) = (case.gate(), case.limit());
        writeln!(
            out,
            "| {fault} | {gate} | {case} | {value:.1e} | {limit:.0e} | {without:.1e} | {meant:.1e} |"
        )?;
    }
    verdict(&all, out)
}

fn verdict(all: &[Caught], out: &mut dyn Write) -> Result<bool, Failure> {
    let caught = all.iter().filter(|caught| caught.caught()).count();
    for missed in all.iter().filter(|caught| !caught.caught()) {
        writeln!(out, "MISSED: {}", missed.fault)?;
    }
    writeln!(out, "{caught} of {} faults caught", all.len())?;
    Ok(caught == all.len())
}

/// Writes the page, if all is as it must be.
fn update(context: &Context, out: &mut dyn Write) -> Result<bool, Failure> {
    let (text, all) = page::text(context)?;
    let right = verdict(&all, out)?;
    if right {
        std::fs::write(page::path(), text)?;
        writeln!(out, "wrote {}", page::path().display())?;
    }
    Ok(right)
}
