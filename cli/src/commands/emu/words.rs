//! Findings in words.

use std::fmt::Write;

use ptx_emu::check::{Buffer, Check, CheckReport, ElementMismatch, Finding, Problem};
use ptx_emu::{Class, Fault, RustPlace, SourcePlace};

use super::bind::role;
use super::command_line;
use crate::terminal::counted;

/// Elements of a buffer that are shown.
const SHOWN: usize = 8;

/// A finding: its class, both places, whose memory it is, and how it is shown again.
pub(crate) fn finding(
    check: &Check<'_>,
    number: usize,
    finding: &Finding,
    schedules: u64,
) -> String {
    let mut text = format!("finding {number}: {}", finding.problem.class());
    match &finding.problem {
        Problem::Fault(fault) => fault_lines(&mut text, check, fault),
        Problem::Mismatch(place) => mismatch(&mut text, place),
        Problem::Changed(place) => {
            mismatch(&mut text, place);
            line(&mut text, "do", "give it as inout, or write elsewhere");
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
    line(&mut text, "replay", &command_line::replay(finding.seed));
    text
}

/// Calls of a finding that are shown, the latest first.
pub(crate) const MOST_CALLS: usize = 8;

/// Adds a line under a finding.
pub(crate) fn line(text: &mut String, head: &str, rest: &str) {
    let _ = write!(text, "\n  {head:<7} {}", rest.replace('\n', "\n          "));
}

fn fault_lines(text: &mut String, check: &Check<'_>, fault: &Fault) {
    let _ = write!(text, ": {}", fault.what);
    let ([bx, by, bz], [tx, ty, tz]) = (fault.block, fault.thread);
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

/// The place in the source, if it is known, where that was inlined, innermost call first, and the place in the PTX.
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

/// The buffer of a fault and its element, or where else the address lies.
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

/// The buffer of a check that a fault is about, and the element, which may lie outside.
pub(crate) fn element<'a>(check: &'a Check<'_>, fault: &Fault) -> Option<(&'a Buffer, i64)> {
    let (address, allocation) = (fault.address?, fault.allocation.as_ref()?);
    let is = |buffer: &&Buffer| {
        buffer.name == allocation.label && buffer.bytes() as u64 == allocation.bytes
    };
    let buffer = check.buffers.iter().find(is)?;
    let offset = address.wrapping_sub(allocation.base) as i64;
    Some((buffer, offset.div_euclid(buffer.element.bytes() as i64)))
}

/// What a buffer is, what it held, or what it holds.
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
        role(buffer.role),
        element.name(),
        shown.join(", ")
    )
}

/// The last line.
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
