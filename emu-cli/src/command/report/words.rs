//! Text output of findings.

use std::fmt::Write;

use ptx_emu::check::{Buffer, Check, CheckReport, ElementMismatch, Finding, Problem};
use ptx_emu::{Class, Fault, RustPlace, SourcePlace};

use super::replay;
use crate::command::invocation::Invocation;
use crate::command::values::value::role_name;
use crate::terminal::counted;

/// The number of elements of a buffer that are shown.
const SHOWN: usize = 8;

/// Formats a finding: class, instructions, memory, advice, and the command that reproduces it.
pub(crate) fn finding(
    check: &Check<'_>,
    number: usize,
    finding: &Finding,
    schedules: u64,
    invocation: Invocation,
) -> String {
    let mut text = format!("finding {number}: {}", finding.problem.class());
    match &finding.problem {
        Problem::Fault(fault) => fault_lines(&mut text, check, fault),
        Problem::Mismatch(place) => mismatch(&mut text, place),
        Problem::Changed(place) => {
            mismatch(&mut text, place);
            line(
                &mut text,
                "do",
                "pass the buffer as inout, or write elsewhere",
            );
        }
    }

    let blocks = match finding.blocks {
        0 | 1 => String::new(),
        blocks => format!(", {blocks} blocks in all"),
    };
    let seen = format!(
        "in {} of {schedules} schedules, first with seed {}{blocks}",
        finding.schedules, finding.seed
    );
    line(&mut text, "seen", &seen);
    line(
        &mut text,
        "replay",
        &replay::command(invocation, finding.seed),
    );
    text
}

/// The largest number of calls that are shown for a finding, innermost first.
pub(crate) const MOST_CALLS: usize = 8;

/// Appends a line to a finding. Further lines of `rest` are indented.
pub(crate) fn line(text: &mut String, head: &str, rest: &str) {
    let _ = write!(text, "\n  {head:<7} {}", rest.replace('\n', "\n          "));
}

/// Appends the lines about a fault.
fn fault_lines(text: &mut String, check: &Check<'_>, fault: &Fault) {
    let _ = write!(text, ": {}", fault.what);
    let [bx, by, bz] = fault.block;
    let [tx, ty, tz] = fault.thread;
    line(
        text,
        "kernel",
        &format!(
            "{}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})",
            fault.kernel
        ),
    );
    if let Some(at) = &fault.place {
        line(text, "at", &place(at));
    }
    for call in fault.calls.iter().take(MOST_CALLS) {
        line(text, "called", &place(call));
    }

    if let Some(other) = &fault.other {
        line(
            text,
            "and",
            &format!("{} {} at {}", other.who, other.did, place(&other.place)),
        );
    }

    if let Some(memory) = memory(check, fault) {
        line(text, "memory", &memory);
    }

    // The advice about a full record names an option of this program, which the emulator does not
    // know.
    if fault.class == Class::TraceFull {
        line(
            text,
            "do",
            "raise --race-memory, or launch fewer blocks or smaller buffers",
        );
    } else if !fault.instead.is_empty() {
        line(text, "do", fault.instead);
    }
}

/// Appends the lines about a wrong element.
fn mismatch(text: &mut String, place: &ElementMismatch) {
    let ElementMismatch {
        buffer,
        index,
        found,
        wanted,
        wrong,
        count,
        ..
    } = place;
    let _ = write!(text, ": {buffer}[{index}] is {found}, not {wanted}");
    line(
        text,
        "memory",
        &format!("{buffer}, {wrong} of {count} elements are wrong"),
    );
}

/// Formats an instruction: its source location with the inlined calls (innermost first), and its
/// line of PTX.
pub(crate) fn place(place: &SourcePlace) -> String {
    let ptx = format!("PTX line {}: {}", place.line, place.text);
    let source = |s: &RustPlace| format!("{}:{}:{}", s.file, s.line, s.column);
    let Some(inner) = &place.rust else { return ptx };
    let callers = place
        .callers
        .iter()
        .map(|caller| format!(" inlined at {}", source(caller)));
    format!("{}{}, {ptx}", source(inner), callers.collect::<String>())
}

/// Returns the buffer and the element that a fault accessed, or a description of the address.
pub(crate) fn memory(check: &Check<'_>, fault: &Fault) -> Option<String> {
    let location = fault.location()?;
    match element(check, fault) {
        Some((buffer, index)) => Some(format!(
            "{}[{index}] of {} elements of {}: {location}",
            buffer.name,
            buffer.count,
            buffer.element.name()
        )),
        None => Some(location),
    }
}

/// Returns the buffer that a fault accessed and the index of the element, which may be out of
/// bounds.
pub(crate) fn element<'a>(check: &'a Check<'_>, fault: &Fault) -> Option<(&'a Buffer, i64)> {
    let address = fault.address?;
    let allocation = fault.allocation.as_ref()?;
    let is = |buffer: &&Buffer| {
        buffer.name == allocation.label && buffer.bytes() as u64 == allocation.bytes
    };
    let buffer = check.buffers.iter().find(is)?;
    let offset = address.wrapping_sub(allocation.base) as i64;
    Some((buffer, offset.div_euclid(buffer.element.bytes() as i64)))
}

/// Formats a buffer with its first elements.
pub(crate) fn buffer(buffer: &Buffer) -> String {
    let Buffer {
        name,
        element,
        count,
        ..
    } = buffer;
    let bytes = buffer.contents.as_deref().unwrap_or(&[]);
    let shown: Vec<String> = bytes
        .chunks_exact(element.bytes())
        .take(SHOWN)
        .map(|b| element.show(b))
        .collect();
    let more = if *count > SHOWN { ", .." } else { "" };
    format!(
        "{name}: {} {}[{count}] = {}{more}",
        role_name(buffer.role),
        element.name(),
        shown.join(", ")
    )
}

/// Returns the last line of the report.
pub(crate) fn summary(report: &CheckReport) -> String {
    let schedules = counted(report.schedules as usize, "schedule");
    let executed = report.stats.lane_instructions;
    match report.findings.len() {
        0 => format!(
            "nothing found in {schedules}; {executed} instructions in each, over all threads"
        ),
        n => format!("{} in {schedules}", counted(n, "finding")),
    }
}
