//! Conversion of findings to JSON.

use ptx_emu::check::{Check, CheckReport, ElementMismatch, Finding, Problem};
use ptx_emu::{Fault, RustPlace, SourcePlace};
use serde_json::{Value, json};

use super::{replay, words};
use crate::command::invocation::Invocation;

/// Returns a report as JSON.
pub(crate) fn report(
    file: &str,
    check: &Check<'_>,
    report: &CheckReport,
    launch_notes: &[String],
    invocation: Invocation,
) -> Value {
    let of_report = report.notes.iter().map(|note| note.to_string());
    let notes: Vec<String> = launch_notes.iter().cloned().chain(of_report).collect();
    json!({
        "file": file,
        "kernel": check.kernel.name,
        "grid": check.grid,
        "block": check.block,
        "schedules": report.schedules,
        "races": check.trace == ptx_emu::Trace::On,
        "findings": report.findings.iter().map(|f| finding(check, f, invocation)).collect::<Vec<_>>(),
        "notes": notes,
        "lane_instructions": report.stats.lane_instructions,
    })
}

/// Returns a finding as JSON.
fn finding(check: &Check<'_>, finding: &Finding, invocation: Invocation) -> Value {
    let mut value = match &finding.problem {
        Problem::Fault(fault) => of_fault(check, fault),
        Problem::Mismatch(place) | Problem::Changed(place) => of_place(place),
    };
    value["class"] = finding.problem.class().into();
    value["seed"] = finding.seed.into();
    value["schedules"] = finding.schedules.into();
    value["blocks"] = finding.blocks.into();
    value["replay"] = replay::command(invocation, finding.seed).into();
    value
}

/// Returns the part of a finding that describes a fault.
fn of_fault(check: &Check<'_>, fault: &Fault) -> Value {
    let element = words::element(check, fault);
    let other = fault.other.as_ref().map(|other| {
        let mut place = source(&other.place);
        place["who"] = other.who.clone().into();
        place["did"] = other.did.into();
        place
    });
    json!({
        "what": fault.what,
        "instead": fault.instead,
        "kernel": fault.kernel,
        "block": fault.block,
        "thread": fault.thread,
        "lanes": fault.lanes,
        "place": fault.place.as_ref().map(source),
        "other": other,
        "address": fault.address.map(|address| format!("0x{address:x}")),
        "memory": fault.allocation.as_ref().map(|a| a.label.clone()),
        "element": element.map(|(_, index)| index),
    })
}

/// Returns the part of a finding that describes a wrong element.
fn of_place(place: &ElementMismatch) -> Value {
    let ElementMismatch {
        buffer,
        index,
        found,
        wanted,
        wrong,
        ..
    } = place;
    json!({ "memory": buffer, "element": index, "found": found, "wanted": wanted, "wrong": wrong })
}

/// Returns an instruction with its source location.
fn source(place: &SourcePlace) -> Value {
    let of = |s: &RustPlace| json!({ "file": s.file, "line": s.line, "column": s.column });
    let source = place.rust.as_ref().map(of);
    let inlined_at: Vec<Value> = place.callers.iter().map(of).collect();
    json!({
        "line": place.line,
        "column": place.column,
        "text": place.text,
        "source": source,
        "inlined_at": inlined_at,
    })
}
