//! `cargo xtask codegen`: the files that are written from tables, and the check that they are up to date.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{isa, paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing, fail if a file is out of date
    #[arg(long)]
    check: bool,
}

/// A file and the text that belongs in it.
type Generated = (&'static str, fn() -> String);

const FILES: [Generated; 1] = [("ISA.md", isa::page)];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check { check() } else { write() }
}

pub(crate) fn check() -> Result<()> {
    for (name, text) in FILES {
        let found = fs::read_to_string(paths::root().join(name)).unwrap_or_default();
        ensure!(found == text(), "{name} is out of date: cargo xtask codegen");
        println!("{name} is up to date");
    }
    Ok(())
}

fn write() -> Result<()> {
    for (name, text) in FILES {
        fs::write(paths::root().join(name), text()).with_context(|| format!("cannot write {name}"))?;
        println!("wrote {name}");
    }
    Ok(())
}
