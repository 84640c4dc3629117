//! `cargo xtask ptx --diff REV`: prints how the PTX of kernels differs from another revision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anyhow::{Result, bail};
use similar::{ChangeTag, TextDiff};

use crate::{names, revision};

/// Prints the differences between the kernels of a revision and `now`, for the `wanted` kernels or,
/// if none are listed, for all.
pub(crate) fn print(
    revision: &str,
    now: &BTreeMap<String, String>,
    wanted: &[String],
) -> Result<()> {
    let before = revision::texts(revision)?;

    // A wanted kernel may exist in only one of the two versions.
    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        bail!(
            "{}",
            names::unknown(unknown, all.into_iter().map(String::as_str))
        );
    }

    let mut out = io::stdout().lock();
    let mut summary = vec![];
    for name in all
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(name))
    {
        let Some(difference) = KernelDifference::of(name, before.get(name), now.get(name)) else {
            continue;
        };
        write!(out, "{}", difference.text)?;
        summary.push(difference.line);
    }

    match summary.as_slice() {
        [] => writeln!(out, "no difference from {revision}")?,
        lines => writeln!(out, "\nsince {revision}:\n{}", lines.join("\n"))?,
    }

    Ok(())
}

/// The difference between two versions of a kernel.
struct KernelDifference {
    /// The unified diff, empty if one version does not have the kernel.
    text: String,
    /// One line for the summary.
    line: String,
}

impl KernelDifference {
    /// Returns the difference, or `None` if both versions have the same text.
    fn of(name: &str, before: Option<&String>, now: Option<&String>) -> Option<KernelDifference> {
        let lines = |text: &String| text.lines().count();
        let only = |line: String| {
            Some(KernelDifference {
                text: String::new(),
                line,
            })
        };
        match (before, now) {
            (Some(before), None) => only(format!("removed {name} ({} lines)", lines(before))),
            (None, Some(now)) => only(format!("added   {name} ({} lines)", lines(now))),
            (Some(before), Some(now)) if before != now => {
                Some(KernelDifference::between(name, before, now))
            }
            _ => None,
        }
    }

    /// Compares two texts line by line.
    fn between(name: &str, before: &str, now: &str) -> KernelDifference {
        let diff = TextDiff::from_lines(before, now);
        let count = |tag| {
            diff.iter_all_changes()
                .filter(|change| change.tag() == tag)
                .count()
        };
        let plus = count(ChangeTag::Insert);
        let minus = count(ChangeTag::Delete);
        let old = format!("a/{name}.ptx");
        let new = format!("b/{name}.ptx");
        let text = diff
            .unified_diff()
            .context_radius(3)
            .header(&old, &new)
            .to_string();
        KernelDifference {
            text,
            line: format!("changed {name} +{plus} -{minus}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KernelDifference;

    fn of(before: Option<&str>, now: Option<&str>) -> Option<(String, String)> {
        let [before, now] = [before, now].map(|text| text.map(str::to_owned));
        KernelDifference::of("k", before.as_ref(), now.as_ref()).map(|d| (d.line, d.text))
    }

    #[test]
    fn each_kind_of_difference() {
        assert_eq!(of(Some("ret;\n"), Some("ret;\n")), None);
        assert_eq!(
            of(None, Some("ret;\n")),
            Some(("added   k (1 lines)".into(), String::new()))
        );
        assert_eq!(
            of(Some("a;\nret;\n"), None),
            Some(("removed k (2 lines)".into(), String::new()))
        );
        let text = "--- a/k.ptx\n+++ b/k.ptx\n@@ -1,2 +1,3 @@\n-a;\n+b;\n+c;\n ret;\n";
        let expected = ("changed k +2 -1".to_owned(), text.to_owned());
        assert_eq!(
            of(Some("a;\nret;\n"), Some("b;\nc;\nret;\n")),
            Some(expected)
        );
    }
}
