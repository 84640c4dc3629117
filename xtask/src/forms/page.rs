//! The files with the results: the list of forms that differ, and the counts in a page of the book.

use super::answers::{Answers, Comparison, FormAnswers};
use crate::codegen::GeneratedPart;
use crate::tsv;

/// The list of the forms that differ, relative to the root.
pub(super) const LIST: &str = "docs/checker/ptx-forms.tsv";
/// The page that has the counts between two lines.
pub(super) const PAGE: &str = "docs/checker/ptx.md";
/// The part of the page that is generated.
pub(super) const COUNTS: GeneratedPart = GeneratedPart::Between(
    "<!-- counts: written by `cargo xtask forms --update` -->\n",
    "<!-- end of counts -->\n",
);

/// Returns one sentence for each kind of form.
pub(super) fn summary(comparison: &Comparison) -> String {
    kinds(comparison)
        .iter()
        .map(|(kind, answers)| format!("{kind}: {}\n", sentence(answers)))
        .collect()
}

/// Returns the answers by kind of form.
fn kinds(comparison: &Comparison) -> [(&'static str, &Answers); 3] {
    [
        ("names of instructions", &comparison.names),
        ("operands of instructions", &comparison.operands),
        ("statements and declarations", &comparison.written),
    ]
}

/// Returns the counts as a sentence.
fn sentence(answers: &Answers) -> String {
    let count = |wanted: fn(&FormAnswers) -> bool| answers.values().filter(|a| wanted(a)).count();
    format!(
        "ptxas accepts {} of {}; of these, {} run, {} are unsupported and {} are called ill-formed; of the others, {} are \
         accepted here and {} called unsupported",
        count(|a| a.taken),
        answers.len(),
        count(|a| a.taken && a.runs),
        count(|a| a.taken && a.unsupported),
        count(FormAnswers::is_lie),
        count(FormAnswers::is_lax),
        count(|a| !a.taken && a.unsupported),
    )
}

/// Returns the table of counts, in Markdown.
pub(super) fn counts(comparison: &Comparison) -> String {
    let row = |(kind, answers): &(&str, &Answers)| {
        let count =
            |wanted: fn(&FormAnswers) -> bool| answers.values().filter(|a| wanted(a)).count();
        format!(
            "| {kind} | {} | {} | {} | {} | {} | {} |\n",
            answers.len(),
            count(|a| a.taken),
            count(|a| a.taken && a.runs),
            count(|a| a.taken && a.unsupported),
            count(FormAnswers::is_lie),
            count(FormAnswers::is_lax),
        )
    };
    let rows: String = kinds(comparison).iter().map(row).collect();
    format!(
        "| | tried | ptxas accepts | run | unsupported | called ill-formed | ptxas rejects, run here |\n\
         |---|--:|--:|--:|--:|--:|--:|\n{rows}"
    )
}

/// Returns the list of the forms that differ.
pub(super) fn list(comparison: &Comparison) -> String {
    let unsupported = rows(comparison, "unsupported", |a| a.taken && a.unsupported);
    let lax = rows(
        comparison,
        "accepted here, rejected by ptxas",
        FormAnswers::is_lax,
    );
    tsv::table(&["answer", "kind", "form"], &[unsupported, lax].concat())
}

/// Returns a row for each form with an answer of this kind.
fn rows(
    comparison: &Comparison,
    title: &str,
    wanted: fn(&FormAnswers) -> bool,
) -> Vec<Vec<String>> {
    let mut rows = vec![];
    for (kind, forms) in kinds(comparison) {
        let found = forms.iter().filter(|(_, a)| wanted(a));
        rows.extend(found.map(|(form, _)| vec![title.into(), kind.into(), form.clone()]));
    }
    rows
}
