//! Chat templates of published models render as transformers renders them
//! (`tests/data/templates/README.md`).

use std::path::Path;

mod calls;
mod compare;
mod frames;
mod hostile;
mod round_trip;
mod thoughts;

use compare::Outcome;

/// What is known to differ: the template, the conversations, and what comes of them with
/// transformers.
const KNOWN: [(&str, &[&str], &str); 0] = [];

#[test]
fn templates_of_published_models_render_as_with_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/templates");
    let rendered = std::fs::read_to_string(folder.join("rendered.json")).unwrap();
    let found = compare::differences(&folder, &rendered);
    assert!(
        found.templates >= 40 && found.compared == 16 * found.templates,
        "{}",
        found.compared
    );
    let mut known: Vec<(&str, &str, &str)> = vec![];
    for (template, conversations, failed) in KNOWN {
        known.extend(
            conversations
                .iter()
                .map(|conversation| (template, *conversation, failed)),
        );
    }

    let differences = found
        .differences
        .iter()
        .map(|(template, conversation, _, there)| {
            let failed = if let Outcome::Failed { failed } = there {
                failed.as_str()
            } else {
                ""
            };
            (template.as_str(), conversation.as_str(), failed)
        });
    assert_eq!(
        differences.collect::<Vec<_>>(),
        known,
        "{:#?}",
        found.differences
    );
}
