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
#[allow(dead_code)]
mod gates;
#[path = "../tests/it/generators.rs"]
mod generators;
#[path = "../tests/it/hooked.rs"]
mod hooked;
#[path = "../tests/it/losses.rs"]
mod losses;
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
    /// Of the tensors of the step [default: f32; of --losses bf16]
    #[arg(long, value_parser = precision)]
    precision: Option<Precision>,
    /// How a step reaches the device; of a graph the emulator traces the first launch, which takes long
    #[arg(long, default_value = "graph", value_parser = launch)]
    launch: Launch,
    /// Steps of each fixture, in place of its own number; 0 leaves gradients alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=100))]
    steps: Option<u16>,
    /// Plant each fault in what the device runs, in place of the gates of the fixtures
    #[arg(long, conflicts_with_all = ["fixtures", "reference", "steps"])]
    faults: bool,
    /// Hold the losses of 100 steps, in place of the other gates; then with faults planted, which must be told
    #[arg(long, conflicts_with_all = ["faults", "reference"])]
    losses: bool,
    /// Compare the reference with the numbers of NumPy as well
    #[arg(long)]
    reference: bool,
    /// Write train/GATES.md of what the emulator finds
    #[arg(long, conflicts_with_all = ["faults", "reference", "losses", "fixtures", "steps", "launch"])]
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
        _ => ordinal()
            .map(Place::Cuda)
            .ok_or_else(|| "use cuda:N or emu".into()),
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
    if (options.faults || options.update) && options.precision() != Precision::F32 {
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
        Options { losses: true, .. } => compare_losses(&context, options, out),
        _ => hold(&context, options, out),
    }
}

/// A context of the device, through a driver that sees what is loaded and launched.
fn open(place: Place) -> Result<Context, Failure> {
    let (driver, ordinal) = match place {
        Place::Emulator => (Driver::from_library(warpwright_cuda_emu::library())?, 0),
        Place::Cuda(ordinal) => (Driver::load()?, ordinal),
    };
    Ok(Context::new(&hooked::driver(&driver).device(ordinal)?)?)
}

impl Options {
    fn precision(&self) -> Precision {
        let default = if self.losses {
            Precision::Bf16
        } else {
            Precision::F32
        };
        self.precision.unwrap_or(default)
    }

    /// Whether a fixture is named, or all are.
    fn wants(&self, fixture: &str) -> bool {
        self.fixtures.is_empty() || self.fixtures.iter().any(|one| one == fixture)
    }
}

fn hold(context: &Context, options: &Options, out: &mut dyn Write) -> Result<bool, Failure> {
    writeln!(
        out,
        "| fixture | gate | value | limit | farthest | pass |\n|---|---|---|---|---|---|"
    )?;
    let mut passed = true;
    for (name, steps) in FIXTURES.into_iter().filter(|(name, _)| options.wants(name)) {
        let start = Instant::now();
        let steps = options.steps.map_or(steps, usize::from);
        let mut figures = gates::figures(
            context,
            &gates::setup(name),
            options.launch,
            options.precision(),
            steps,
        )?;
        if options.precision() == Precision::Bf16 {
            let all: Vec<_> = gates::all_tiles().collect();
            figures.push(gates::tiles(
                context,
                &gates::setup(name),
                options.launch,
                &all,
            )?);
        }

        if options.reference {
            let (gate, limit, worst) = (
                "reference, of NumPy's",
                fixtures::LIMIT,
                fixtures::off(name, steps),
            );
            figures.push(Figure {
                gate,
                limit,
                value: worst.error,
                place: worst.place,
            });
        }

        for figure in figures {
            let Figure {
                gate,
                value,
                limit,
                place,
            } = &figure;
            let pass = if figure.passes() { "yes" } else { "NO" };
            writeln!(
                out,
                "| {name} | {gate} | {value:.1e} | {limit:.0e} | {place} | {pass} |"
            )?;
            passed &= figure.passes();
        }

        eprintln!(
            "{name}: {steps} steps, {:.1} s",
            start.elapsed().as_secs_f64()
        );
    }

    Ok(passed)
}

/// Prints the losses, and what the same gate says with faults.
fn compare_losses(
    context: &Context,
    options: &Options,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    if let Some(other) = options
        .fixtures
        .iter()
        .find(|name| !losses::FIXTURES.contains(&&name[..]))
    {
        return Err(format!(
            "{other} has no 100 steps; {} have",
            losses::FIXTURES.join(" and ")
        )
        .into());
    }

    let run = losses::Run {
        context,
        launch: options.launch,
        precision: options.precision(),
    };
    let steps = options.steps.map_or(losses::STEPS, usize::from).max(1);
    let mut passed = true;
    writeln!(
        out,
        "| fixture | step | loss in f64 | on the device | apart |\n|---|---|---|---|---|"
    )?;
    for fixture in losses::FIXTURES
        .into_iter()
        .filter(|name| options.wants(name))
    {
        let start = Instant::now();
        let found = run.losses(fixture, steps, None)?;
        for (step, pair) in (1..).zip(&found) {
            let losses::Pair { wanted, found } = pair;
            writeln!(
                out,
                "| {fixture} | {step} | {wanted:.6} | {found:.6} | {:.6} |",
                pair.apart()
            )?;
        }

        let ((apart, step), pass) = (losses::farthest(&found), losses::passes(&found));
        let verdict = if pass { "passed" } else { "MISSED" };
        writeln!(
            out,
            "{verdict}: {fixture}, at most {apart:.4} apart, at step {step}; the limit is {}",
            losses::LIMIT
        )?;
        eprintln!(
            "{fixture}: {steps} steps, {:.1} s",
            start.elapsed().as_secs_f64()
        );
        passed &= pass;
    }

    Ok(passed & tell_faults(run, options, steps, out)?)
}

/// Whether the gate tells each fault that these steps are enough for.
fn tell_faults(
    run: losses::Run<'_>,
    options: &Options,
    most: usize,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    if !options.wants(losses::FAULTY) {
        return Ok(true);
    }

    let mut told = true;
    writeln!(
        out,
        "\n| fault | steps | farthest | told |\n|---|---|---|---|"
    )?;
    for (name, steps) in losses::FAULTS
        .into_iter()
        .filter(|(_, steps)| *steps <= most)
    {
        let fault = Fault::ALL
            .iter()
            .find(|(fault, _)| *fault == name)
            .ok_or("there is no such fault")?
            .1;
        let found = run.losses(losses::FAULTY, steps, Some(fault))?;
        let told_this = !losses::passes(&found);
        let answer = if told_this { "yes" } else { "NO" };
        writeln!(
            out,
            "| {name} | {steps} | {:.4} | {answer} |",
            losses::farthest(&found).0
        )?;
        told &= told_this;
    }

    Ok(told)
}

fn plant(context: Context, launch: Launch, out: &mut dyn Write) -> Result<bool, Failure> {
    let mut bench = Bench::new(context, launch);
    let all = Fault::ALL
        .iter()
        .map(|fault| bench.run(*fault))
        .collect::<Result<Vec<Caught>, _>>()?;
    writeln!(
        out,
        "| fault | gate | fixture | value | limit | without the fault | from f64 with it |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for Caught {
        fault,
        case,
        value,
        without,
        meant,
        ..
    } in &all
    {
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
