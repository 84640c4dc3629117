//! A line of a file of samples.
//!
//! A row of `{"text"}` is learned entirely. In a row of `{"prompt", "completion"}` only the
//! completion is learned. An Alpaca row, `{"instruction", "input", "output"}` with or without
//! `"input"`, becomes a prompt by Alpaca's template and a completion. The token that ends a text
//! follows all of these. [`chat`] reads conversations, and [`marks`] reads the switches that
//! exclude a row or a message.
//!
//! A line must have the keys of one form. In two exceptions, an additional key is ignored:
//! - Rows of the published Alpaca data set repeat prompt and completion as `"text"`.
//! - Rows of UltraChat repeat the first message as `"prompt"`.

use serde_json::error::Category;
use serde_json::{Map, Value};
use warpwright_model::unique_keys;

use super::chat::{self, Chat, Tokens};
use super::marks::{self, MarkEffect};
use super::preprocess::Preprocess;

/// The content of a line.
pub(super) enum RowContent {
    Text(String),
    Completion { prompt: String, completion: String },
    Chat(Box<Chat>),
}

/// A row, with its mark.
pub(super) struct MarkedRow {
    pub(super) row: RowContent,
    pub(super) mark: MarkEffect,
}

/// The keys of all forms.
const KEYS: [&str; 8] = [
    "text",
    "prompt",
    "completion",
    "instruction",
    "input",
    "output",
    "messages",
    "conversations",
];

impl MarkedRow {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// Returns the problem, which completes "it".
    pub(super) fn parse(line: &[u8]) -> Result<MarkedRow, String> {
        let value: Value =
            serde_json::from_slice(line).map_err(|error| invalid_json(line, &error))?;
        let Value::Object(object) = value else {
            return Err("is not a JSON object: write a sample as {\"text\": \"..\"}".into());
        };

        unique_keys(line)?;
        let has = |key: &str| object.contains_key(key);
        let string = |key: &str| string(&object, key);
        let completion = |prompt, completion| RowContent::Completion { prompt, completion };
        let alpaca = has("instruction") && has("output");
        let chat = has("messages");

        // Data sets of these two forms often repeat their content under another key. The key is not
        // used, so it does not make the form ambiguous.
        let spare = |key: &str| alpaca && key == "text" || chat && key == "prompt";
        let known: Vec<&str> = KEYS
            .into_iter()
            .filter(|&key| has(key) && !spare(key))
            .collect();
        let row = match known[..] {
            ["text"] => RowContent::Text(string("text")?),
            ["prompt", "completion"] => completion(string("prompt")?, string("completion")?),
            ["instruction", "output"] => completion(
                alpaca_prompt(&string("instruction")?, ""),
                string("output")?,
            ),
            ["instruction", "input", "output"] => completion(
                alpaca_prompt(&string("instruction")?, &string("input")?),
                string("output")?,
            ),
            ["messages"] | ["conversations"] => {
                RowContent::Chat(Box::new(chat::parse(line, &object)?))
            }
            _ => {
                return Err(format!(
                    "has the keys [{}], but must have those of one form: \"text\"; \"prompt\" and \"completion\"; \
                     \"instruction\" and \"output\", with or without \"input\"; \"messages\"; or \"conversations\"",
                    object
                        .keys()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .join(", ")
                ));
            }
        };
        let also_read: &[&str] = match known[..] {
            ["messages"] => &["prompt", "tools", "chat_template_kwargs"],
            ["conversations"] => &["system", "tools", "chat_template_kwargs"],
            _ => &["text"],
        };
        let mark = marks::read(&object, &[&known[..], also_read].concat(), "")?;
        Ok(MarkedRow { row, mark })
    }
}

impl RowContent {
    /// Returns the tokens of the row.
    ///
    /// # Errors
    ///
    /// Returns the problem, which completes "it".
    pub(super) fn tokens(&self, how: &Preprocess<'_>) -> Result<Tokens, String> {
        let tokenizer = how.tokenizer;
        let untokenized = |error| format!("cannot be tokenized: {error}");
        let (prompt, rest) = match self {
            RowContent::Chat(chat) => {
                let template = how.template.ok_or(NO_TEMPLATE)?;
                return chat::tokens(chat, tokenizer, template, how.train_on_prompt);
            }
            RowContent::Text(text) => (vec![], tokenizer.encode(text)),
            RowContent::Completion { prompt, completion } => (
                tokenizer.encode(prompt).map_err(untokenized)?,
                tokenizer.encode_rest(completion),
            ),
        };
        let first = if how.train_on_prompt { 0 } else { prompt.len() };
        let ids: Vec<u32> = prompt
            .into_iter()
            .chain(rest.map_err(untokenized)?)
            .chain(tokenizer.eos())
            .collect();
        let learned = chat::one_range(first..ids.len());
        Ok(Tokens { ids, learned })
    }
}

/// Returns the reason why a line is not valid JSON. A sample is on one line, so only the column is
/// reported.
fn invalid_json(line: &[u8], error: &serde_json::Error) -> String {
    if std::str::from_utf8(line).is_err() {
        return "is not valid UTF-8: save the file in UTF-8".into();
    }

    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default();
    let instead = match error.classify() {
        Category::Eof => ": a sample begins and ends on one line",
        _ if problem == "trailing characters" => {
            ": a line contains one sample and nothing after it"
        }
        _ => "",
    };
    format!(
        "is not valid JSON: {problem} at column {}{instead}",
        error.column()
    )
}

const NO_TEMPLATE: &str = "is a conversation, and the model has no chat template (tokenizer.chat_template of a GGUF file; \
                           chat_template.jinja, or chat_template in tokenizer_config.json, of a folder): write \
                           {\"prompt\", \"completion\"} with a template applied";

/// Returns the prompt that Stanford Alpaca was trained with: `PROMPT_DICT` in
/// <https://github.com/tatsu-lab/stanford_alpaca/blob/main/train.py>. There, too, an empty input
/// counts as none.
fn alpaca_prompt(instruction: &str, input: &str) -> String {
    let (paired, input) = match input {
        "" => ("", String::new()),
        input => (
            ", paired with an input that provides further context",
            format!("### Input:\n{input}\n\n"),
        ),
    };
    format!(
        "Below is an instruction that describes a task{paired}. Write a response that appropriately completes the \
         request.\n\n### Instruction:\n{instruction}\n\n{input}### Response:"
    )
}

fn string(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(format!("has a {key:?} that is not a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpaca_rows_have_the_published_prompt() {
        let without = "Below is an instruction that describes a task. Write a response that appropriately completes \
                       the request.\n\n### Instruction:\nCount.\n\n### Response:";
        let with = "Below is an instruction that describes a task, paired with an input that provides further \
                    context. Write a response that appropriately completes the request.\n\n### Instruction:\n\
                    Count.\n\n### Input:\nto 3\n\n### Response:";
        let cases = [
            (r#"{"instruction": "Count.", "output": "1 2"}"#, without),
            (
                r#"{"instruction": "Count.", "input": "", "output": "1 2", "id": 7}"#,
                without,
            ),
            (
                r#"{"instruction": "Count.", "input": "to 3", "output": "1 2"}"#,
                with,
            ),
            (
                r#"{"instruction": "Count.", "input": "to 3", "output": "1 2", "text": "all of it"}"#,
                with,
            ),
        ];
        for (line, wanted) in cases {
            let row = MarkedRow::parse(line.as_bytes()).map(|marked| marked.row);
            let Ok(RowContent::Completion { prompt, completion }) = row else {
                panic!("{line} is not a completion")
            };
            assert_eq!(
                (prompt.as_str(), completion.as_str()),
                (wanted, "1 2"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_line_has_the_keys_of_one_form() {
        let of = |keys: &str| {
            format!(
                "has the keys [{keys}], but must have those of one form: \"text\"; \"prompt\" and \"completion\"; \
                 \"instruction\" and \"output\", with or without \"input\"; \"messages\"; or \"conversations\""
            )
        };
        let cases = [
            (r#"{}"#, of("")),
            (r#"{"instruction": "a"}"#, of("instruction")),
            (r#"{"input": "a", "output": "b"}"#, of("input, output")),
            (
                r#"{"text": "a", "instruction": "b"}"#,
                of("text, instruction"),
            ),
            (r#"{"text": "a", "prompt": "b"}"#, of("text, prompt")),
            (
                r#"{"prompt": "a", "completion": "b", "output": "c"}"#,
                of("prompt, completion, output"),
            ),
            (
                r#"{"instruction": "a", "response": "b"}"#,
                of("instruction, response"),
            ),
            (
                r#"{"instruction": "a", "input": null, "output": "b"}"#,
                "has a \"input\" that is not a string".into(),
            ),
            (r#"{"messages": [], "text": "a"}"#, of("messages, text")),
            (
                r#"{"messages": [], "prompt": "a"}"#,
                "has no messages in \"messages\"".into(),
            ),
            (
                r#"{"instruction": 3, "output": "b"}"#,
                "has a \"instruction\" that is not a string".into(),
            ),
        ];
        for (line, wanted) in cases {
            assert_eq!(
                MarkedRow::parse(line.as_bytes()).err(),
                Some(wanted),
                "{line}"
            );
        }
    }
}
