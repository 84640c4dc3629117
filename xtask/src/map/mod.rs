//! `cargo xtask map`: the crates and their folders, and which of them use which others.
//!
//! The diagrams and the tables of `docs/internals/map.md` come from here. `cargo xtask codegen`
//! writes them.

mod diagram;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use xtask::imports::{self, ImportGraph};

use crate::paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print only the map with this name, such as `crates`, `driver` or `ptx-emu/machine`
    name: Option<String>,
}

/// A map: the crates, or the folders of a crate.
struct Map {
    /// `crates`, or the path of a folder of the repository without `src`.
    name: &'static str,
    /// The folder of the crate, or an empty text for all crates.
    library: &'static str,
    /// The folder inside the crate whose folders are shown, or an empty text.
    inside: &'static str,
}

const fn folders(name: &'static str, library: &'static str, inside: &'static str) -> Map {
    Map {
        name,
        library,
        inside,
    }
}

const MAPS: &[Map] = &[
    folders("crates", "", ""),
    folders("ptx-emu", "ptx-emu", ""),
    folders("ptx-emu/machine", "ptx-emu", "machine"),
    folders("ptx-emu/sanitize", "ptx-emu", "sanitize"),
    folders("model", "model", ""),
    folders("engine", "engine", ""),
    folders("driver", "driver", ""),
];

/// A node of a map, with the ones that it uses.
struct MapRow {
    name: String,
    purpose: String,
    used: BTreeSet<String>,
}

/// Prints maps as tables.
pub(crate) fn run(args: &Args) -> Result<()> {
    let maps: Vec<&Map> = MAPS
        .iter()
        .filter(|map| args.name.as_deref().is_none_or(|name| map.name == name))
        .collect();
    if maps.is_empty() {
        let names: Vec<&str> = MAPS.iter().map(|map| map.name).collect();
        bail!(
            "there is no map {}; the maps are {}",
            args.name.as_deref().unwrap_or_default(),
            names.join(", ")
        );
    }

    for map in maps {
        println!("{}", map.name);
        for row in map.rows()? {
            println!("  {}: {}", row.name, row.purpose);
            for used in row.used {
                println!("    -> {used}");
            }
        }
    }

    Ok(())
}

/// Returns the generated part of `docs/internals/map.md`.
pub(crate) fn page() -> Result<String> {
    let mut page = String::new();
    for map in MAPS {
        let title = if map.library.is_empty() {
            "Crates".to_owned()
        } else {
            format!("`{}`", map.name)
        };
        page += &format!("\n## {title}\n\n![]({})\n\n", map.image());
        page += "| folder or file | purpose | uses |\n|---|---|---|\n";
        for row in map.rows()? {
            let used: Vec<String> = row.used.iter().map(|used| format!("`{used}`")).collect();
            page += &format!(
                "| `{}` | {} | {} |\n",
                row.name,
                row.purpose,
                used.join(", ")
            );
        }
    }

    page.push('\n');
    Ok(page)
}

/// Returns each image of the page, by its path in the repository.
pub(crate) fn images() -> Result<Vec<(String, String)>> {
    MAPS.iter()
        .map(|map| {
            let path = format!("docs/internals/{}", map.image());
            Ok((path, diagram::svg(&map.graph()?)))
        })
        .collect()
}

impl Map {
    fn image(&self) -> String {
        format!("map/{}.svg", self.name.replace('/', "-"))
    }

    fn graph(&self) -> Result<ImportGraph> {
        if self.library.is_empty() {
            return crates();
        }

        let source = paths::root().join(self.library).join("src");
        let files = imports::read_sources(&source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        Ok(imports::folder_graph(
            &imports::file_graph(&files),
            self.inside,
        ))
    }

    fn rows(&self) -> Result<Vec<MapRow>> {
        let mut rows = vec![];
        for (name, used) in self.graph()? {
            let purpose = self.purpose(&name)?;
            rows.push(MapRow {
                name,
                purpose,
                used,
            });
        }
        Ok(rows)
    }

    /// Returns the first sentence of the docs of a crate, a folder or a file.
    fn purpose(&self, name: &str) -> Result<String> {
        if self.library.is_empty() {
            return description(name);
        }

        let below = paths::root()
            .join(self.library)
            .join("src")
            .join(self.inside);
        let text = fs::read_to_string(below.join(name).join("mod.rs"))
            .or_else(|_| fs::read_to_string(below.join(format!("{name}.rs"))))
            .with_context(|| format!("{}: {name} has no mod.rs", self.name))?;
        Ok(first_sentence(&text))
    }
}

/// Returns the dependencies between the crates of the workspace, read from their manifests.
/// Dependencies of tests are left out.
fn crates() -> Result<ImportGraph> {
    let mut packages = vec![];
    for folder in imports::workspace_members(paths::root())? {
        let manifest = manifest(&folder)?;
        let package = value(&manifest, "name").with_context(|| format!("{folder} has no name"))?;
        packages.push((folder, package, manifest));
    }

    let graph = packages
        .iter()
        .map(|(folder, _, manifest)| {
            let dependencies = section(manifest, "[dependencies]");
            let used = packages
                .iter()
                .filter(|(other, package, _)| {
                    other != folder
                        && dependencies
                            .iter()
                            .any(|line| line.split(['.', ' ', '=']).next() == Some(package))
                })
                .map(|(other, _, _)| other.clone())
                .collect();
            (folder.clone(), used)
        })
        .collect();
    Ok(graph)
}

fn manifest(folder: &str) -> Result<String> {
    let path = paths::root().join(folder).join("Cargo.toml");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn description(folder: &str) -> Result<String> {
    value(&manifest(folder)?, "description")
        .with_context(|| format!("{folder}/Cargo.toml has no description"))
}

/// Returns the text of a line `key = "value"`.
fn value(manifest: &str, key: &str) -> Option<String> {
    manifest
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value.trim_matches('"').to_owned())
}

/// Returns the lines below a title such as `[dependencies]`.
fn section<'a>(manifest: &'a str, title: &str) -> Vec<&'a str> {
    manifest
        .lines()
        .skip_while(|line| *line != title)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .collect()
}

/// Returns the first sentence of the module docs of a file, without links.
fn first_sentence(text: &str) -> String {
    let docs: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let docs = docs.join(" ");
    let sentence = match docs.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => docs,
    };
    without_links(&sentence).replace('|', "\\|")
}

/// Replaces `[text](target)` and `[text]` by the text. The targets are paths in Rust, which mean
/// nothing on a page.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out += before;
        let Some((inner, after)) = link.split_once(']') else {
            return out + "[" + link;
        };

        out += inner;
        rest = match after
            .strip_prefix('(')
            .and_then(|target| target.split_once(')'))
        {
            Some((_, after)) => after,
            None => after,
        };
    }

    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_of_the_docs_is_found() {
        let text = "//! Reads [files](crate::files) and\n//! [`Item`]s, e.g.fast. Then more.\n//!\n//! No.\n\nuse a;";
        assert_eq!(first_sentence(text), "Reads files and `Item`s, e.g.fast.");
        assert_eq!(first_sentence("use a;"), "");
    }

    #[test]
    fn every_crate_has_a_node_and_none_depends_on_an_upper_one() {
        let graph = crates().unwrap();
        assert!(graph["kernels"].contains("ptx-gen"));
        assert!(graph["ptx-gen"].is_empty());
        assert!(!graph["ptx-emu"].contains("ptx-gen"));
        assert!(graph["driver"].contains("driver-sys"));
        assert_eq!(imports::cycle(&graph), None);
    }
}
