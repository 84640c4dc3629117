//! `cargo xtask prose`: counts the patterns that make English hard to read.
//!
//! Two texts are measured: the doc comments of all code that is not a test, and the Markdown pages. Code spans and code
//! blocks are left out of both. A pattern with a limit fails the command when its rate is above the limit. The other
//! rates are printed for comparison only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use comfy_table::{Table, presets};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use regex::Regex;

use super::is_program_code;
use crate::git;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Checkouts or folders in a checkout; limits apply to the first [default: this repository]
    roots: Vec<PathBuf>,
}

/// A construction that is counted in doc comments, per 10,000 words.
struct Pattern {
    name: &'static str,
    regex: &'static str,
    limit: Option<f64>,
}

const PATTERNS: [Pattern; 6] = [
    Pattern {
        name: "what",
        regex: r"(?i)\bwhat\b",
        limit: Some(15.0),
    },
    Pattern {
        name: "nobody, somebody, anybody, whoever, whatever",
        regex: r"(?i)\b(nobody|somebody|anybody|whoever|whatever)\b",
        limit: Some(0.5),
    },
    Pattern {
        name: "returns",
        regex: r"(?i)\breturns?\b",
        limit: None,
    },
    Pattern {
        name: "because",
        regex: r"(?i)\bbecause\b",
        limit: None,
    },
    Pattern {
        name: "you, your",
        regex: r"(?i)\b(you|your)\b",
        limit: None,
    },
    Pattern {
        name: "for example, such as",
        regex: r"(?i)\b(for example|for instance|such as)\b",
        limit: None,
    },
];

/// Openings that lean on a neighbor or ask a question instead of naming their subject.
const OPENING: &str = r"^(What|Where|How|Whether|Of|The same)\b";

/// One line of the report.
struct Rate {
    name: String,
    value: f64,
    limit: Option<f64>,
}

/// The text of one doc comment, and the first line of code after it.
struct DocComment {
    text: String,
    item: String,
}

/// Measures this repository, as `cargo xtask ci` does.
pub(crate) fn check() -> Result<()> {
    run(&Args { roots: Vec::new() })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let roots = if args.roots.is_empty() {
        vec![crate::paths::root().to_owned()]
    } else {
        args.roots.clone()
    };
    let mut reports = Vec::new();
    for root in &roots {
        reports.push(measure(root)?);
    }

    println!("{}", table(&roots, &reports));

    // Other checkouts are printed to compare with: their rates are not this project's to keep.
    let exceeded: Vec<&str> = reports[0]
        .iter()
        .filter(|rate| rate.limit.is_some_and(|limit| rate.value > limit))
        .map(|rate| rate.name.as_str())
        .collect();
    ensure!(
        exceeded.is_empty(),
        "above the limit: {}; rewrite the sentences that hold the pattern",
        exceeded.join(", ")
    );
    Ok(())
}

fn table(roots: &[PathBuf], reports: &[Vec<Rate>]) -> Table {
    let mut header = vec!["pattern".to_owned(), "limit".to_owned()];
    header.extend(roots.iter().map(|root| name(root)));
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for (line, rate) in reports[0].iter().enumerate() {
        let limit = rate
            .limit
            .map_or_else(String::new, |limit| format!("{limit}"));
        let mut row = vec![rate.name.clone(), limit];
        row.extend(
            reports
                .iter()
                .map(|report| format!("{:.1}", report[line].value)),
        );
        table.add_row(row);
    }

    table
}

/// Returns the name of the folder at `root`.
fn name(root: &Path) -> String {
    let whole = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    whole
        .file_name()
        .unwrap_or(whole.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn measure(root: &Path) -> Result<Vec<Rate>> {
    let mut docs = Vec::new();
    let mut pages = Vec::new();
    for file in git::tracked_files(root)? {
        // A file that was deleted but not yet committed is still listed.
        let Ok(text) = fs::read_to_string(root.join(&file)) else {
            continue;
        };
        if is_program_code(&file) {
            docs.extend(doc_comments(&text));
        } else if is_page(&file) {
            pages.push(text);
        }
    }

    let mut rates = doc_rates(&docs)?;
    rates.extend(page_rates(&pages));
    Ok(rates)
}

/// Returns true for a Markdown page that people read, in contrast to fixtures and generated tables.
fn is_page(file: &Path) -> bool {
    const PAGES: [&str; 6] = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "STYLE.md",
        "SECURITY.md",
        "BENCHMARKS.md",
    ];
    let at_the_top = PAGES.iter().any(|page| file == Path::new(page));
    let in_the_book = file.starts_with("docs") && file.extension().is_some_and(|e| e == "md");
    at_the_top || in_the_book
}

fn doc_rates(docs: &[DocComment]) -> Result<Vec<Rate>> {
    let opening = Regex::new(OPENING)?;

    // "Whether" is the right opening for a field that is a bool.
    let bool_field = Regex::new(r"^(pub(\([a-z]+\))? )?\w+: bool\b")?;
    let mut prose = String::new();
    let mut bad_openings = 0;
    for doc in docs {
        let text = plain_text(&doc.text);
        let is_bool =
            doc.text.trim_start().starts_with("Whether") && bool_field.is_match(&doc.item);
        if opening.is_match(text.trim_start()) && !is_bool {
            bad_openings += 1;
        }
        prose.push_str(&text);
        prose.push('\n');
    }

    let words = prose.split_whitespace().count().max(1);
    let mut rates = vec![Rate {
        name: "doc comments: words".to_owned(),
        value: words as f64,
        limit: None,
    }];
    for pattern in PATTERNS {
        let count = Regex::new(pattern.regex)?.find_iter(&prose).count();
        rates.push(Rate {
            name: format!("doc comments: {}, per 10,000 words", pattern.name),
            value: 1e4 * count as f64 / words as f64,
            limit: pattern.limit,
        });
    }

    rates.push(Rate {
        name: "doc comments: opening with What, Where, How, Whether, Of or The same, in percent"
            .to_owned(),
        value: 100.0 * f64::from(bad_openings) / docs.len().max(1) as f64,
        limit: Some(1.5),
    });
    Ok(rates)
}

/// Returns the doc comments of a file. Adjacent lines of the same kind are one comment.
fn doc_comments(source: &str) -> Vec<DocComment> {
    let mut docs: Vec<DocComment> = Vec::new();
    let mut inside = false;
    for line in source.lines() {
        let line = line.trim();
        let is_doc =
            (line.starts_with("///") && !line.starts_with("////")) || line.starts_with("//!");
        if is_doc {
            let text = line[3..].strip_prefix(' ').unwrap_or(&line[3..]);
            match docs.last_mut() {
                Some(doc) if inside => {
                    doc.text.push('\n');
                    doc.text.push_str(text);
                }
                _ => docs.push(DocComment {
                    text: text.to_owned(),
                    item: String::new(),
                }),
            }
        } else if let Some(doc) = docs.last_mut()
            && doc.item.is_empty()
            && !line.starts_with("#[")
        {
            doc.item = line.to_owned();
        }

        inside = is_doc;
    }

    docs
}

/// Returns the words of a Markdown text, with each code span replaced by `X` and code blocks left out.
fn plain_text(markdown: &str) -> String {
    paragraphs(markdown).join("\n")
}

/// Returns the paragraphs, list items and headings of a Markdown text as plain text. Tables and code are left out.
fn paragraphs(markdown: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut skipped = 0;
    let options = pulldown_cmark::Options::ENABLE_TABLES;
    for event in Parser::new_ext(markdown, options) {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock) => skipped += 1,
            Event::End(TagEnd::CodeBlock | TagEnd::Table | TagEnd::HtmlBlock) => skipped -= 1,
            _ if skipped > 0 => {}
            Event::Text(text) => last(&mut found).push_str(&text),
            Event::Code(_) => last(&mut found).push('X'),
            Event::SoftBreak | Event::HardBreak => last(&mut found).push(' '),
            Event::Start(Tag::Paragraph | Tag::Item | Tag::Heading { .. })
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::Heading(_)) => {
                found.push(String::new());
            }
            _ => {}
        }
    }

    found.retain(|paragraph| !paragraph.trim().is_empty());
    found
}

fn last(paragraphs: &mut [String]) -> &mut String {
    paragraphs
        .last_mut()
        .expect("the list starts with one paragraph and never shrinks")
}

fn page_rates(pages: &[String]) -> Vec<Rate> {
    let mut words = 0;
    let mut semicolons = 0;
    let mut lengths = Vec::new();
    for paragraph in pages.iter().flat_map(|page| paragraphs(page)) {
        semicolons += paragraph.matches(';').count();
        for sentence in sentences(&paragraph) {
            let length = word_count(sentence);
            words += length;
            // A single word is a heading or a label, not a sentence.
            if length > 1 {
                lengths.push(length);
            }
        }
    }

    lengths.sort_unstable();
    let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
    let ninetieth = lengths
        .get(lengths.len() * 9 / 10)
        .map_or(0.0, |length| *length as f64);
    vec![
        Rate {
            name: "pages: semicolons per 1,000 words".to_owned(),
            value: 1e3 * semicolons as f64 / words.max(1) as f64,
            limit: Some(2.0),
        },
        Rate {
            name: "pages: words a sentence, mean".to_owned(),
            value: mean,
            limit: Some(18.0),
        },
        Rate {
            name: "pages: words a sentence, 90th percentile".to_owned(),
            value: ninetieth,
            limit: Some(26.0),
        },
    ]
}

/// Splits a paragraph after each final mark that white space and a new sentence follow.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, character) in paragraph.char_indices() {
        if !matches!(character, '.' | '!' | '?') {
            continue;
        }

        let end = at + character.len_utf8();
        let rest = paragraph[end..].trim_start_matches(['"', '\'', ')']);
        let next = rest.trim_start();
        let begins_sentence =
            next.starts_with(|c: char| c.is_uppercase() || matches!(c, '"' | '(' | '['));
        if rest.starts_with(char::is_whitespace) && begins_sentence {
            found.push(&paragraph[start..end]);
            start = end;
        }
    }

    found.push(&paragraph[start..]);
    found
}

/// Returns the number of words, which start with a letter. Numbers and marks do not count.
fn word_count(sentence: &str) -> usize {
    sentence
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '\'' || c == '-'))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_comments_end_at_code() {
        let source =
            "/// One.\n/// Two.\n#[inline]\nfn f() {}\n/// Whether it is.\npub on: bool,\n";
        let docs = doc_comments(source);
        assert_eq!(docs.len(), 2);
        assert_eq!(docs[0].text, "One.\nTwo.");
        assert_eq!(docs[0].item, "fn f() {}");
        assert_eq!(docs[1].item, "pub on: bool,");
    }

    #[test]
    fn bool_fields_may_open_with_whether() -> Result<()> {
        let docs = doc_comments(
            "/// Whether it is.\npub on: bool,\n/// Whether it is.\nfn on() -> bool {\n",
        );
        let rates = doc_rates(&docs)?;
        let opening = rates.last().expect("the openings come last");
        assert_eq!(opening.value, 50.0);
        Ok(())
    }

    #[test]
    fn code_is_not_prose() {
        let text = plain_text("Calls `what; nobody` once.\n\n```\nwhat; what\n```\n\nEnds here.");
        assert_eq!(text, "Calls X once.\nEnds here.");
    }

    #[test]
    fn sentences_end_at_marks_before_capitals() {
        assert_eq!(
            sentences("It has 1.5 GB. It ends (see above.) Next, e.g. this one. X returns.").len(),
            4
        );
        assert_eq!(word_count("It has 1.5 GB, well-kept."), 4);
    }

    #[test]
    fn tables_are_left_out_and_items_are_apart() {
        let page = "# Title\n\n- one; two\n- three\n\n| a; b | c |\n|---|---|\n| d; e | f |\n";
        let rates = page_rates(&[page.to_owned()]);
        assert_eq!(paragraphs(page), ["Title", "one; two", "three"]);
        assert_eq!(rates[0].value, 250.0);
    }
}
