//! `cargo xtask codegen`: writes the files and tables that are generated from code and
//! measurements, and checks that they are up to date.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{cli, families, figures, isa, map, paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing, fail if a file is out of date
    #[arg(long)]
    check: bool,
}

/// A file and the text that belongs in it.
struct Generated {
    file: String,
    part: GeneratedPart,
    text: String,
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

/// The lines around the tables of crates and folders.
const MAP: GeneratedPart = GeneratedPart::Between(
    "<!-- map: written by `cargo xtask codegen` from the sources -->\n",
    "<!-- end of map -->\n",
);

/// Returns every generated file with its text.
fn files() -> Result<Vec<Generated>> {
    let generated = |file: &str, part, text| Generated {
        file: file.to_owned(),
        part,
        text,
    };
    let whole = GeneratedPart::Whole;
    let mut files = vec![
        generated("docs/reference/instructions.tsv", whole, isa::table()),
        generated("README.md", FIGURES, figures::readme()?),
        generated("docs/images/decoding.svg", whole, figures::chart()?),
        generated("BENCHMARKS.md", FIGURES, figures::benchmarks()?),
        generated("docs/reference/cli.md", whole, cli::page()?),
        generated("docs/reference/families.md", whole, families::page()?),
        generated("docs/internals/map.md", MAP, map::page()?),
    ];
    for (file, text) in map::images()? {
        files.push(generated(&file, whole, text));
    }

    Ok(files)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check { check() } else { write() }
}

/// Checks that every file is up to date.
pub(crate) fn check() -> Result<()> {
    let mut stale = vec![];
    for generated in files()? {
        let (found, expected) = generated.texts()?;
        let state = if found == expected {
            "is up to date"
        } else {
            "is out of date"
        };
        println!("{} {state}", generated.file);
        if found != expected {
            stale.push(generated.file);
        }
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
    for generated in files()? {
        let (_, text) = generated.texts()?;
        let file = &generated.file;
        let path = paths::root().join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {file}"))?;
        }
        fs::write(path, text).with_context(|| format!("cannot write {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

impl Generated {
    /// Returns the current contents of the file, and the expected contents.
    fn texts(&self) -> Result<(String, String)> {
        let path = paths::root().join(&self.file);
        let expected = |found: &str| {
            let text = self.part.filled(found, &self.text);
            text.with_context(|| self.file.clone())
        };
        match (fs::read_to_string(&path), self.part) {
            (Ok(found), _) => expected(&found).map(|expected| (found, expected)),
            (Err(_), GeneratedPart::Whole) => Ok((String::new(), self.text.clone())),
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
