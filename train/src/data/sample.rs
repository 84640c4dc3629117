//! A file of samples: JSON Lines, an object a line.
//!
//! `{"text"}` is learned as a whole, `{"prompt", "completion"}` only where the completion is. Both end with the token that
//! ends a text. Other keys are left alone.

use std::path::Path;

use serde_json::{Map, Value};
use warpwright_engine::Tokenizer;

use crate::Error;

/// All samples of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Data {
    /// In the file's order.
    pub samples: Vec<Sample>,
    /// Samples that were longer than a row, and lost their end.
    pub cut: usize,
    /// Samples of which nothing was left to be learned when they had lost their end. They are not among `samples`.
    pub dropped: usize,
}

/// A document.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Which of them is the first to be learned.
    pub first: usize,
}

impl Sample {
    /// The token after that at `index`, if it is to be learned.
    pub fn label(&self, index: usize) -> Option<u32> {
        let next = index + 1;
        self.ids.get(next).filter(|_| next >= self.first).copied()
    }

    /// Tokens that are learned.
    pub fn labelled(&self) -> usize {
        self.ids.len().saturating_sub(self.first.max(1))
    }
}

impl Data {
    /// Reads a file of samples of which none becomes longer than `len` tokens. With `prompts`, prompts are learned too.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, with its line what is no sample, and a file in which nothing is to be learned.
    pub fn read(path: &Path, tokenizer: &Tokenizer, len: usize, prompts: bool) -> Result<Data, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let refuse = |line: usize, problem: String| Error::Data { path: path.to_owned(), line, problem };
        let mut data = Data { samples: vec![], cut: 0, dropped: 0 };
        for (line, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            if text.trim_ascii().is_empty() {
                continue;
            }
            let row = Row::parse(text).map_err(|problem| refuse(line, problem))?;
            let mut sample = row
                .sample(line, tokenizer)
                .map_err(|error| refuse(line, format!("cannot be tokenized: {error}")))?;
            if prompts {
                sample.first = 0;
            }
            data.add(sample, len);
        }
        match data.samples.is_empty() {
            false => Ok(data),
            true => Err(Error::NothingToLearn { path: path.to_owned(), dropped: data.dropped, len }),
        }
    }

    fn add(&mut self, mut sample: Sample, len: usize) {
        if sample.ids.len() > len {
            sample.ids.truncate(len);
            self.cut += 1;
        }
        match sample.labelled() {
            0 => self.dropped += 1,
            _ => self.samples.push(sample),
        }
    }

    /// Tokens of all samples.
    pub fn tokens(&self) -> usize {
        self.samples.iter().map(|sample| sample.ids.len()).sum()
    }

    /// Those that are learned.
    pub fn labelled(&self) -> usize {
        self.samples.iter().map(Sample::labelled).sum()
    }
}

/// A line.
enum Row {
    Text(String),
    Completion { prompt: String, completion: String },
}

impl Row {
    fn parse(line: &[u8]) -> Result<Row, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("is no JSON: {error}"))?;
        let Value::Object(object) = value else { return Err("is no JSON object".into()) };
        let has = |key: &str| object.contains_key(key);
        if has("text") {
            Ok(Row::Text(string(&object, "text")?))
        } else if has("prompt") && has("completion") {
            Ok(Row::Completion {
                prompt: string(&object, "prompt")?,
                completion: string(&object, "completion")?,
            })
        } else if ["messages", "conversations", "instruction"].into_iter().any(has) {
            Err("is a conversation, which needs the model's chat template: that is not read yet. Write \
                 {\"prompt\", \"completion\"} with the template applied"
                .into())
        } else {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            Err(format!(
                "has the keys [{}], must have \"text\", or \"prompt\" and \"completion\"",
                keys.join(", ")
            ))
        }
    }

    fn sample(&self, line: usize, tokenizer: &Tokenizer) -> Result<Sample, warpwright_engine::Error> {
        let (mut ids, rest) = match self {
            Row::Text(text) => (tokenizer.encode(text)?, vec![]),
            Row::Completion { prompt, completion } => {
                (tokenizer.encode(prompt)?, tokenizer.encode_rest(completion)?)
            }
        };
        let first = if matches!(self, Row::Text(_)) { 0 } else { ids.len() };
        ids.extend(rest.into_iter().chain(tokenizer.eos()));
        Ok(Sample { line, ids, first })
    }
}

fn string(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(format!("has a {key:?} that is no string")),
    }
}
