//! Forms of operands and declarations.
//!
//! Statements and declarations come from two text files. Other forms are made by replacing an
//! operand of the instructions in [`table`](super::table).
//!
//! ptxas stops at the first syntax error. After such an error, it is run again on the lines after
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use ptx_emu::{ErrorKind, Module};

use super::answers::{FormAnswers, VERSION};

/// Statements and declarations, without comments and blank lines.
const STATEMENTS: &str = include_str!("statements.txt");
const DECLARATIONS: &str = include_str!("declarations.txt");

/// The target of statements and declarations, which has every form of operand.
const TARGET: &str = "sm_90a";

/// The declarations that statements use.
const MODULE: &str = "\
.global .align 16 .u32 g[4]; .global .u64 g8; .const .u32 c[4]; .shared .align 16 .u32 sh[4];
.extern .shared .b8 dyn[]; .global .align 16 .u32 gm[4][4]; .global .v2 .u32 gv[4]; .global .texref tx; .global .b8 gb[16];
.func (.reg .u32 fo) fn(.reg .u32 fi) { mov.u32 fo, fi; ret; }
";

/// The parameters and registers that statements use.
const PARAMETERS: &str = ".param .u64 x, .param .u32 y[4], .param .align 16 .b8 z[32]";
const REGISTERS: &str = "\
.reg .pred p, q, %p<10>; .reg .b16 h, %h<40>; .reg .b32 r, s, %r<400>; .reg .b64 l, m, %l<40>; \
.reg .f32 f, %f<9>; .reg .f64 d, %d<9>; .reg .v4 .f32 v; .reg .v2 .b32 w; .local .align 16 .u32 lo[4];";

/// Operands in place of registers and constants.
const VALUES: &[&str] = &[
    "7",
    "-7",
    "+7",
    "(7)",
    "7*2",
    "WARP_SZ",
    "1.5",
    "+1.5",
    "0f3fc00000",
    "0d3ff8000000000000",
    "!%p9",
    "!1",
    "g+8",
    "%r399+4",
    "%tid.x",
    "sh",
];

/// Operands in place of addresses.
const ADDRESSES: &[&str] = &[
    "[g+8]",
    "[sh]",
    "[lo]",
    "[%l39+4*2]",
    "[%l39+-8]",
    "[%r399]",
    "[%h39]",
    "[16]",
    "g[1]",
    "[x]",
];

/// Operands in place of the first element of a vector.
const ELEMENTS: &[&str] = &["7", "+7", "7*2", "WARP_SZ", "1.5", "_"];

/// Returns the lines of a table.
fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Compares ptxas and the emulator on every statement and declaration.
pub(super) fn written(ptxas: &Path, folder: &Path) -> Result<BTreeMap<String, FormAnswers>> {
    let statements: Vec<String> = lines(STATEMENTS).map(str::to_owned).collect();
    let declarations: Vec<String> = lines(DECLARATIONS).map(str::to_owned).collect();
    let kernels: Vec<String> = statements
        .iter()
        .enumerate()
        .map(|(i, line)| kernel(i, line))
        .collect();
    let mut answers = ask(ptxas, folder, TARGET, &statements, &kernels)?;
    answers.extend(ask(ptxas, folder, TARGET, &declarations, &declarations)?);
    Ok(answers)
}

/// Compares ptxas and the emulator on instructions in which an operand is replaced.
///
/// Each of `forms` is an instruction and a target that has it.
pub(super) fn substituted(
    ptxas: &Path,
    folder: &Path,
    forms: &[(String, &'static str)],
) -> Result<BTreeMap<String, FormAnswers>> {
    let mut by_target = BTreeMap::<&str, Vec<String>>::new();
    for (line, target) in forms {
        by_target
            .entry(target)
            .or_default()
            .extend(substitutes(line));
    }

    let mut answers = BTreeMap::new();
    for (target, mut changed) in by_target {
        changed.sort();
        changed.dedup();
        let kernels: Vec<String> = changed
            .iter()
            .enumerate()
            .map(|(i, line)| kernel(i, line))
            .collect();
        answers.extend(ask(ptxas, folder, target, &changed, &kernels)?);
    }

    Ok(answers)
}

/// Returns a kernel with one statement.
fn kernel(number: usize, statement: &str) -> String {
    let bytes = if statement.contains("%b") {
        " .reg .b8 %b<9>;"
    } else {
        ""
    };
    let quads = if statement.contains("%q") {
        " .reg .b128 %q<9>;"
    } else {
        ""
    };
    format!(
        ".visible .entry k{number}({PARAMETERS}) {{ {REGISTERS}{bytes}{quads} {statement} L: E: ret; }}"
    )
}

/// Returns the instruction, and copies in which one operand is replaced.
fn substitutes(line: &str) -> Vec<String> {
    let Some((name, operands)) = line.trim_end_matches(';').split_once(' ') else {
        return Vec::new();
    };

    let operands = split(operands);
    let mut changed = vec![line.to_owned()];
    for (i, operand) in operands.iter().enumerate() {
        let with = |other: &str| {
            let mut operands = operands.clone();
            operands[i] = other.to_owned();
            format!("{name} {};", operands.join(", "))
        };
        // A vector keeps its other elements, and a destination is replaced only by the sink `_`.
        match operand.as_bytes() {
            [b'[', ..] if !operand.contains(',') => {
                changed.extend(ADDRESSES.iter().map(|other| with(other)))
            }
            [b'{', .., b'}'] => {
                let rest = operand.find(',').unwrap_or(operand.len() - 1);
                let element = |other: &&str| with(&format!("{{{other}{}", &operand[rest..]));
                changed.extend(ELEMENTS.iter().map(element));
            }
            [b'%', ..] if i == 0 => changed.push(with("_")),
            [b'%' | b'0'..=b'9', ..] => changed.extend(VALUES.iter().map(|other| with(other))),
            _ => {}
        }
    }

    changed
}

/// Splits operands at the commas outside of brackets and braces.
fn split(operands: &str) -> Vec<String> {
    let mut split = vec![String::new()];
    let mut depth = 0;
    for c in operands.chars() {
        depth += i32::from("[{(".contains(c)) - i32::from("]})".contains(c));
        match split.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => split.push(String::new()),
        }
    }

    split
        .iter()
        .map(|operand| operand.trim().to_owned())
        .collect()
}

/// Compares ptxas and the emulator on lines. `names` has the key of each line's answer.
fn ask(
    ptxas: &Path,
    folder: &Path,
    target: &str,
    names: &[String],
    lines: &[String],
) -> Result<BTreeMap<String, FormAnswers>> {
    let head = format!(".version {VERSION}\n.target {target}\n.address_size 64\n{MODULE}");
    let refusals = refusals(ptxas, folder, target, &head, lines)?;
    let emulated = if lines.is_empty() {
        BTreeMap::new()
    } else {
        emulated(&head, lines)?
    };
    let mut answers = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        let said = emulated.get(&i);
        let answer = FormAnswers {
            taken: !refusals.contains_key(&i),
            runs: said.is_none(),
            unsupported: said.is_some_and(|(kind, _)| matches!(kind, ErrorKind::Unsupported(_))),
            ptxas: refusals.get(&i).cloned().unwrap_or_default(),
            emulator: said.map(|(_, what)| what.clone()).unwrap_or_default(),
            target: "",
        };
        answers.insert(name.clone(), answer);
    }

    // ptxas reports some errors only during code generation, for example about 32-bit addresses.
    for (name, line) in names.iter().zip(lines) {
        let answer = answers.get_mut(name).context("it was just inserted")?;
        if answer.is_lie()
            && let Err(error) = assembled(ptxas, folder, target, &format!("{head}{line}\n"))
        {
            answer.taken = false;
            answer.ptxas = error.to_string();
        }
    }

    Ok(answers)
}

/// Assembles a text, and returns an error if ptxas rejects it.
fn assembled(ptxas: &Path, folder: &Path, target: &str, text: &str) -> Result<()> {
    let source = folder.join("line.ptx");
    fs::write(&source, text)?;
    let output = Command::new(ptxas)
        .args([&format!("-arch={target}"), "-o", "/dev/null"])
        .arg(&source)
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}",
        said.lines().last().unwrap_or("ptxas crashes")
    );
    Ok(())
}

/// Returns the messages of ptxas, by the index of the line that it rejects.
fn refusals(
    ptxas: &Path,
    folder: &Path,
    target: &str,
    head: &str,
    lines: &[String],
) -> Result<BTreeMap<usize, String>> {
    let source = folder.join("operands.ptx");
    let first = head.lines().count() + 1;
    let mut refused = BTreeMap::new();
    let mut ranges: Vec<Range<usize>> = std::iter::once(0..lines.len()).collect();
    while let Some(range) = ranges.pop() {
        if range.is_empty() {
            continue;
        }

        // The last kernel is invalid, so that ptxas stops before code generation.
        let body = lines[range.clone()].join("\n");
        fs::write(
            &source,
            format!("{head}{body}\n.entry last() {{ is.no.instruction; }}\n"),
        )?;
        let output = Command::new(ptxas)
            .args([&format!("-arch={target}"), "-o", "/dev/null"])
            .arg(&source)
            .output()
            .with_context(|| format!("cannot run {}", ptxas.display()))?;
        if output.status.code().is_none() {
            // Bisects the range to find the line that crashes ptxas.
            let middle = range.start + range.len() / 2;
            if range.len() == 1 {
                refused.insert(range.start, "ptxas crashes".to_owned());
            } else {
                ranges.extend([middle..range.end, range.start..middle]);
            }
            continue;
        }

        let said = String::from_utf8_lossy(&output.stderr);
        let mut last = None;
        for line in said.lines() {
            let Some((number, what)) = refusal(line) else {
                continue;
            };

            ensure!(
                number >= first,
                "ptxas rejects the declarations that statements use: {line}"
            );
            let number = range.start + number - first;
            last = last.max(Some(number));
            if number < range.end {
                refused.entry(number).or_insert_with(|| what.to_owned());
            }
        }

        let Some(last) = last else {
            bail!("ptxas names no line of what it rejects: {said}")
        };

        // The invalid last kernel was not reported, so ptxas stopped at a syntax error.
        if last < range.end {
            ranges.push(last + 1..range.end);
        }
    }

    Ok(refused)
}

/// Parses a message of ptxas, and returns the number of the rejected line and the reason.
fn refusal(message: &str) -> Option<(usize, &str)> {
    let (number, what) = message.split_once(", line ")?.1.split_once(';')?;
    if what.trim_start().starts_with("warning") {
        return None;
    }
    Some((
        number.parse().ok()?,
        what.split_once(':').map_or(what, |(_, what)| what).trim(),
    ))
}

/// Returns the errors of the emulator, by the index of the line that it rejects.
fn emulated(head: &str, lines: &[String]) -> Result<BTreeMap<usize, (ErrorKind, String)>> {
    let text = format!("{head}{}\n", lines.join("\n"));
    let errors = match (Module::parse(&text), lines.len()) {
        (Ok(module), _) => module.errors().to_vec(),
        (Err(errors), 1) => errors.0,
        // An error that rejects the whole text hides the errors in other lines, so bisect.
        (Err(_), n) => {
            let (left, right) = lines.split_at(n / 2);
            let mut refused = emulated(head, left)?;
            refused.extend(
                emulated(head, right)?
                    .into_iter()
                    .map(|(number, said)| (number + n / 2, said)),
            );
            return Ok(refused);
        }
    };
    let first = head.lines().count() + 1;
    let mut refused = BTreeMap::new();
    for error in errors {
        let number = (error.line as usize).checked_sub(first);
        let number = number
            .with_context(|| format!("the emulator refuses the first declarations: {error}"))?;
        refused.entry(number).or_insert((error.kind, error.what));
    }

    Ok(refused)
}
