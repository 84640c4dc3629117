//! Keys of rows and messages that decide what is learned.
//!
//! Trainers and services exclude a message or a row from learning by a key next to its text:
//! `"weight": 0` (OpenAI, Fireworks, Together, Mistral), `"train": false` or `"training": false`
//! (axolotl), `"trainable": false` and `"loss": false` (ms-swift). These are honored. Other keys
//! that would change what is learned, for example a mask or a rejected answer, are refused by name,
//! because ignoring them would train on the wrong text without a word. All other keys, such as
//! `source` and `id`, are ignored.

use serde_json::{Map, Value};

/// The keys that are honored. Each takes 0 or `false` to exclude, and 1 or `true` to learn.
const SWITCHES: [&str; 5] = ["weight", "train", "trainable", "training", "loss"];

/// Words in a key that say that it changes which text is learned, or how much.
const LEARNING_WORDS: [&str; 23] = [
    "weight",
    "weights",
    "weighted",
    "mask",
    "masks",
    "masked",
    "loss",
    "losses",
    "train",
    "trainable",
    "trained",
    "training",
    "learn",
    "learned",
    "learnable",
    "label",
    "labels",
    "ignore",
    "ignored",
    "skip",
    "exclude",
    "excluded",
    "untrained",
];

/// Keys, as a whole, with text or other content that the forms of rows do not have. Leaving it out
/// would train on another text than the row describes, or on an answer that is meant as a bad
/// example.
const CONTENT_KEYS: [&str; 20] = [
    "chosen",
    "rejected",
    "rejected_response",
    "rejected_messages",
    "segments",
    "history",
    "system",
    "system_prompt",
    "functions",
    "function_call",
    "tools",
    "tool_calls",
    "documents",
    "images",
    "image",
    "videos",
    "audios",
    "chat_template",
    "input_ids",
    "token_ids",
];

/// The effect of the switches of a row or a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MarkEffect {
    /// No switch: the form of the row decides.
    Unmarked,
    /// A switch that is on.
    Learned,
    /// A switch that is off.
    Excluded,
}

/// Reads the switches of a row or a message, and refuses keys that would change what is learned.
/// `known` are the keys that the caller reads itself. `place` is empty or ends with a space, for
/// example `"in message 2 "`.
///
/// # Errors
///
/// Returns the problem, which completes "it".
pub(super) fn read(
    object: &Map<String, Value>,
    known: &[&str],
    place: &str,
) -> Result<MarkEffect, String> {
    let mut found: Option<(&str, bool)> = None;
    for (key, value) in object {
        if is_empty(value) || known.contains(&key.as_str()) {
            continue;
        }

        let Some(switch) = SWITCHES.into_iter().find(|switch| *switch == key) else {
            refuse_unknown(key, place)?;
            continue;
        };

        let learned = switch_value(switch, value, place)?;
        match found {
            Some((other, before)) if before != learned => {
                return Err(format!(
                    "has {other:?} and {switch:?} {place}that contradict each other: keep one"
                ));
            }
            _ => found = Some((switch, learned)),
        }
    }
    Ok(match found {
        None => MarkEffect::Unmarked,
        Some((_, true)) => MarkEffect::Learned,
        Some((_, false)) => MarkEffect::Excluded,
    })
}

/// Returns true if a value is empty. Clients write such fields for every message.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn switch_value(switch: &str, value: &Value, place: &str) -> Result<bool, String> {
    if let Some(learned) = value.as_bool() {
        return Ok(learned);
    }
    match value.as_f64() {
        Some(0.0) => Ok(false),
        Some(1.0) => Ok(true),
        _ => Err(format!(
            "has a {switch:?} of {value} {place}that is not supported: use 0 or false to exclude, or 1 or true to learn"
        )),
    }
}

fn refuse_unknown(key: &str, place: &str) -> Result<(), String> {
    let lower = key.to_ascii_lowercase();
    let changes_content = CONTENT_KEYS.contains(&lower.as_str());
    let changes_learning = words(key).any(|word| LEARNING_WORDS.contains(&word.as_str()));
    if !changes_content && !changes_learning {
        return Ok(());
    }

    Err(format!(
        "has a key {key:?} {place}that could change what is learned, and that finetune does not support here: remove the \
         key, or rename it if it is only a note (to exclude a message or a row, use \"weight\": 0)"
    ))
}

/// The words of a key in lower case: `lossMask`, `loss_mask` and `loss-mask` have two.
fn words(key: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut after_lower = false;
    for letter in key.chars() {
        if letter.is_uppercase() && after_lower {
            spaced.push(' ');
        }
        after_lower = letter.is_lowercase() || letter.is_numeric();
        spaced.push(if letter.is_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            ' '
        });
    }

    spaced
        .split_whitespace()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> Result<MarkEffect, String> {
        read(
            serde_json::from_str::<Value>(text)
                .unwrap()
                .as_object()
                .unwrap(),
            &["content"],
            "",
        )
    }

    #[test]
    fn switches_are_honored() {
        for (text, wanted) in [
            (r#"{"content": "a"}"#, MarkEffect::Unmarked),
            (r#"{"weight": 0}"#, MarkEffect::Excluded),
            (r#"{"weight": 0.0}"#, MarkEffect::Excluded),
            (r#"{"weight": 1}"#, MarkEffect::Learned),
            (r#"{"weight": null}"#, MarkEffect::Unmarked),
            (r#"{"train": false}"#, MarkEffect::Excluded),
            (r#"{"train": true}"#, MarkEffect::Learned),
            (r#"{"trainable": false, "weight": 0}"#, MarkEffect::Excluded),
            (r#"{"training": 0}"#, MarkEffect::Excluded),
            (r#"{"loss": false}"#, MarkEffect::Excluded),
            (
                r#"{"labels": [], "images": [], "system": "", "loss_mask": null}"#,
                MarkEffect::Unmarked,
            ),
        ] {
            assert_eq!(mark(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn values_that_are_no_switch_are_refused() {
        for (text, wanted) in [
            (
                r#"{"weight": 0.5}"#,
                "has a \"weight\" of 0.5 that is not supported: use 0 or false to exclude, or 1 or true to learn",
            ),
            (
                r#"{"weight": -1}"#,
                "has a \"weight\" of -1 that is not supported: use 0 or false to exclude, or 1 or true to learn",
            ),
            (
                r#"{"train": "no"}"#,
                "has a \"train\" of \"no\" that is not supported: use 0 or false to exclude, or 1 or true to learn",
            ),
            (
                r#"{"train": true, "weight": 0}"#,
                "has \"train\" and \"weight\" that contradict each other: keep one",
            ),
        ] {
            assert_eq!(mark(text), Err(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn unknown_keys_that_change_learning_are_refused_by_name() {
        for key in [
            "loss_mask",
            "lossMask",
            "loss-scale",
            "train_detail",
            "train_on_turn",
            "sample_weight",
            "Weight",
            "labels",
            "label",
            "assistant_masks",
            "completion_mask",
            "ignore_index",
            "do_not_train",
            "masked",
            "rejected",
            "rejected_response",
            "chosen",
            "history",
            "system",
            "functions",
            "images",
            "segments",
            "input_ids",
        ] {
            let problem = mark(&format!("{{\"{key}\": 1}}")).unwrap_err();
            assert!(
                problem.starts_with(&format!(
                    "has a key {key:?} that could change what is learned"
                )),
                "{problem}"
            );
        }
        for key in [
            "source",
            "id",
            "idx",
            "category",
            "split",
            "language",
            "topic",
            "score",
            "model",
            "prompt_id",
            "url",
            "timestamp",
            "num_tokens",
            "domain",
            "metadata",
            "meta",
            "constraint",
            "flossy",
            "strain",
            "parallel_tool_calls",
        ] {
            assert_eq!(
                mark(&format!("{{\"{key}\": 1}}")),
                Ok(MarkEffect::Unmarked),
                "{key}"
            );
        }
    }
}
