//! What a model folder says of sampling: `generation_config.json`, as transformers' `GenerationConfig` has it.

use std::path::Path;

use serde_json::{Map, Value};

use super::options::Sampling;
use crate::Error;
use crate::model::folder::read;
use crate::model::folder::special::GENERATION;
use crate::model::problem::Problem;

/// What `generation_config.json` says; what it does not say is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GenerationConfig {
    /// Whether to sample: if not, the most likely token is taken.
    pub do_sample: Option<bool>,
    /// See [`Sampling::temperature`].
    pub temperature: Option<f64>,
    /// See [`Sampling::top_k`].
    pub top_k: Option<u32>,
    /// See [`Sampling::top_p`].
    pub top_p: Option<f64>,
    /// See [`Sampling::min_p`].
    pub min_p: Option<f64>,
    /// See [`Sampling::typical_p`].
    pub typical_p: Option<f64>,
    /// See [`Sampling::repeat_penalty`].
    pub repetition_penalty: Option<f64>,
}

impl GenerationConfig {
    /// These, and `others` for what is not said.
    pub fn over(&self, others: Sampling) -> Sampling {
        let sampled = Sampling {
            temperature: self.temperature.unwrap_or(others.temperature),
            top_k: self.top_k.unwrap_or(others.top_k),
            top_p: self.top_p.unwrap_or(others.top_p),
            min_p: self.min_p.unwrap_or(others.min_p),
            typical_p: self.typical_p.unwrap_or(others.typical_p),
            repeat_penalty: self.repetition_penalty.unwrap_or(others.repeat_penalty),
            ..others
        };
        match self.do_sample {
            Some(false) => Sampling { temperature: 0.0, ..sampled },
            _ => sampled,
        }
    }
}

/// What a folder says; nothing if it has no such file.
pub(crate) fn of_folder(folder: &Path, vocab: u32) -> Result<GenerationConfig, Error> {
    let Some(values) = read::object(folder, GENERATION)? else { return Ok(GenerationConfig::default()) };
    let problem = |problem| Error::Model { path: folder.join(GENERATION), problem: Box::new(problem) };
    let config = of_values(&values).map_err(problem)?;
    config.over(Sampling::off()).check(vocab).map_err(|error| match error {
        Error::Sampling { name, value, least, most } => problem(Problem::Key {
            key: if name == "repeat_penalty" { "repetition_penalty" } else { name }.to_owned(),
            found: value.to_string(),
            expected: format!("{least} to {most}"),
        }),
        other => other,
    })?;
    Ok(config)
}

fn of_values(values: &Map<String, Value>) -> Result<GenerationConfig, Problem> {
    let number = |key| value(values, key, "a number", Value::as_f64);
    let count = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    Ok(GenerationConfig {
        do_sample: value(values, "do_sample", "true or false", Value::as_bool)?,
        temperature: number("temperature")?,
        top_k: value(values, "top_k", "a whole number", count)?,
        top_p: number("top_p")?,
        min_p: number("min_p")?,
        typical_p: number("typical_p")?,
        repetition_penalty: number("repetition_penalty")?,
    })
}

fn value<T>(
    values: &Map<String, Value>,
    key: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(found) = values.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let problem =
        || Problem::Key { key: key.to_owned(), found: found.to_string(), expected: expected.to_owned() };
    read(found).map(Some).ok_or_else(problem)
}
