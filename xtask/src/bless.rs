//! `cargo xtask bless`: accepts the current output of the snapshot tests, and reports which kernels
//! changed since the last commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{git, names, paths};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// The folder of the snapshots.
const FOLDER: &str = "tests/tests/snapshots";
/// The snapshot with one line for each kernel.
const KERNELS: &str = "tests/tests/snapshots/kernels.snap";
/// The maximum number of changed kernels that are listed by name. Beyond it, they are counted by
/// family.
const MOST_NAMED: usize = 40;

/// Updates the snapshots, deletes unused ones and prints a summary.
pub(crate) fn run(_: &Args) -> Result<()> {
    let work = tempfile::tempdir()?;
    let written = work.path().join("written");

    // With INSTA_UPDATE=always insta writes the new text itself, so `cargo insta` is not needed.
    let accept = [
        ("INSTA_UPDATE", Path::new("always")),
        ("INSTA_SNAPSHOT_REFERENCES_FILE", &written),
    ];

    // That test would fail on the unused snapshots, which are deleted below.
    test(&accept, &["--skip", "none_is_left_over"])?;
    for gone in left_over(&written)? {
        println!("deleted {}", gone.display());
        fs::remove_file(gone)?;
    }

    // A second run must pass without updates, because a test can fail for other reasons.
    test(&[("INSTA_UPDATE", Path::new("no"))], &[])?;
    let now = fs::read_to_string(paths::root().join(KERNELS))?;
    let before = git::file("HEAD", KERNELS)?.unwrap_or_default();
    println!("{}", summary(&kernels(&before), &kernels(&now)));
    println!("Read it as code: git diff -- {FOLDER}; cargo xtask ptx --diff HEAD KERNEL");
    Ok(())
}

/// Runs the snapshot tests.
fn test(environment: &[(&str, &Path)], arguments: &[&str]) -> Result<()> {
    let mut cargo = crate::cargo::command();
    cargo
        .current_dir(paths::root())
        .envs(environment.iter().copied());
    cargo.args([
        "test",
        "--quiet",
        "--package",
        "warpwright-tests",
        "--test",
        "it",
        "snapshots::",
        "--",
    ]);
    let status = cargo.args(arguments).status()?;
    ensure!(
        status.success(),
        "a test failed for another reason than its snapshot"
    );
    Ok(())
}

/// Returns the snapshot files that no test used.
fn left_over(written: &Path) -> Result<Vec<PathBuf>> {
    let used = fs::read_to_string(written).context("the tests used no snapshot")?;
    let used: BTreeSet<PathBuf> = used
        .lines()
        .map(|line| Path::new(line).canonicalize())
        .collect::<Result<_, _>>()?;
    let mut unused = snapshots(&paths::root().join(FOLDER).canonicalize()?)?;
    unused.retain(|path| !used.contains(path));
    Ok(unused)
}

/// Returns the snapshot files in a folder and in the folders inside it.
fn snapshots(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(snapshots(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "snap")
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// The number of lines and the hash of each kernel, by name.
type Kernels<'a> = BTreeMap<&'a str, (usize, &'a str)>;

/// Parses the snapshot that lists all kernels, with name, target, lines and hash in each line.
fn kernels(snapshot: &str) -> Kernels<'_> {
    let kernel = |line| match str::split(line, ' ').collect::<Vec<_>>()[..] {
        [name, _, lines, hash] => Some((name, (lines.parse().ok()?, hash))),
        _ => None,
    };
    snapshot.lines().filter_map(kernel).collect()
}

/// A kernel that was added, removed or changed.
struct KernelChange<'a> {
    name: &'a str,
    /// The word for the change in the summary.
    what: &'static str,
    /// The number of lines by which the kernel grew.
    lines: isize,
}

/// Returns the kernels that differ, in the order of their names.
fn changes<'a>(before: &Kernels<'a>, now: &Kernels<'a>) -> Vec<KernelChange<'a>> {
    let all: BTreeSet<_> = before.keys().chain(now.keys()).copied().collect();
    let change = |name: &'a str| match (before.get(name), now.get(name)) {
        (Some((lines, _)), None) => Some(KernelChange {
            name,
            what: "removed",
            lines: -(*lines as isize),
        }),
        (None, Some((lines, _))) => Some(KernelChange {
            name,
            what: "added",
            lines: *lines as isize,
        }),
        // The hash decides, because a change can keep the number of lines.
        (Some(a), Some(b)) if a.1 != b.1 => Some(KernelChange {
            name,
            what: "changed",
            lines: b.0 as isize - a.0 as isize,
        }),
        _ => None,
    };
    all.into_iter().filter_map(change).collect()
}

/// Returns the report on the changed kernels.
fn summary(before: &Kernels, now: &Kernels) -> String {
    let changes = changes(before, now);
    let count = |what| changes.iter().filter(|change| change.what == what).count();
    let head = format!(
        "{} kernels; since HEAD {} added, {} removed, {} changed, {:+} lines",
        now.len(),
        count("added"),
        count("removed"),
        count("changed"),
        changes.iter().map(|change| change.lines).sum::<isize>()
    );
    let line = |change: &KernelChange| {
        format!(
            "  {:7} {} {:+} lines",
            change.what, change.name, change.lines
        )
    };

    // A change of a shared function can affect hundreds of kernels.
    let lines = if changes.len() > MOST_NAMED {
        families(&changes)
    } else {
        changes.iter().map(line).collect()
    };
    std::iter::once(head)
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a line for each family of kernels and kind of change.
fn families(changes: &[KernelChange]) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), (usize, isize)> = BTreeMap::new();
    for change in changes {
        let (count, lines) = groups
            .entry((names::family(change.name), change.what))
            .or_default();
        *count += 1;
        *lines += change.lines;
    }

    let line = |((family, what), (count, lines))| {
        format!("  {what:7} {count} of {family}, {lines:+} lines")
    };
    groups.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{kernels, summary};

    #[test]
    fn the_summary_names_what_changed() {
        let before = "---\nsource: x\n---\na_1 sm_75 10 aa\nb_1 sm_75 20 bb\nc_1 sm_80 30 cc\n";
        let now = "---\nsource: x\n---\na_1 sm_75 10 aa\nb_1 sm_75 17 b2\nd_1 sm_90 5 dd\n";
        let expected = "3 kernels; since HEAD 1 added, 1 removed, 1 changed, -28 lines\n  \
                        changed b_1 -3 lines\n  removed c_1 -30 lines\n  added   d_1 +5 lines";
        assert_eq!(summary(&kernels(before), &kernels(now)), expected);
        let same = "3 kernels; since HEAD 0 added, 0 removed, 0 changed, +0 lines";
        assert_eq!(summary(&kernels(now), &kernels(now)), same);
    }

    #[test]
    fn many_changes_are_counted_by_family() {
        let list = |hash: &str| {
            (0..50)
                .map(|i| format!("gemv_{i} sm_75 7 {hash}\n"))
                .collect::<String>()
        };
        let before = list("aa");
        let now = list("bb");
        let said = summary(&kernels(&before), &kernels(&now));
        assert_eq!(
            said,
            "50 kernels; since HEAD 0 added, 0 removed, 50 changed, +0 lines\n  changed 50 of gemv, +0 lines"
        );
    }
}
