//! `cargo xtask codegen`: writes the files and tables that are generated from code and
//! measurements, and checks that they are up to date.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{cli, figures, isa, paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing, fail if a file is out of date
    #[arg(long)]
    check: bool,
}

/// A file and the text that belongs in it.
struct Generated {
    file: &'static str,
    part: GeneratedPart,
    text: fn() -> Result<String>,
}

/// The part of a file that is generated.
#[derive(Clone, Copy)]
pub(crate) enum GeneratedPart {
    Whole,
    /// The text between these two lines.
    Between(&'static str, &'static str),
}

/// The lines around the tables of figures.
const FIGURES: GeneratedPart = GeneratedPart::Between(
    "<!-- figures: written by `cargo xtask codegen` from benchmarks/ -->\n",
    "<!-- end of figures -->\n",
);

const FILES: [Generated; 5] = [
    Generated {
        file: "docs/reference/instructions.tsv",
        part: GeneratedPart::Whole,
        text: || Ok(isa::table()),
    },
    Generated {
        file: "README.md",
        part: FIGURES,
        text: figures::readme,
    },
    Generated {
        file: "docs/images/decoding.svg",
        part: GeneratedPart::Whole,
        text: figures::chart,
    },
    Generated {
        file: "BENCHMARKS.md",
        part: FIGURES,
        text: figures::benchmarks,
    },
    Generated {
        file: "docs/reference/cli.md",
        part: GeneratedPart::Whole,
        text: cli::page,
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check { check() } else { write() }
}

/// Checks that every file is up to date.
pub(crate) fn check() -> Result<()> {
    let mut stale = vec![];
    for generated in &FILES {
        let (found, expected) = generated.texts()?;
        let state = if found == expected {
            "is up to date"
        } else {
            "is out of date"
        };
        println!("{} {state}", generated.file);
        stale.extend((found != expected).then_some(generated.file));
    }
    ensure!(
        stale.is_empty(),
        "out of date: {}; run cargo xtask codegen",
        stale.join(", ")
    );
    Ok(())
}

/// Writes all files.
fn write() -> Result<()> {
    cli::build()?;
    for generated in &FILES {
        let file = generated.file;
        let (_, text) = generated.texts()?;
        fs::write(paths::root().join(file), text)
            .with_context(|| format!("cannot write {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

impl Generated {
    /// Returns the current contents of the file, and the expected contents.
    fn texts(&self) -> Result<(String, String)> {
        let path = paths::root().join(self.file);
        let text = (self.text)()?;
        let expected = |found: &str| self.part.filled(found, &text).context(self.file);
        match (fs::read_to_string(&path), self.part) {
            (Ok(found), _) => expected(&found).map(|expected| (found, expected)),
            (Err(_), GeneratedPart::Whole) => Ok((String::new(), text)),
            (Err(error), GeneratedPart::Between(..)) => {
                Err(error).context(format!("cannot read {}", self.file))
            }
        }
    }
}

impl GeneratedPart {
    /// Returns the page with the generated text replaced by `text`.
    pub(crate) fn filled(self, page: &str, text: &str) -> Result<String> {
        let GeneratedPart::Between(start, end) = self else {
            return Ok(text.into());
        };
        let ends = page
            .split_once(start)
            .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
        let (before, after) =
            ends.with_context(|| format!("these lines are missing, in this order:\n{start}{end}"))?;
        ensure!(
            !after.contains(start),
            "this line is there twice: {}",
            start.trim_end()
        );
        Ok(format!("{before}{start}{text}{end}{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_lines_is_replaced() {
        let part = GeneratedPart::Between("<a>\n", "<b>\n");
        let filled = |page| {
            part.filled(page, "new\n")
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            filled("x\n<a>\nold\n<b>\ny\n").as_deref(),
            Ok("x\n<a>\nnew\n<b>\ny\n")
        );
        assert_eq!(filled("x\n<a>\n<b>\n").as_deref(), Ok("x\n<a>\nnew\n<b>\n"));
        let missing = "these lines are missing, in this order:\n<a>\n<b>\n";
        assert_eq!(filled("x\n<b>\n<a>\n"), Err(missing.into()));
        assert_eq!(filled("x\n"), Err(missing.into()));
        assert_eq!(
            filled("<a>\n<b>\n<a>\n<b>\n"),
            Err("this line is there twice: <a>".into())
        );
        assert_eq!(GeneratedPart::Whole.filled("old", "new").unwrap(), "new");
    }
}
