//! `cargo xtask forms`: which forms of instructions ptxas takes, and whether the emulator says the same.
//!
//! [`table`] gives more names than there are instructions. Of each a kernel of one instruction is made and shown to both.
//! What ptxas takes the emulator must run or call unsupported, and what ptxas refuses for every target the emulator must
//! not take. The command lists where they differ; [`check`] is the part of it that a change must pass.

mod form;
mod matrices;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ptx_emu::{ErrorKind, Module, RefusedKernel};

use crate::cuda_tools;
use form::Form;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Opcodes to try; all of them by default
    opcodes: Vec<String>,
    /// Also list the forms that ptxas takes and the emulator does not have
    #[arg(long)]
    unsupported: bool,
    /// Also list the forms that ptxas refuses and the emulator takes
    #[arg(long)]
    taken: bool,
    /// List what ptxas says about each form that it refuses
    #[arg(long)]
    refusals: bool,
}

/// Those that between them have every instruction.
const TARGETS: &[&str] = &["sm_90a", "sm_100a", "sm_103a", "sm_120a"];
/// The newest `.version` of the ptxas whose answers count.
const VERSION: &str = "9.5";
/// Kernels in a text.
const BATCH: usize = 2000;

/// What was said of a form, for the target where most was said in favour.
#[derive(Clone, Debug, Default)]
struct Answer {
    taken: bool,
    /// Whether the emulator would run it.
    runs: bool,
    /// Whether the emulator calls it unsupported.
    unsupported: bool,
    ptxas: String,
    emulator: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |form: &Form| {
        let opcode = form.name.split('.').next().unwrap_or_default();
        args.opcodes.is_empty() || args.opcodes.iter().any(|o| o == opcode)
    };
    let forms: Vec<Form> = table::forms().into_iter().filter(wanted).collect();
    let answers = ask(&forms)?;
    let found = |wanted: fn(&Answer) -> bool| answers.iter().filter(move |(_, a)| wanted(a));
    for (name, a) in found(is_lie) {
        println!("called ill-formed: {name}: {}", a.emulator);
    }
    for (name, a) in found(is_lax).filter(|_| args.taken) {
        println!("refused by ptxas, taken here: {name}: {}", a.ptxas);
    }
    for (name, _) in found(|a| a.taken && a.unsupported).filter(|_| args.unsupported) {
        println!("unsupported: {name}");
    }
    for (name, a) in found(|a| !a.taken).filter(|_| args.refusals) {
        let here = if a.unsupported { "called unsupported" } else { "refused" };
        println!("{here}: {name}: {}", a.ptxas);
    }
    println!("{}", summary(&answers));
    Ok(())
}

/// That no form which ptxas takes is called ill-formed.
pub(crate) fn check() -> Result<()> {
    let answers = ask(&table::forms())?;
    let wrong: Vec<&str> = answers.iter().filter(|(_, a)| is_lie(a)).map(|(name, _)| name.as_str()).collect();
    println!("{}", summary(&answers));
    ensure!(
        wrong.is_empty(),
        "ptxas takes what the emulator calls ill-formed: {}; decode it, or add it to ptx-emu/src/isa/manual.rs",
        wrong.join(", ")
    );
    Ok(())
}

fn is_lie(a: &Answer) -> bool {
    a.taken && !a.runs && !a.unsupported
}

fn is_lax(a: &Answer) -> bool {
    !a.taken && a.runs
}

fn summary(answers: &BTreeMap<String, Answer>) -> String {
    let count = |wanted: fn(&Answer) -> bool| answers.values().filter(|a| wanted(a)).count();
    format!(
        "{} names, {} of them forms that ptxas takes: {} run, {} are unsupported, {} are called ill-formed; of the others, {} \
         are taken here and {} called unsupported",
        answers.len(),
        count(|a| a.taken),
        count(|a| a.taken && a.runs),
        count(|a| a.taken && a.unsupported),
        count(is_lie),
        count(is_lax),
        count(|a| !a.taken && a.unsupported),
    )
}

fn ask(forms: &[Form]) -> Result<BTreeMap<String, Answer>> {
    let (ptxas, folder) = (cuda_tools::ptxas()?, tempfile::tempdir()?);
    let mut answers = BTreeMap::<String, Answer>::new();
    for target in TARGETS {
        for batch in forms.chunks(BATCH) {
            let text = text(target, batch);
            let refusals = refusals(&ptxas, folder.path(), target, &text)?;
            let emulated = emulated(&text)?;
            for (line, form) in (FIRST..).zip(batch) {
                let said = emulated.get(&line);
                let answer = Answer {
                    taken: !refusals.contains_key(&line),
                    runs: said.is_none(),
                    unsupported: said.is_some_and(|(unsupported, _)| *unsupported),
                    ptxas: refusals.get(&line).cloned().unwrap_or_default(),
                    emulator: said.map(|(_, what)| what.clone()).unwrap_or_default(),
                };
                let kept = answers.entry(form.name.clone()).or_default();
                if rank(&answer) >= rank(kept) {
                    *kept = answer;
                }
            }
        }
    }
    Ok(answers)
}

/// A form that a target has counts with what the emulator says there.
fn rank(a: &Answer) -> u8 {
    2 * u8::from(a.taken) + u8::from(a.runs || a.unsupported)
}

/// The line of the first form.
const FIRST: u32 = 4;

/// A kernel in a line for each form. The last one is wrong, so that ptxas stops before it makes code.
fn text(target: &str, forms: &[Form]) -> String {
    let mut text = format!(".version {VERSION}\n.target {target}\n.address_size 64\n");
    for (i, form) in forms.iter().enumerate() {
        let more = [(".b128", 'q'), (".b8", 'b')].map(|(ty, kind)| {
            if form.line.contains(&format!("%{kind}")) {
                format!(".reg {ty} %{kind}<9>; ")
            } else {
                String::new()
            }
        });
        text += &format!(
            ".visible .entry k{i}() {{ .reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<400>; .reg .b64 %l<40>; {}{} \
             E: ret; }}\n",
            more.concat(),
            form.line
        );
    }
    text + ".visible .entry last() { is.no.instruction; }\n"
}

/// What ptxas says of the lines that it refuses.
fn refusals(ptxas: &Path, folder: &Path, target: &str, text: &str) -> Result<BTreeMap<u32, String>> {
    let source = folder.join("forms.ptx");
    fs::write(&source, text)?;
    let arch = format!("-arch={target}");
    let output = Command::new(ptxas)
        .args([arch.as_str(), "-o", "/dev/null"])
        .arg(&source)
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines = BTreeMap::new();
    for line in said.lines() {
        let place = line.split_once(", line ").and_then(|(_, rest)| rest.split_once(';'));
        let Some((number, what)) = place.filter(|(_, what)| what.trim_start().starts_with("error")) else {
            continue;
        };
        let what = what.split_once(':').map_or(what, |(_, what)| what).trim();
        lines.entry(number.parse()?).or_insert_with(|| what.to_owned());
    }
    let last = FIRST + text.lines().count() as u32 - FIRST;
    ensure!(lines.remove(&last).is_some(), "ptxas did not read to the end: {said}");
    Ok(lines)
}

/// What the emulator says of the lines that it refuses, and whether it calls them unsupported.
fn emulated(text: &str) -> Result<BTreeMap<u32, (bool, String)>> {
    let module = Module::parse(text).map_err(|e| anyhow::anyhow!("{e}"))?;
    let line = |kernel: &RefusedKernel| {
        let error = kernel.errors.0.first()?;
        Some((error.line, (matches!(error.kind, ErrorKind::Unsupported(_)), error.what.clone())))
    };
    Ok(module.refused().filter_map(line).collect())
}
