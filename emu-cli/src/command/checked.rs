//! Check of a single kernel, launched in several schedules.

use std::io::{self, Write};
use std::path::Path;
use std::thread::available_parallelism;

use ptx_emu::check::{Check, CheckError, CheckReport};
use ptx_emu::{Faults, Followed, KernelError, Module, Trace};

use super::args::{CheckArgs, LaunchArgs};
use super::bind;
use super::element_types;
use super::extents;
use super::invocation::Invocation;
use super::report::{json, profile, words};
use super::values::argument::EmuArgument;
use crate::failure::Failure;
use crate::host_memory;
use crate::misspelling::is_typo;
use crate::output::{Output, OutputContent};
use crate::terminal::printable;

/// Runs a kernel and prints the findings.
///
/// # Errors
/// Returns an error if the check cannot run, or if there are findings.
pub(crate) fn run(
    path: &Path,
    prepared: &PreparedCheck<'_>,
    json: Option<&Path>,
    invocation: Invocation,
) -> Result<(), Failure> {
    let check = &prepared.check;
    let output = json.map(|file| Output {
        option: "--json",
        path: file,
        inputs: vec![("PTX", path)],
        content: OutputContent::Aside,
    });
    output.as_ref().map_or(Ok(()), Output::check)?;
    let report = check
        .run()
        .map_err(|error| Failure::Input(error.to_string()))?;
    if let Some(output) = output {
        let file = path.display().to_string();
        let value = json::report(&file, check, &report, &prepared.notes, invocation);
        output.write(|sink| sink.write(format!("{value:#}\n").as_bytes()))?;
    }

    print(prepared, &report, invocation)?;
    if report.findings.is_empty() {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}

/// A check, and notes about the options that describe it.
pub(crate) struct PreparedCheck<'a> {
    check: Check<'a>,
    notes: Vec<String>,
}

/// Returns the check that the options describe.
///
/// # Errors
/// Returns a message if an option does not suit the kernel, or if the size of a block is unknown.
pub(crate) fn prepare<'a>(
    module: &'a Module,
    kernel: &str,
    launch: &LaunchArgs,
    checks: &CheckArgs,
    listing: &str,
) -> Result<PreparedCheck<'a>, String> {
    let mut check = Check::new(module, kernel).map_err(|error| match &error {
        CheckError::Kernel(KernelError::NotFound { known, .. }) => {
            let meant = known.iter().find(|known| is_typo(kernel, known));
            let tip = meant.map(|name| format!("; did you mean {name}?"));
            format!("{error}{}", tip.unwrap_or_default())
        }
        _ => error.to_string(),
    })?;
    check.cluster = launch.cluster;
    check.dynamic_shared = launch.smem;
    check.cooperative = launch.cooperative;
    let schedules = if checks.trace.is_some() || checks.stats {
        1
    } else {
        checks.schedules
    };
    check.seeds = checks.seed.map_or(0..schedules, |seed| seed..seed + 1);
    check.trace = if checks.race { Trace::On } else { Trace::Off };
    check.faults = if checks.all {
        Faults::EachBlock
    } else {
        Faults::First
    };
    check.trace_bytes = checks.race_memory;
    check.strict = checks.strict;
    check.arithmetic = checks.arithmetic;
    check.provenance = checks.provenance;
    check.limit = checks.timeout;

    // The time limit ends a launch. The limit on instructions is practically infinite.
    check.fuel = u64::MAX >> 1;
    check.profile = checks.stats;
    if let Some(reason) =
        host_memory::shortage(bytes(&launch.args, check.seeds.end - check.seeds.start))
    {
        return Err(format!(
            "{reason}; make the buffers of --arg smaller, or try fewer --schedules"
        ));
    }

    let buffers = bind::bind(
        &mut check,
        &launch.args,
        &launch.constants,
        launch.data_seed,
    )?;
    buffers.expect(&mut check, &checks.expect)?;

    // A wrong argument is reported before a missing size, because the error about the size proposes
    // to list the file, which also proposes arguments.
    let extents = extents::choose(check.kernel, launch, listing)?;
    check.grid = extents.grid;
    check.block = extents.block;
    if let Some(thread) = checks.trace {
        let [block, thread] = thread.within(check.grid, check.block)?;
        check.followed = Some(Followed {
            block,
            thread,
            most: profile::MOST_STEPS,
        });
    }

    let mut notes = extents.notes;
    notes.extend(element_types::notes(check.kernel, &launch.args, &check));
    Ok(PreparedCheck { check, notes })
}

/// Returns the memory that the buffers of all concurrent schedules need, in bytes.
///
/// The initial content exists once. Each concurrent schedule has its own memory with a shadow bit
/// per byte, and a copy of the result.
fn bytes(args: &[EmuArgument], schedules: u64) -> u64 {
    let concurrent = schedules.min(available_parallelism().map_or(1, usize::from) as u64);
    let size = args
        .iter()
        .map(EmuArgument::bytes)
        .fold(0, u64::saturating_add);
    size.saturating_add(
        size.saturating_add(size / 8)
            .saturating_add(size)
            .saturating_mul(concurrent),
    )
}

/// Prints the report of a check.
fn print(
    prepared: &PreparedCheck<'_>,
    report: &CheckReport,
    invocation: Invocation,
) -> Result<(), Failure> {
    let PreparedCheck { check, notes } = prepared;
    let mut out = io::stdout().lock();
    if check.followed.is_some() {
        profile::steps(&mut out, &report.steps)?;
        writeln!(out)?;
    }

    if let Some(counted) = &report.profile {
        profile::profile(&mut out, counted)?;
        writeln!(out)?;
    }

    for (i, finding) in report.findings.iter().enumerate() {
        let text = words::finding(check, i + 1, finding, report.schedules, invocation);
        writeln!(out, "{}\n", printable(&text))?;
    }

    // After a finding, the content of the buffers is not meaningful.
    if report.findings.is_empty() {
        for buffer in report
            .buffers
            .iter()
            .filter(|buffer| buffer.role != ptx_emu::check::Role::In)
        {
            writeln!(out, "{}", printable(&words::buffer(buffer)))?;
        }
    }

    for note in notes {
        writeln!(out, "note: {}", printable(note))?;
    }
    for note in &report.notes {
        writeln!(out, "note: {}", printable(&note.to_string()))?;
    }

    if check.trace == Trace::Off && check.grid != [1; 3] {
        writeln!(
            out,
            "note: races on global memory were not checked; --race checks them"
        )?;
    }

    writeln!(out, "{}", words::summary(report))?;
    Ok(())
}
