//! The components of `tokenizer.json`, in a table with a row for each type. Settings that the
//! library `tokenizers` would silently ignore, or on which it would panic, are reported.

use serde_json::Value;

use crate::tokenizer::json::pattern;
use crate::tokenizer::sentencepiece::charsmap::Charsmap;
use crate::tokenizer::vocabulary_fault::Fault;

/// The part of the file that a component stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComponentSection {
    Normalizer,
    PreTokenizer,
    PostProcessor,
    Decoder,
}

impl ComponentSection {
    pub(crate) fn key(self) -> &'static str {
        match self {
            ComponentSection::Normalizer => "normalizer",
            ComponentSection::PreTokenizer => "pre_tokenizer",
            ComponentSection::PostProcessor => "post_processor",
            ComponentSection::Decoder => "decoder",
        }
    }

    /// The key of a sequence with its steps.
    fn steps(self) -> &'static str {
        match self {
            ComponentSection::Normalizer => "normalizers",
            ComponentSection::PreTokenizer => "pretokenizers",
            ComponentSection::PostProcessor => "processors",
            ComponentSection::Decoder => "decoders",
        }
    }
}

/// Each type with its keys, of all parts: some are in several.
const TYPES: [(&str, &[&str]); 32] = [
    ("BPEDecoder", &["suffix"]),
    (
        "BertNormalizer",
        &[
            "clean_text",
            "handle_chinese_chars",
            "strip_accents",
            "lowercase",
        ],
    ),
    ("BertPreTokenizer", &[]),
    ("BertProcessing", &["sep", "cls"]),
    ("ByteFallback", &[]),
    (
        "ByteLevel",
        &["add_prefix_space", "trim_offsets", "use_regex"],
    ),
    ("CTC", &["pad_token", "word_delimiter_token", "cleanup"]),
    ("CharDelimiterSplit", &["delimiter"]),
    ("Digits", &["individual_digits"]),
    ("FixedLength", &["length"]),
    ("Fuse", &[]),
    ("Lowercase", &[]),
    (
        "Metaspace",
        &[
            "replacement",
            "prepend_scheme",
            "split",
            "add_prefix_space",
            "str_rep",
        ],
    ),
    ("NFC", &[]),
    ("NFD", &[]),
    ("NFKC", &[]),
    ("NFKD", &[]),
    ("Nmt", &[]),
    ("Precompiled", &["precompiled_charsmap"]),
    ("Prepend", &["prepend"]),
    ("Punctuation", &["behavior"]),
    ("Replace", &["pattern", "content"]),
    (
        "RobertaProcessing",
        &["sep", "cls", "trim_offsets", "add_prefix_space"],
    ),
    (
        "Sequence",
        &["normalizers", "pretokenizers", "processors", "decoders"],
    ),
    ("Split", &["pattern", "behavior", "invert"]),
    (
        "Strip",
        &["strip_left", "strip_right", "content", "start", "stop"],
    ),
    ("StripAccents", &[]),
    ("TemplateProcessing", &["single", "pair", "special_tokens"]),
    ("UnicodeScripts", &[]),
    ("Whitespace", &[]),
    ("WhitespaceSplit", &[]),
    ("WordPiece", &["prefix", "cleanup"]),
];

/// A component, or the steps that it consists of; none of `null`.
pub(crate) fn steps(part: ComponentSection, component: &Value) -> Vec<&Value> {
    match component.get(part.steps()).and_then(Value::as_array) {
        Some(steps) => steps.iter().flat_map(|step| steps_of(part, step)).collect(),
        None if component.is_null() => vec![],
        None => vec![component],
    }
}

fn steps_of(part: ComponentSection, step: &Value) -> Vec<&Value> {
    // A step is no null.
    if step.is_null() {
        vec![step]
    } else {
        steps(part, step)
    }
}

/// Rejects a component with unknown settings, and adds the keys that are left out to `spare`.
pub(crate) fn check(
    part: ComponentSection,
    component: &Value,
    vocab: u32,
    spare: &mut Vec<String>,
) -> Result<(), Fault> {
    if component.is_null() {
        return Ok(());
    }

    let Some((kind, keys)) = known(component) else {
        let kind = component
            .get("type")
            .map_or("none".to_owned(), Value::to_string);
        return Err(Fault::Component {
            part: part.key(),
            kind,
        });
    };

    let object = component
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key);
    let others = object.filter(|key| *key != "type" && !keys.contains(&key.as_str()));
    spare.extend(others.map(|key| format!("{key} of {kind} ({})", part.key())));
    if let Some(steps) = component.get(part.steps()).and_then(Value::as_array) {
        for step in steps {
            if step.is_null() {
                return Err(Fault::Component {
                    part: part.key(),
                    kind: "null".to_owned(),
                });
            }
            check(part, step, vocab, spare)?;
        }
        return Ok(());
    }

    step(part, kind, component, vocab)
}

/// The row of a component.
fn known(component: &Value) -> Option<(&'static str, &'static [&'static str])> {
    let kind = component.get("type")?.as_str()?;
    TYPES.iter().find(|(known, _)| *known == kind).copied()
}

/// Refuses a step that the library would read and then panic on, or understand otherwise than in
/// Python.
fn step(part: ComponentSection, kind: &'static str, step: &Value, vocab: u32) -> Result<(), Fault> {
    let wrong = |key, problem: &str| {
        Err(Fault::Setting {
            part: part.key(),
            kind,
            key,
            problem: problem.into(),
        })
    };
    match kind {
        "FixedLength" if step["length"] == 0 => wrong("length", "is 0; expected 1 or more"),
        "Prepend" if step["prepend"] == "" => wrong("prepend", "is empty; leave the step out"),
        "Precompiled" => charsmap(step),
        "Replace" | "Split" => match pattern::problem(&step["pattern"], kind == "Replace") {
            Some(problem) => wrong("pattern", &problem),
            None => Ok(()),
        },
        "TemplateProcessing" => match template(step, vocab) {
            Some(problem) => wrong("single", &problem),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses a normalization that would lead the library out of its array.
fn charsmap(step: &Value) -> Result<(), Fault> {
    let text = step["precompiled_charsmap"].as_str().unwrap_or_default();
    let bytes = base64::decode(text).map_err(|_| Fault::Charsmap)?;
    Charsmap::new(&bytes).map(drop).ok_or(Fault::Charsmap)
}

/// Returns the problem with the texts that a template puts around a text, if there is one.
fn template(step: &Value, vocab: u32) -> Option<String> {
    let pieces = step["single"].as_array()?;
    let texts: Vec<&Value> = pieces
        .iter()
        .filter_map(|piece| piece.get("Sequence")?.get("id"))
        .collect();
    if texts != ["A"] {
        return Some("has not the text, $A, once and nothing else of texts".to_owned());
    }

    let names = pieces
        .iter()
        .filter_map(|piece| piece.get("SpecialToken")?.get("id")?.as_str());
    names.into_iter().find_map(|name| {
        let Some(Value::Array(ids)) = step["special_tokens"].get(name).map(|token| &token["ids"])
        else {
            return Some(format!(
                "names {name:?}, of which special_tokens has no ids"
            ));
        };
        let outside = ids
            .iter()
            .find(|id| id.as_u64().is_none_or(|id| id >= u64::from(vocab)));
        outside.map(|id| format!("names {name:?}, which is {id}; expected a token below {vocab}"))
    })
}
