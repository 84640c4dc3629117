//! `cargo xtask forms`: compares the emulator's parser with ptxas, form by form.
//!
//! A form is an instruction or a declaration. [`table`] lists the names of instructions, including
//! combinations that do not exist. [`operands`] lists operands and declarations. Each form is
//! passed to ptxas and to the emulator. The emulator must run a form that ptxas accepts, or report
//! that it is not supported. `docs/checker/ptx-forms.tsv` lists the forms for which the answers
//! differ, and [`check`] compares that list with the current answers.

mod answers;
mod form;
mod matrices;
mod operands;
mod page;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ptx_emu::{ErrorKind, Module, RefusedKernel};

use crate::{cuda_tools, paths};
use answers::{Answers, Comparison, FormAnswers, VERSION};
use form::InstructionForm;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Opcodes to try [default: all, and all forms of operands and declarations]
    #[arg(conflicts_with = "update")]
    opcodes: Vec<String>,
    /// List the forms that ptxas accepts and the emulator does not have
    #[arg(long)]
    unsupported: bool,
    /// List the forms that ptxas rejects and the emulator accepts
    #[arg(long)]
    taken: bool,
    /// List the message of ptxas for each form that it rejects
    #[arg(long)]
    refusals: bool,
    /// Write docs/checker/ptx-forms.tsv, and the counts in docs/checker/ptx.md
    #[arg(long)]
    update: bool,
}

/// Targets that together have every instruction.
const TARGETS: [&str; 4] = ["sm_90a", "sm_100a", "sm_103a", "sm_120a"];
/// The number of kernels in a text.
const BATCH: usize = 2000;

/// Compares the forms, prints the differences that were requested, and updates the files.
pub(crate) fn run(args: &Args) -> Result<()> {
    let comparison = if args.opcodes.is_empty() {
        compare()?
    } else {
        let wanted = |form: &InstructionForm| {
            let opcode = form.name.split('.').next().unwrap_or_default();
            args.opcodes.iter().any(|o| o == opcode)
        };
        let forms: Vec<InstructionForm> = table::forms().into_iter().filter(wanted).collect();
        Comparison {
            names: ask(&forms)?,
            operands: Answers::new(),
            written: Answers::new(),
        }
    };
    for answers in [&comparison.names, &comparison.operands, &comparison.written] {
        let found =
            |wanted: fn(&FormAnswers) -> bool| answers.iter().filter(move |(_, a)| wanted(a));
        for (name, a) in found(FormAnswers::is_lie) {
            println!("called ill-formed: {name}: {}", a.emulator);
        }
        for (name, a) in found(FormAnswers::is_lax).filter(|_| args.taken) {
            println!("rejected by ptxas, accepted here: {name}: {}", a.ptxas);
        }
        for (name, _) in found(|a| a.taken && a.unsupported).filter(|_| args.unsupported) {
            println!("unsupported: {name}");
        }

        for (name, a) in found(|a| !a.taken).filter(|_| args.refusals) {
            let here = if a.unsupported {
                "called unsupported"
            } else {
                "rejected"
            };
            println!("{here}: {name}: {}", a.ptxas);
        }
    }

    if args.update {
        for (file, text) in files(&comparison)? {
            fs::write(paths::root().join(file), text)?;
            println!("wrote {file}");
        }
    }

    print!("{}", page::summary(&comparison));
    Ok(())
}

/// Returns the files that depend on the answers, with their contents.
fn files(comparison: &Comparison) -> Result<[(&'static str, String); 2]> {
    let page = fs::read_to_string(paths::root().join(page::PAGE))
        .with_context(|| format!("cannot read {}", page::PAGE))?;
    let page = page::COUNTS
        .filled(&page, &page::counts(comparison))
        .context(page::PAGE)?;
    Ok([(page::LIST, page::list(comparison)), (page::PAGE, page)])
}

/// Checks that no form which ptxas accepts is called ill-formed, and that the files with the forms
/// are up to date.
pub(crate) fn check() -> Result<()> {
    let comparison = compare()?;
    print!("{}", page::summary(&comparison));
    let all = [&comparison.names, &comparison.operands, &comparison.written];
    let wrong: Vec<&str> = all
        .iter()
        .flat_map(|answers| answers.iter())
        .filter(|(_, a)| a.is_lie())
        .map(|(n, _)| n.as_str())
        .collect();
    ensure!(
        wrong.is_empty(),
        "ptxas accepts what the emulator calls ill-formed: {}; decode it, call it unsupported, or add it to \
         ptx-emu/src/module/isa/manual.rs",
        wrong.join(", ")
    );
    for (file, text) in files(&comparison)? {
        let kept = fs::read_to_string(paths::root().join(file)).unwrap_or_default();
        ensure!(
            kept == text,
            "{file} is out of date: cargo xtask forms --update"
        );
    }

    Ok(())
}

/// Compares all forms.
///
/// Operands are replaced only in the first form of each row that both accept, because all forms of
/// a row take the same operands.
fn compare() -> Result<Comparison> {
    let names = ask(&table::forms())?;
    let representatives: Vec<(String, &'static str)> = table::rows()
        .iter()
        .filter_map(|row| {
            let runs =
                |form: &&InstructionForm| names.get(&form.name).is_some_and(|a| a.taken && a.runs);
            let form = row.iter().find(runs)?;
            Some((form.line.clone(), names[&form.name].target))
        })
        .collect();
    let ptxas = cuda_tools::ptxas()?;
    let folder = tempfile::tempdir()?;
    let operands = operands::substituted(&ptxas, folder.path(), &representatives)?;
    let written = operands::written(&ptxas, folder.path())?;
    Ok(Comparison {
        names,
        operands,
        written,
    })
}

/// Compares forms on all targets, and returns the answers by name.
fn ask(forms: &[InstructionForm]) -> Result<Answers> {
    let ptxas = cuda_tools::ptxas()?;
    let folder = tempfile::tempdir()?;
    let mut lines = BTreeMap::<(&String, &String), FormAnswers>::new();
    for target in TARGETS {
        for batch in forms.chunks(BATCH) {
            let text = text(target, batch);
            let refusals = refusals(&ptxas, folder.path(), target, &text)?;
            let emulated = emulated(&text)?;
            for (line, form) in (FIRST..).zip(batch) {
                let said = emulated.get(&line);
                let answer = FormAnswers {
                    taken: !refusals.contains_key(&line),
                    runs: said.is_none(),
                    unsupported: said.is_some_and(|(unsupported, _)| *unsupported),
                    ptxas: refusals.get(&line).cloned().unwrap_or_default(),
                    emulator: said.map(|(_, what)| what.clone()).unwrap_or_default(),
                    target,
                };
                let kept = lines.entry((&form.name, &form.line)).or_default();
                if answer.rank() >= kept.rank() {
                    *kept = answer;
                }
            }
        }
    }

    let mut answers = Answers::new();
    for ((name, _), answer) in lines {
        let kept = answers.entry(name.clone()).or_default();
        // A name counts as wrongly rejected if one of its lines does.
        if !kept.is_lie() && (answer.is_lie() || answer.rank() >= kept.rank()) {
            *kept = answer;
        }
    }

    Ok(answers)
}

/// The number of the line with the first form.
const FIRST: u32 = 4;

/// Writes a kernel for each form, each in a line.
///
/// The last kernel is invalid, so that ptxas stops after parsing. Code generation would take far
/// longer.
fn text(target: &str, forms: &[InstructionForm]) -> String {
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

/// Returns the messages of ptxas, by the numbers of the lines that it rejects.
fn refusals(
    ptxas: &Path,
    folder: &Path,
    target: &str,
    text: &str,
) -> Result<BTreeMap<u32, String>> {
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
        let place = line
            .split_once(", line ")
            .and_then(|(_, rest)| rest.split_once(';'));
        let Some((number, what)) = place.filter(|(_, what)| what.trim_start().starts_with("error"))
        else {
            continue;
        };

        let what = what.split_once(':').map_or(what, |(_, what)| what).trim();
        lines
            .entry(number.parse()?)
            .or_insert_with(|| what.to_owned());
    }

    // The invalid kernel in the last line must be rejected too. Otherwise ptxas stopped earlier,
    // and the lines without a message were never read.
    let last = FIRST + text.lines().count() as u32 - FIRST;
    ensure!(
        lines.remove(&last).is_some(),
        "ptxas did not read to the end: {said}"
    );
    Ok(lines)
}

/// Returns the messages of the emulator by the numbers of the lines that it rejects. The flag is
/// true if it reports that a line is not supported.
fn emulated(text: &str) -> Result<BTreeMap<u32, (bool, String)>> {
    let module = Module::parse(text).map_err(|e| anyhow::anyhow!("{e}"))?;
    let line = |kernel: &RefusedKernel| {
        let error = kernel.errors.0.first()?;
        Some((
            error.line,
            (
                matches!(error.kind, ErrorKind::Unsupported(_)),
                error.what.clone(),
            ),
        ))
    };
    Ok(module.refused().filter_map(line).collect())
}
