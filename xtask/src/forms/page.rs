//! The page that lists the forms, `docs/ptx-forms.md`.

use std::fmt::Write;

use super::{Answer, Answers, Comparison, TARGETS, VERSION, is_lax, is_lie};
use crate::cuda_tools;

/// The page, relative to the root.
pub(super) const PATH: &str = "docs/ptx-forms.md";

/// Writes one sentence for each kind of form.
pub(super) fn summary(comparison: &Comparison) -> String {
    kinds(comparison)
        .iter()
        .map(|(kind, answers)| format!("{kind}: {}\n", counts(answers)))
        .collect()
}

fn kinds(comparison: &Comparison) -> [(&'static str, &Answers); 3] {
    [
        ("names of instructions", &comparison.names),
        ("operands of instructions", &comparison.operands),
        ("statements and declarations", &comparison.written),
    ]
}

fn counts(answers: &Answers) -> String {
    let count = |wanted: fn(&Answer) -> bool| answers.values().filter(|a| wanted(a)).count();
    format!(
        "ptxas accepts {} of {}; of these, {} run, {} are unsupported and {} are called ill-formed; of the others, {} are \
         accepted here and {} called unsupported",
        count(|a| a.taken),
        answers.len(),
        count(|a| a.taken && a.runs),
        count(|a| a.taken && a.unsupported),
        count(is_lie),
        count(is_lax),
        count(|a| !a.taken && a.unsupported),
    )
}

/// Writes the page.
pub(super) fn text(comparison: &Comparison) -> String {
    let row = |(kind, answers): &(&str, &Answers)| {
        let count = |wanted: fn(&Answer) -> bool| answers.values().filter(|a| wanted(a)).count();
        format!(
            "| {kind} | {} | {} | {} | {} | {} | {} |\n",
            answers.len(),
            count(|a| a.taken),
            count(|a| a.taken && a.runs),
            count(|a| a.taken && a.unsupported),
            count(is_lie),
            count(is_lax),
        )
    };
    let kinds = kinds(comparison);
    let mut page = format!(
        "# Forms of PTX\n\n\
         Lists where the emulator and ptxas {} differ. `cargo xtask forms --update` writes this page: it shows every \
         form to ptxas (`.version {VERSION}`, {}) and to the emulator. CI checks that the page is up to date and that \
         the emulator calls no form ill-formed that ptxas accepts.\n\n\
         | | tried | ptxas accepts | run | unsupported | called ill-formed | ptxas rejects, run here |\n\
         |---|--:|--:|--:|--:|--:|--:|\n{}\n\
         The columns *run*, *unsupported* and *called ill-formed* divide the forms that ptxas accepts.\n\n\
         In the forms below, `%h`, `%r` and `%l` are registers of 16, 32 and 64 bits, and `%p` predicates. Outside of \
         the names of instructions, `h`, `r`, `s`, `l` and `m` are such registers too, `p` and `q` predicates, `f` and \
         `d` floats of 32 and 64 bits, `g`, `c`, `sh` and `lo` arrays, and `fn` is a function.\n",
        cuda_tools::VERSION,
        TARGETS.join(", "),
        kinds.iter().map(row).collect::<String>(),
    );
    page += "\n## Unsupported\n\nptxas accepts these forms. The emulator refuses the kernel and names the form.\n";
    sections(&mut page, &kinds, |a| a.taken && a.unsupported);
    page += "\n## Accepted here and rejected by ptxas\n\nThe emulator runs these forms, so a kernel that uses them runs \
             here and cannot be assembled.\n";
    sections(&mut page, &kinds, is_lax);
    page
}

/// Adds a list of forms for each kind that has some.
fn sections(page: &mut String, kinds: &[(&'static str, &Answers)], wanted: fn(&Answer) -> bool) {
    for (kind, answers) in kinds {
        let found: Vec<&str> = answers
            .iter()
            .filter(|(_, a)| wanted(a))
            .map(|(name, _)| name.as_str())
            .collect();
        if !found.is_empty() {
            let _ = write!(
                page,
                "\n{} {kind}:\n\n```text\n{}\n```\n",
                found.len(),
                found.join("\n")
            );
        }
    }
}
