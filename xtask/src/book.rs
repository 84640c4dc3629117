//! `cargo xtask book`: builds the book under `docs/`, and checks its pages.
//!
//! mdBook renders the pages to `target/book`. Three checks find the mistakes that mdBook does not: pages that are missing
//! in `docs/SUMMARY.md`, links to files or headings that do not exist, and pages whose Rust code no test compiles. The code
//! itself runs as doctests of the package `warpwright-tests`, whose `src/book.rs` lists the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{paths, tools};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Check the pages without building the book, which needs no mdBook
    #[arg(long)]
    check: bool,
    /// Also compile and run the Rust code of the pages
    #[arg(long)]
    test: bool,
}

const MDBOOK: tools::Tool = tools::Tool {
    name: "mdbook",
    version: "0.5.4",
    // The server and the file watcher take longer to compile than everything else.
    options: &["--no-default-features", "--features", "search"],
};

/// The list of pages whose code is tested.
const TESTED: &str = "tests/src/book.rs";

/// Pages outside `docs/` whose links are checked as well.
const OUTSIDE: [&str; 14] = [
    "README.md",
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "COMPARE.md",
    "CONTRIBUTING.md",
    "STYLE.md",
    "assets/README.md",
    "benchmarks/README.md",
    "examples/gemm/README.md",
    "examples/linked/README.md",
    "tests/corpus/README.md",
    "tests/data/README.md",
    "tests/outside/perplexity/README.md",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    check()?;
    if args.test {
        test()?;
    }
    if !args.check {
        build()?;
    }
    Ok(())
}

/// Checks the pages: everything that needs neither mdBook nor a compiler.
pub(crate) fn check() -> Result<()> {
    let pages = pages()?;
    let problems: Vec<String> = unlisted(&pages)?
        .into_iter()
        .chain(broken_links(&pages)?)
        .chain(untested(&pages)?)
        .collect();
    ensure!(problems.is_empty(), "the book:\n{}", problems.join("\n"));
    println!("{} pages, all links lead somewhere", pages.len());
    Ok(())
}

/// Compiles and runs the Rust code of the pages.
pub(crate) fn test() -> Result<()> {
    let mut cargo = crate::cargo::command();
    cargo.current_dir(paths::root()).args([
        "test",
        "--locked",
        "--doc",
        "--package",
        "warpwright-tests",
    ]);
    ensure!(
        cargo.status()?.success(),
        "the code of the book does not pass"
    );
    Ok(())
}

/// Renders the book to `target/book`.
pub(crate) fn build() -> Result<()> {
    let mdbook = MDBOOK.find_or_install()?;
    let target = paths::target();
    let source = target.join("book-source");
    stage(&source)?;
    let status = Command::new(mdbook)
        .args(["build", "--dest-dir"])
        .arg(fs::canonicalize(&target)?.join("book"))
        .arg(&source)
        .status()?;
    ensure!(status.success(), "mdBook cannot build the book");
    Ok(())
}

/// Copies the book to a folder, with links that leave `docs/` turned into links to the repository.
///
/// Such links are right for readers of the repository, but lead nowhere from the rendered book.
fn stage(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }

    let repository = repository()?;
    let mut files = vec![];
    collect(Path::new("docs"), &mut files)?;
    for file in files {
        let to = folder.join(&file);
        fs::create_dir_all(to.parent().context("a page has a folder")?)?;
        if file.ends_with(".md") {
            let text = fs::read_to_string(paths::root().join(&file))?;
            fs::write(to, absolute(&BookPage { path: file, text }, &repository)?)?;
        } else {
            fs::copy(paths::root().join(file), to)?;
        }
    }

    fs::copy(paths::root().join("book.toml"), folder.join("book.toml"))?;
    Ok(())
}

/// Returns the address of the repository, from the workspace's manifest.
fn repository() -> Result<String> {
    let manifest = fs::read_to_string(paths::root().join("Cargo.toml"))?;
    let address = manifest
        .lines()
        .find_map(|line| line.strip_prefix("repository = \""))
        .and_then(|rest| rest.split_once('"'))
        .context("Cargo.toml has no repository")?
        .0;
    Ok(address.to_owned())
}

/// Returns the text of a page whose links to files outside `docs/` lead to the repository.
fn absolute(page: &BookPage, repository: &str) -> Result<String> {
    let mut text = page.text.clone();
    for link in links(&page.text) {
        if link.contains("://") || link.starts_with('#') {
            continue;
        }

        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let path = normalized(&folder_of(page).join(file))?;
        if !path.starts_with("docs") {
            let hash = if heading.is_empty() { "" } else { "#" };
            let path = path.display().to_string().replace('\\', "/");
            let new = format!("]({repository}/blob/main/{path}{hash}{heading})");
            text = text.replace(&format!("]({link})"), &new);
        }
    }
    Ok(text)
}

fn folder_of(page: &BookPage) -> &Path {
    Path::new(&page.path).parent().unwrap_or(Path::new(""))
}

/// A Markdown file.
struct BookPage {
    /// The path from the root of the repository, with forward slashes.
    path: String,
    text: String,
}

fn pages() -> Result<Vec<BookPage>> {
    let mut files = vec![];
    collect(Path::new("docs"), &mut files)?;
    files.retain(|file| file.ends_with(".md"));
    files.sort();
    files.extend(OUTSIDE.map(String::from));
    let page = |path: String| {
        let text = fs::read_to_string(paths::root().join(&path))
            .with_context(|| format!("cannot read {path}"))?;
        Ok(BookPage { path, text })
    };
    files.into_iter().map(page).collect()
}

/// Adds the files below a folder.
fn collect(folder: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(paths::root().join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

/// Pages below `docs/` that the summary does not list, so that mdBook would leave them out.
fn unlisted(pages: &[BookPage]) -> Result<Vec<String>> {
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md");
    let summary = summary.context("docs/SUMMARY.md is missing")?;
    let listed: BTreeSet<String> = links(&summary.text)
        .into_iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    let missing = |page: &&BookPage| {
        page.path.starts_with("docs/")
            && page.path != "docs/SUMMARY.md"
            && !listed.contains(&page.path)
    };
    let missing = pages.iter().filter(missing);
    Ok(missing
        .map(|page| format!("{} is missing in docs/SUMMARY.md", page.path))
        .collect())
}

/// Pages with Rust code that no doctest runs.
fn untested(pages: &[BookPage]) -> Result<Vec<String>> {
    let list = fs::read_to_string(paths::root().join(TESTED))?;
    let missing = |page: &&BookPage| {
        page.text.lines().any(|line| line.starts_with("```rust"))
            && !list.contains(&format!("\"{}\"", page.path))
    };
    let missing = pages.iter().filter(missing);
    Ok(missing
        .map(|page| format!("{} has Rust code and is missing in {TESTED}", page.path))
        .collect())
}

fn broken_links(pages: &[BookPage]) -> Result<Vec<String>> {
    let mut broken = vec![];
    for page in pages {
        for link in links(&page.text) {
            if let Err(error) = follow(page, link) {
                broken.push(format!("{}: the link to {link}: {error}", page.path));
            }
        }
    }
    Ok(broken)
}

/// Returns an error if a link leads to a file or a heading that does not exist.
fn follow(page: &BookPage, link: &str) -> Result<()> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }

    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let path = if file.is_empty() {
        PathBuf::from(&page.path)
    } else {
        normalized(&folder_of(page).join(file))?
    };
    let full = paths::root().join(&path);
    ensure!(full.exists(), "{} does not exist", path.display());
    if !heading.is_empty() && path.extension().is_some_and(|e| e == "md") {
        let text = fs::read_to_string(full)?;
        ensure!(
            headings(&text).contains(heading),
            "{} has no heading #{heading}",
            path.display()
        );
    }

    Ok(())
}

/// Resolves `..` without looking at the file system, so that a link cannot leave the repository.
fn normalized(path: &Path) -> Result<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => ensure!(out.pop(), "it leaves the repository"),
            Component::CurDir => {}
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::Prefix(_) => bail!("it is an absolute path"),
        }
    }
    Ok(out)
}

/// Returns the targets of the links and images in Markdown, without those in code.
fn links(text: &str) -> Vec<&str> {
    let mut found = vec![];
    for line in prose(text) {
        // Code spans are at odd places between backticks.
        for part in line.split('`').step_by(2) {
            let after = part.split("](").skip(1);
            found.extend(after.filter_map(|rest| rest.split_once(')').map(|(link, _)| link)));
        }
    }
    found
}

/// Returns the anchors of the headings, as GitHub and mdBook derive them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();

        // A second heading with the same words gets a number.
        let mut unique = anchor.clone();
        let mut number = 0;
        while !anchors.insert(unique.clone()) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

/// Returns the lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_no_links() {
        let text =
            "[a](b.md) and `[c](d.md)` and ![e](f.svg)\n[`g`](h.md#i)\n```text\n[j](k.md)\n```\n";
        assert_eq!(links(text), ["b.md", "f.svg", "h.md#i"]);
    }

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let page = BookPage {
            path: "docs/a/b.md".into(),
            text: "[x](../../README.md#y) [z](../c.md) [w](#v)".into(),
        };
        let expected = "[x](https://r/blob/main/README.md#y) [z](../c.md) [w](#v)";
        assert_eq!(absolute(&page, "https://r").unwrap(), expected);
    }

    #[test]
    fn headings_become_anchors() {
        let text = "# One, `two`\n## A b\n```sh\n# not one\n```\n## A b\n";
        let expected = ["a-b", "a-b-1", "one-two"].map(String::from);
        assert_eq!(headings(text), BTreeSet::from(expected));
    }

    #[test]
    fn a_link_stays_in_the_repository() {
        let resolved = |path| normalized(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(resolved("docs/guide/../../README.md").unwrap(), "README.md");
        assert!(resolved("docs/../../x").is_err());
        assert!(resolved("/x").is_err());
    }
}
