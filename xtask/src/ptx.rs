//! `cargo xtask ptx`: prints the PTX of the kernels, or writes it to a folder with an index that
//! programs in other languages can read.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use comfy_table::{Table, presets};
use ptx_gen::{Param, ParamKind, Program, Target};
use serde_json::{Value, json};
use warpwright_kernels::ALL;

use crate::{diff, names};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels to print; without any, a list of them: by family on a terminal
    kernels: Vec<String>,
    /// Target to print for; the oldest that a kernel runs on by default
    #[arg(long, value_parser = target, value_name = "sm_NN")]
    target: Option<Target>,
    /// Write NAME.ptx for each kernel (all of them by default) and index.json to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Add .loc lines, so that profilers and the emulator show the Rust source
    #[arg(long)]
    lines: bool,
    /// List every kernel, with its threads, shared memory and arguments
    #[arg(long, conflicts_with_all = ["kernels", "out", "diff"])]
    all: bool,
    /// Print how the kernels (all of them by default) differ from this git revision
    #[arg(long, value_name = "REV", conflicts_with_all = ["out", "lines", "target"])]
    diff: Option<String>,
}

/// Parses the name of a target.
fn target(name: &str) -> Result<Target, String> {
    let known = || Target::ALL.map(|target| target.name).join(", ");
    Target::named(name)
        .ok_or_else(|| format!("no such target; kernels are printed for {}", known()))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(revision) = &args.diff {
        let text = |program: &Program| Ok((program.name.clone(), text(args, program)?));
        let now = named(&[])?.iter().map(text).collect::<Result<_>>()?;
        return diff::print(revision, &now, &args.kernels);
    }
    let kernels = named(&args.kernels)?;
    match &args.out {
        Some(folder) => write(args, &kernels, folder),
        None if args.kernels.is_empty() => list(args, &kernels),
        None => {
            for program in &kernels {
                write!(io::stdout(), "{}", text(args, program)?)?;
            }
            Ok(())
        }
    }
}

/// Builds the kernels with these names, or all kernels if there are none, sorted by name.
pub(crate) fn named(names: &[String]) -> Result<Vec<Program>> {
    let all: Vec<_> = ALL.iter().map(|kernel| kernel.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        bail!(
            "{}",
            names::unknown(unknown, all.iter().map(String::as_str))
        );
    }

    // Building a kernel takes longer than naming it, so only the wanted ones are built.
    let wanted = ALL
        .iter()
        .filter(|kernel| names.is_empty() || names.contains(&kernel.name()));
    let mut programs = wanted
        .map(|kernel| kernel.build())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|errors| anyhow!("{errors}"))?;
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Prints a program for the target that was requested, or for its oldest target.
fn text(args: &Args, program: &Program) -> Result<String> {
    let print = if args.lines {
        ptx_gen::print_with_lines
    } else {
        ptx_gen::print
    };
    Ok(print(
        program,
        args.target.unwrap_or_else(|| oldest(program)),
    )?)
}

/// Returns the oldest target on which a program runs.
pub(crate) fn oldest(program: &Program) -> Target {
    let runs = |target: &Target| ptx_gen::print(program, *target).is_ok();
    Target::ALL
        .into_iter()
        .find(runs)
        .expect("the newest target has every row")
}

/// Writes the PTX of kernels and their index to a folder.
fn write(args: &Args, kernels: &[Program], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let put = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    for program in kernels {
        put(&format!("{}.ptx", program.name), &text(args, program)?)?;
    }

    let index: Vec<_> = kernels.iter().map(|program| entry(args, program)).collect();
    put("index.json", &format!("{:#}\n", Value::from(index)))?;
    eprintln!("wrote {} kernels to {}", kernels.len(), folder.display());
    Ok(())
}

/// Returns the entry of the index: the data that a program needs to launch the kernel.
fn entry(args: &Args, program: &Program) -> Value {
    let target = args.target.unwrap_or_else(|| oldest(program));
    json!({
        "name": program.name,
        "file": format!("{}.ptx", program.name),
        "target": target.name,
        "version": ptx_gen::version(program, target).to_string(),
        "block": program.block,
        "block_shape": program.shape,
        "static_shared": program.static_shared(),
        "dynamic_shared": program.shared.iter().any(|array| array.bytes.is_none()),
        "arguments": program.params.iter().map(argument).collect::<Vec<_>>(),
    })
}

/// Returns the description of a kernel argument in the index.
fn argument(param: &Param) -> Value {
    let doc = param.doc.trim();
    match param.kind {
        ParamKind::Buffer(kind, access) => {
            json!({ "name": param.name, "type": kind.name(), "direction": access.to_string(), "shape": doc })
        }
        ParamKind::TensorMap(kind, access) => {
            json!({
                "name": param.name, "type": "tensor map", "element": kind.name(),
                "direction": access.to_string(), "shape": doc
            })
        }
        ParamKind::Scalar(kind) => {
            json!({ "name": param.name, "type": kind.name(), "direction": "value", "doc": doc })
        }
    }
}

/// The number of columns of a terminal.
const WIDTH: usize = 80;

/// Prints the list of kernels, or of their families if the output is a terminal.
fn list(args: &Args, kernels: &[Program]) -> Result<()> {
    let mut out = io::stdout();
    if args.all || !out.is_terminal() {
        return Ok(writeln!(out, "{}", table(kernels).trim_fmt())?);
    }

    let families = names::families(kernels.iter().map(|program| program.name.as_str()), WIDTH);
    writeln!(out, "{}", families.join("\n"))?;
    Ok(writeln!(
        out,
        "\n{} kernels; `cargo xtask ptx --all` lists them",
        kernels.len()
    )?)
}

/// Returns the table of kernels with their resources and arguments.
fn table(kernels: &[Program]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "kernel",
        "threads",
        "shared",
        "arguments",
    ]);
    for program in kernels {
        let arguments = program
            .params
            .iter()
            .map(declaration)
            .collect::<Vec<_>>()
            .join(", ");
        let shared = program.static_shared().to_string();
        table.add_row([
            program.name.clone(),
            program.block.to_string(),
            shared,
            arguments,
        ]);
    }

    table
}

/// Returns an argument as the table shows it.
fn declaration(param: &Param) -> String {
    match param.kind {
        ParamKind::Buffer(kind, access) => format!("{}: {access} {}", param.name, kind.name()),
        ParamKind::TensorMap(kind, access) => {
            format!("{}: {access} map of {}", param.name, kind.name())
        }
        ParamKind::Scalar(kind) => format!("{}: {}", param.name, kind.name()),
    }
}
