//! Divides the PTX of a kernel into sections: the instructions that follow each of its notes.
//!
//! A section begins at a note and ends at the next note of the same block, or at the end of that
//! block. Of the sections nested inside it, only the notes remain. Registers and labels are
//! numbered within the section, in the order in which they appear, so that a change of one section
//! leaves the text of the others as it is.

use std::collections::BTreeMap;

use ptx_gen::Class;

/// A section of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The number of its note, counted from 0 in the order of the text. `None` for the instructions
    /// before the first note.
    pub(crate) note: Option<usize>,
    /// The instructions and labels, one per line, with the outermost block not indented.
    pub(crate) text: String,
}

/// A section that is being read.
struct OpenSection<'a> {
    note: Option<usize>,
    depth: usize,
    lines: Vec<&'a str>,
}

/// Returns the sections of a kernel's PTX, in the order in which they end. Declarations are left
/// out.
pub(crate) fn sections(ptx: &str) -> Vec<Section> {
    let body = ptx
        .lines()
        .skip_while(|line| *line != "{")
        .skip(1)
        .take_while(|line| *line != "}");
    let mut done = vec![];
    let mut notes = 0;
    let mut open = vec![OpenSection {
        note: None,
        depth: 4,
        lines: vec![],
    }];
    for line in body.filter(|line| !line.is_empty() && !line.trim_start().starts_with('.')) {
        let depth = line.len() - line.trim_start().len();
        let is_note = line.trim_start().starts_with("// ");

        // A label is printed at the margin, whichever block it is in. It stays with the lines
        // before it.
        if label(line).is_none() {
            let ended =
                |section: &OpenSection| section.depth > depth || is_note && section.depth == depth;
            while open.len() > 1 && open.last().is_some_and(ended) {
                close(&mut open, &mut done);
            }
        }

        open.last_mut()
            .expect("the first section stays open")
            .lines
            .push(line);
        if is_note {
            open.push(OpenSection {
                note: Some(notes),
                depth,
                lines: vec![],
            });
            notes += 1;
        }
    }

    while !open.is_empty() {
        close(&mut open, &mut done);
    }

    done
}

/// Ends the innermost section. Labels at its end to which it does not branch belong to the section
/// around it.
fn close<'a>(open: &mut Vec<OpenSection<'a>>, done: &mut Vec<Section>) {
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
        note: section.note,
        text: text(&section),
    });
}

/// Returns the name of the label that a line declares.
fn label(line: &str) -> Option<&str> {
    line.strip_suffix(':').filter(|name| name.starts_with('$'))
}

/// Returns true if a line is a branch to this label.
fn branches(line: &str, label: &str) -> bool {
    line.contains("bra ") && line.trim_end_matches(';').ends_with(&format!(" {label}"))
}

fn text(section: &OpenSection) -> String {
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

/// The new names of registers and labels, and the number of names with each prefix.
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
