//! The parts of a kernel's PTX: what stands under each of its notes.
//!
//! A part begins at a note and ends at the next note of the same block, or at the end of that block. Of the parts
//! inside it only the headings are left. Registers and labels are numbered within the part, in the order in which they
//! appear, so that a change of one part leaves the text of the others as it is.

use std::collections::BTreeMap;

use ptx_gen::Class;

/// A part of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The text of its note; [`START`] for what stands before the first one.
    pub(crate) heading: String,
    /// Its instructions and labels, one a line, indented from zero on.
    pub(crate) text: String,
}

/// The heading of what stands before a kernel's first note.
pub(crate) const START: &str = "start";

/// A section that is being read.
struct Open<'a> {
    heading: &'a str,
    depth: usize,
    lines: Vec<&'a str>,
}

/// The sections of a kernel's PTX, in the order in which they end. Declarations are in none.
pub(crate) fn sections(ptx: &str) -> Vec<Section> {
    let body = ptx
        .lines()
        .skip_while(|line| *line != "{")
        .skip(1)
        .take_while(|line| *line != "}");
    let mut done = vec![];
    let mut open = vec![Open {
        heading: START,
        depth: 4,
        lines: vec![],
    }];
    for line in body.filter(|line| !line.is_empty() && !line.trim_start().starts_with('.')) {
        let depth = line.len() - line.trim_start().len();
        let note = line.trim_start().strip_prefix("// ");
        // A label stands at the margin, whatever block it is in: it stays with the lines before it.
        if label(line).is_none() {
            let ended =
                |section: &Open| section.depth > depth || note.is_some() && section.depth == depth;
            while open.len() > 1 && open.last().is_some_and(ended) {
                close(&mut open, &mut done);
            }
        }
        open.last_mut()
            .expect("the first section stays open")
            .lines
            .push(line);
        open.extend(note.map(|heading| Open {
            heading,
            depth,
            lines: vec![],
        }));
    }
    while !open.is_empty() {
        close(&mut open, &mut done);
    }
    done
}

/// Ends the innermost section. Labels at its end to which it does not branch belong to the section around it.
fn close<'a>(open: &mut Vec<Open<'a>>, done: &mut Vec<Section>) {
    let Some(mut section) = open.pop() else {
        return;
    };
    let foreign = |line: &&&str| {
        label(line).is_some_and(|name| !section.lines.iter().any(|l| branches(l, name)))
    };
    let count = section.lines.iter().rev().take_while(foreign).count();
    let behind = section.lines.split_off(section.lines.len() - count);
    if let Some(around) = open.last_mut() {
        around.lines.extend(behind);
    }
    done.push(Section {
        heading: section.heading.to_owned(),
        text: text(&section),
    });
}

/// The name of a label that stands on this line.
fn label(line: &str) -> Option<&str> {
    line.strip_suffix(':').filter(|name| name.starts_with('$'))
}

fn branches(line: &str, label: &str) -> bool {
    line.contains("bra ") && line.trim_end_matches(';').ends_with(&format!(" {label}"))
}

fn text(section: &Open) -> String {
    let mut names = Names::default();
    let indented = |line: &str| {
        line.get(section.depth..)
            .filter(|_| label(line).is_none())
            .unwrap_or(line)
            .to_owned()
    };
    section
        .lines
        .iter()
        .map(|line| names.renumbered(&indented(line)) + "\n")
        .collect()
}

/// New names of registers and labels, and how many there are with each prefix.
#[derive(Default)]
struct Names {
    new: BTreeMap<String, String>,
    count: BTreeMap<String, u32>,
}

impl Names {
    fn renumbered(&mut self, line: &str) -> String {
        if line.starts_with("// ") {
            return line.to_owned();
        }
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(['%', '$']) {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = rest[at + 1..]
                .find(|c| !word(c))
                .map_or(rest.len(), |len| at + 1 + len);
            out += &rest[..at];
            out += &self.name(&rest[at..end]);
            rest = &rest[end..];
        }
        out + rest
    }

    fn name(&mut self, old: &str) -> String {
        let prefix = old.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
        let class = prefix
            .strip_prefix('%')
            .is_none_or(|p| Class::ALL.iter().any(|class| class.prefix() == p));
        if !class || prefix == old {
            return old.to_owned();
        }
        let count = self.count.entry(prefix.to_owned()).or_default();
        self.new
            .entry(old.to_owned())
            .or_insert_with(|| {
                *count += 1;
                format!("{prefix}{}", *count - 1)
            })
            .clone()
    }
}
