//! A line of a file of samples.
//!
//! `{"text"}` is learned as a whole, `{"prompt", "completion"}` only where the completion is. An Alpaca row,
//! `{"instruction", "input", "output"}` or without `"input"`, has a prompt by its template, and `"output"` as completion.
//! All end with the token that ends a text. A line has the keys of one form, but that rows of the published Alpaca set
//! have the whole as `"text"`, too, which is left alone; so are keys of no form.

use serde_json::{Map, Value};
use warpwright_engine::Tokenizer;

pub(super) enum Row {
    Text(String),
    Completion { prompt: String, completion: String },
}

/// All keys of all forms.
const KEYS: [&str; 6] = ["text", "prompt", "completion", "instruction", "input", "output"];

impl Row {
    /// The problem, if it is no row, completes "it".
    pub(super) fn parse(line: &[u8]) -> Result<Row, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("is no JSON: {error}"))?;
        let Value::Object(object) = value else { return Err("is no JSON object".into()) };
        let has = |key: &str| object.contains_key(key);
        let string = |key: &str| string(&object, key);
        let completion = |prompt, completion| Ok(Row::Completion { prompt, completion });
        let alpaca = has("instruction") && has("output");
        let known: Vec<&str> =
            KEYS.into_iter().filter(|&key| has(key) && !(alpaca && key == "text")).collect();
        match known[..] {
            ["text"] => Ok(Row::Text(string("text")?)),
            ["prompt", "completion"] => completion(string("prompt")?, string("completion")?),
            ["instruction", "output"] => {
                completion(alpaca_prompt(&string("instruction")?, ""), string("output")?)
            }
            ["instruction", "input", "output"] => completion(
                alpaca_prompt(&string("instruction")?, &string("input")?),
                string("output")?,
            ),
            [] if has("messages") || has("conversations") => Err("is a conversation, which needs the \
                 model's chat template: that is not read yet. Write {\"prompt\", \"completion\"} with the template applied"
                .into()),
            _ => Err(format!(
                "has the keys [{}], must have those of one form: \"text\"; \"prompt\" and \"completion\"; or \
                 \"instruction\" and \"output\", with or without \"input\"",
                object.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// Its tokens, and which of them is the first to be learned.
    pub(super) fn tokens(
        &self,
        tokenizer: &Tokenizer,
    ) -> Result<(Vec<u32>, usize), warpwright_engine::Error> {
        let (mut ids, rest) = match self {
            Row::Text(text) => (tokenizer.encode(text)?, vec![]),
            Row::Completion { prompt, completion } => {
                (tokenizer.encode(prompt)?, tokenizer.encode_rest(completion)?)
            }
        };
        let first = if matches!(self, Row::Text(_)) { 0 } else { ids.len() };
        ids.extend(rest.into_iter().chain(tokenizer.eos()));
        Ok((ids, first))
    }
}

/// The template that Stanford Alpaca was trained with, `PROMPT_DICT` in
/// <https://github.com/tatsu-lab/stanford_alpaca/blob/main/train.py>. There too an empty input counts as none.
fn alpaca_prompt(instruction: &str, input: &str) -> String {
    let (paired, input) = match input {
        "" => ("", String::new()),
        input => (", paired with an input that provides further context", format!("### Input:\n{input}\n\n")),
    };
    format!(
        "Below is an instruction that describes a task{paired}. Write a response that appropriately completes the \
         request.\n\n### Instruction:\n{instruction}\n\n{input}### Response:"
    )
}

fn string(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(format!("has a {key:?} that is no string")),
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
            (r#"{"instruction": "Count.", "input": "", "output": "1 2", "id": 7}"#, without),
            (r#"{"instruction": "Count.", "input": "to 3", "output": "1 2"}"#, with),
            (r#"{"instruction": "Count.", "input": "to 3", "output": "1 2", "text": "all of it"}"#, with),
        ];
        for (line, wanted) in cases {
            let Ok(Row::Completion { prompt, completion }) = Row::parse(line.as_bytes()) else {
                panic!("{line} is no completion")
            };
            assert_eq!((prompt.as_str(), completion.as_str()), (wanted, "1 2"), "{line}");
        }
    }

    #[test]
    fn a_line_has_the_keys_of_one_form() {
        let of = |keys: &str| {
            format!(
                "has the keys [{keys}], must have those of one form: \"text\"; \"prompt\" and \"completion\"; or \
                 \"instruction\" and \"output\", with or without \"input\""
            )
        };
        let cases = [
            (r#"{}"#, of("")),
            (r#"{"instruction": "a"}"#, of("instruction")),
            (r#"{"input": "a", "output": "b"}"#, of("input, output")),
            (r#"{"text": "a", "instruction": "b"}"#, of("instruction, text")),
            (r#"{"text": "a", "prompt": "b"}"#, of("prompt, text")),
            (r#"{"prompt": "a", "completion": "b", "output": "c"}"#, of("completion, output, prompt")),
            (r#"{"instruction": "a", "response": "b"}"#, of("instruction, response")),
            (
                r#"{"instruction": "a", "input": null, "output": "b"}"#,
                "has a \"input\" that is no string".into(),
            ),
            (r#"{"instruction": 3, "output": "b"}"#, "has a \"instruction\" that is no string".into()),
        ];
        for (line, wanted) in cases {
            assert_eq!(Row::parse(line.as_bytes()).err(), Some(wanted), "{line}");
        }
    }
}
