//! A kernel of a file, launched under several schedules.

use std::io::{self, Write};
use std::path::Path;
use std::thread::available_parallelism;

use ptx_emu::check::{Check, CheckReport};
use ptx_emu::{Faults, Followed, Module, Trace};

use super::argument::Argument;
use super::{CheckArgs, LaunchArgs, bind, json, profile, words};
use crate::emulation;
use crate::failure::Failure;
use crate::output::{Content, Output};
use crate::terminal::printable;

/// Runs a kernel and prints what is found.
pub(crate) fn run(
    path: &Path,
    module: &Module,
    kernel: &str,
    launch: &LaunchArgs,
    checks: &CheckArgs,
) -> Result<(), Failure> {
    let check = prepare(module, kernel, launch, checks).map_err(Failure::Input)?;
    let output = checks.json.as_deref().map(|file| Output {
        option: "--json",
        path: file,
        inputs: vec![("PTX", path)],
        content: Content::Aside,
    });
    output.as_ref().map_or(Ok(()), Output::check)?;
    let report = check
        .run()
        .map_err(|error| Failure::Input(error.to_string()))?;
    if let Some(output) = output {
        let value = json::report(&path.display().to_string(), &check, &report);
        output.write(|sink| sink.write(format!("{value:#}\n").as_bytes()))?;
    }
    print(&check, &report)?;
    if report.findings.is_empty() {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}

/// The check that the options ask for.
pub(crate) fn prepare<'a>(
    module: &'a Module,
    kernel: &str,
    launch: &LaunchArgs,
    checks: &CheckArgs,
) -> Result<Check<'a>, String> {
    let mut check = Check::new(module, kernel).map_err(|error| error.to_string())?;
    check.grid = launch.grid;
    check.block = launch.block.or(check.kernel.reqntid).unwrap_or([1; 3]);
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
    check.fuel = u64::MAX >> 1;
    check.profile = checks.stats;
    if let Some(thread) = checks.trace {
        let [block, thread] = thread.within(check.grid, check.block)?;
        check.followed = Some(Followed {
            block,
            thread,
            most: profile::MOST_STEPS,
        });
    }
    if let Some(reason) = emulation::room(bytes(&launch.args, check.seeds.end - check.seeds.start))
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
    Ok(check)
}

/// Bytes that buffers take: what they begin with, and for each schedule that runs beside others their storage, a bit for
/// each byte of it, and what they hold afterwards.
fn bytes(args: &[Argument], schedules: u64) -> u64 {
    let beside = schedules.min(available_parallelism().map_or(1, usize::from) as u64);
    let size = args
        .iter()
        .map(Argument::bytes)
        .fold(0, u64::saturating_add);
    size.saturating_add(
        size.saturating_add(size / 8)
            .saturating_add(size)
            .saturating_mul(beside),
    )
}

fn print(check: &Check<'_>, report: &CheckReport) -> Result<(), Failure> {
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
        let text = words::finding(check, i + 1, finding, report.schedules);
        writeln!(out, "{}\n", printable(&text))?;
    }
    if report.findings.is_empty() {
        for buffer in report
            .buffers
            .iter()
            .filter(|buffer| buffer.role != ptx_emu::check::Role::In)
        {
            writeln!(out, "{}", printable(&words::buffer(buffer)))?;
        }
    }
    for note in &report.notes {
        writeln!(out, "note: {}", printable(&note.to_string()))?;
    }
    if check.trace == Trace::Off && check.grid != [1; 3] {
        writeln!(
            out,
            "note: races on global memory were not looked for; --race does"
        )?;
    }
    writeln!(out, "{}", words::summary(report))?;
    Ok(())
}
