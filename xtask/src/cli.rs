//! `docs/reference/cli.md`: the help of every command, as the program prints it.
//!
//! Running the program keeps `xtask` small. To link the command-line parser instead would compile
//! the engine for every command of `cargo xtask`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::paths;

const HEAD: &str = "# Command line\n\n\
    This page is generated from the program by `cargo xtask codegen`. It has the text that `warpwright COMMAND --help` \
    prints. The [guide](../guide/README.md) has a page for each task.\n\n";

/// A command and its help.
struct Help {
    /// The words after `warpwright`, empty for the program itself.
    words: Vec<String>,
    text: String,
}

/// Returns the page.
pub(crate) fn page() -> Result<String> {
    let program = program()?;
    let mut all = vec![];
    collect(&program, vec![], &mut all)?;
    let mut page = HEAD.to_owned();
    for help in &all {
        let title = ["warpwright".to_owned()]
            .into_iter()
            .chain(help.words.clone());
        let title = title.collect::<Vec<_>>().join(" ");
        writeln!(
            page,
            "## `{title}`\n\n```text\n{}\n```\n",
            help.text.trim_end()
        )?;
    }

    page.truncate(page.trim_end().len());
    page.push('\n');
    Ok(page)
}

/// Builds the program, so that the page has the help of the current sources.
pub(crate) fn build() -> Result<()> {
    let status = crate::cargo::command()
        .current_dir(paths::root())
        .args(["build", "--locked", "--package", "warpwright"])
        .status()?;
    ensure!(status.success(), "cannot build the program");
    Ok(())
}

/// Returns the program as it was last built, or builds it.
///
/// In `cargo xtask ci`, an earlier step has built it with all features of the workspace. To build
/// the package alone would take minutes and give the same help.
fn program() -> Result<PathBuf> {
    let file = paths::target()
        .join("debug")
        .join(format!("warpwright{}", std::env::consts::EXE_SUFFIX));
    if !file.is_file() {
        build()?;
    }
    Ok(file)
}

/// Adds the help of a command and of the commands below it.
fn collect(program: &Path, words: Vec<String>, all: &mut Vec<Help>) -> Result<()> {
    let output = Command::new(program)
        .args(&words)
        .arg("--help")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} {} --help ended with {}",
        program.display(),
        words.join(" "),
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let below = commands(&text);
    all.push(Help {
        words: words.clone(),
        text: without_trailing_spaces(&text),
    });
    for command in below {
        let words = words.iter().cloned().chain([command]).collect();
        collect(program, words, all)?;
    }

    Ok(())
}

/// Returns the names in the section `Commands:` of a help text, without `help` itself.
fn commands(help: &str) -> Vec<String> {
    let section = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = section
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// clap fills lines between paragraphs with spaces, which editors remove.
fn without_trailing_spaces(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_a_help() {
        let help = "About\n\nUsage: x\n\nCommands:\n  run    Run\n         and more\n  help   Print this\n\nOptions:\n  -h\n";
        assert_eq!(commands(help), ["run"]);
        assert!(commands("Options:\n  -h\n").is_empty());
    }
}
