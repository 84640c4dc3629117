//! `cargo xtask ptx --diff REV`: how the text of kernels differs from that of another revision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anyhow::{Result, bail};
use similar::{ChangeTag, TextDiff};

use crate::{names, revision};

/// Prints the differences between a revision's kernels and `now`, by name: of the kernels of these names, or of all.
pub(crate) fn print(
    revision: &str,
    now: &BTreeMap<String, String>,
    wanted: &[String],
) -> Result<()> {
    let before = revision::texts(revision)?;
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

/// How a kernel's text changed.
struct KernelDifference {
    /// As a unified diff; empty for a kernel that is only on one side.
    text: String,
    /// What happened, in a line.
    line: String,
}

impl KernelDifference {
    /// `None` if both sides have the same text.
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

    fn between(name: &str, before: &str, now: &str) -> KernelDifference {
        let diff = TextDiff::from_lines(before, now);
        let count = |tag| {
            diff.iter_all_changes()
                .filter(|change| change.tag() == tag)
                .count()
        };
        let (plus, minus) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
        let (old, new) = (format!("a/{name}.ptx"), format!("b/{name}.ptx"));
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
