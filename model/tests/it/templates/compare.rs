//! What the templates of a folder make of conversations, beside what transformers makes of them.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::civil::date;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use warpwright_model::chat::{ChatTemplate, Conversation, Then, Value};

/// What `render.py` prints.
#[derive(Deserialize)]
struct Rendered {
    conversations: BTreeMap<String, Said>,
    /// By template and conversation.
    templates: BTreeMap<String, BTreeMap<String, Outcome>>,
}

#[derive(Deserialize)]
struct Said {
    messages: Vec<Value>,
    then: bool,
    more: Value,
}

/// What comes of a template and a conversation.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum Outcome {
    /// The first 16 digits of the text's SHA-256, or the text itself.
    Text(String),
    /// By `raise_exception`, in the template's words.
    Raised { raised: String },
    /// Otherwise.
    Failed { failed: String },
}

/// Where the two differ: the template, the conversation, and what comes of them here and there.
pub(crate) type Difference = (String, String, Outcome, Outcome);

/// What was compared.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) templates: usize,
    pub(crate) compared: usize,
    pub(crate) differences: Vec<Difference>,
}

/// Renders all templates of a folder that `rendered` has.
pub(crate) fn differences(folder: &Path, rendered: &str) -> Found {
    let rendered: Rendered = serde_json::from_str(rendered).unwrap();
    let mut found = Found {
        templates: rendered.templates.len(),
        ..Found::default()
    };
    for (name, outcomes) in &rendered.templates {
        let text = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        for (conversation, there) in outcomes {
            let here = outcome(&text, &rendered.conversations[conversation], there);
            found.compared += 1;
            if !agree(&here, there) {
                found
                    .differences
                    .push((name.clone(), conversation.clone(), here, there.clone()));
            }
        }
    }

    found
}

/// Any failure is like any other: each library has its own words for them.
fn agree(here: &Outcome, there: &Outcome) -> bool {
    here == there
        || matches!(
            (here, there),
            (Outcome::Failed { .. }, Outcome::Failed { .. })
        )
}

fn outcome(template: &str, said: &Said, there: &Outcome) -> Outcome {
    match text(template, said) {
        Ok(text) => match there {
            Outcome::Text(digest) if digest.len() == 16 => Outcome::Text(digested(&text)),
            _ => Outcome::Text(text),
        },
        Err(problem) => match problem.split_once(": ") {
            Some((place, raised))
                if place.starts_with("the chat template refuses the conversation in line ") =>
            {
                Outcome::Raised {
                    raised: raised.to_owned(),
                }
            }
            _ => Outcome::Failed { failed: problem },
        },
    }
}

fn text(template: &str, said: &Said) -> Result<String, String> {
    let special = vec![
        ("bos_token", "<s>".to_owned()),
        ("eos_token", "</s>".to_owned()),
    ];
    let mut template = ChatTemplate::new(template, special).map_err(|error| error.to_string())?;
    template.set_date(date(2026, 2, 3));
    let given = |name: &str| said.more.get(name).cloned();
    let thinking = given("enable_thinking").map(|value| ("enable_thinking".to_owned(), value));
    let conversation = Conversation {
        messages: said.messages.clone(),
        tools: given("tools"),
        more: thinking.into_iter().collect(),
    };
    let then = if said.then { Then::Reply } else { Then::End };
    template
        .render(&conversation, then)
        .map(|rendered| rendered.text)
        .map_err(|error| error.to_string())
}

fn digested(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
