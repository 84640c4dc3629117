//! The sampling defaults of a model folder: `generation_config.json`, in the format of
//! `GenerationConfig` of the `transformers` library.

use serde_json::{Map, Value};
use warpwright_model::folder::{Folder, GENERATION};
use warpwright_model::{Files, Model, Problem};

use super::known;
use super::options::Sampling;
use crate::Error;

/// The contents of `generation_config.json`. Settings that the file does not have are `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerationConfig {
    /// Whether to sample. If false, the most likely token is chosen.
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
    /// The settings that are not supported although they may change the output, with their values.
    pub unread: Vec<(String, String)>,
}

impl GenerationConfig {
    /// Reads the sampling defaults of a model: `generation_config.json` of a folder. A GGUF file has
    /// none.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if a value has another type or is out of
    /// range.
    pub fn for_model(model: &Model) -> Result<GenerationConfig, Error> {
        match &model.files {
            Files::Gguf(_) => Ok(GenerationConfig::default()),
            Files::Folder(folder) => of_folder(folder, model.outline.config.vocab),
        }
    }

    /// Returns a warning that lists the unsupported settings, or `None` if there are none.
    pub fn warning(&self) -> Option<String> {
        let unread = self
            .unread
            .iter()
            .map(|(key, value)| format!("{key} ({value})"));
        let unread = unread.collect::<Vec<_>>().join(", ");
        if unread.is_empty() {
            return None;
        }

        Some(format!(
            "{GENERATION} has settings that are not supported and are ignored: {unread}"
        ))
    }

    /// Returns these settings, completed by `others`.
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
            Some(false) => Sampling {
                temperature: 0.0,
                ..sampled
            },
            _ => sampled,
        }
    }
}

/// Reads the defaults of a model folder. They are empty if the folder has no such file.
fn of_folder(folder: &Folder, vocab: u32) -> Result<GenerationConfig, Error> {
    let Some(values) = folder.json_object(GENERATION)? else {
        return Ok(GenerationConfig::default());
    };

    let problem = |problem| {
        Error::from(warpwright_model::Error::Model {
            path: folder.path.join(GENERATION),
            problem: Box::new(problem),
        })
    };
    let config = of_values(&values).map_err(problem)?;
    let outside = |key: &str, value: f64, expected| {
        problem(Problem::Key {
            key: key.to_owned(),
            found: value.to_string(),
            expected,
        })
    };
    config
        .over(Sampling::off())
        .check(vocab)
        // The file names the repetition penalty differently, and the error must name its key.
        .map_err(|error| match error {
            Error::Sampling {
                name: "repeat_penalty",
                value,
                least,
                most,
            } => outside("repetition_penalty", value, format!("{least} to {most}")),
            Error::Sampling {
                name,
                value,
                least,
                most,
            } => outside(name, value, format!("{least} to {most}")),
            Error::Temperature { value, least, most } => {
                outside("temperature", value, format!("0, or {least} to {most}"))
            }
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
        unread: known::unread(values),
    })
}

fn value<T>(
    values: &Map<String, Value>,
    key: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(found) = values.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let problem = || Problem::Key {
        key: key.to_owned(),
        found: found.to_string(),
        expected: expected.to_owned(),
    };
    read(found).map(Some).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(values: Value) -> Result<GenerationConfig, Problem> {
        of_values(values.as_object().unwrap())
    }

    /// Each key by itself, and what is sampled by then.
    #[test]
    fn each_key_changes_what_it_names() {
        let base = Sampling::default();
        let cases = [
            (
                "temperature",
                json!(0.5),
                Sampling {
                    temperature: 0.5,
                    ..base.clone()
                },
            ),
            (
                "top_k",
                json!(7),
                Sampling {
                    top_k: 7,
                    ..base.clone()
                },
            ),
            (
                "top_p",
                json!(0.25),
                Sampling {
                    top_p: 0.25,
                    ..base.clone()
                },
            ),
            (
                "min_p",
                json!(0.125),
                Sampling {
                    min_p: 0.125,
                    ..base.clone()
                },
            ),
            (
                "typical_p",
                json!(0.75),
                Sampling {
                    typical_p: 0.75,
                    ..base.clone()
                },
            ),
            (
                "repetition_penalty",
                json!(1.5),
                Sampling {
                    repeat_penalty: 1.5,
                    ..base.clone()
                },
            ),
            (
                "do_sample",
                json!(false),
                Sampling {
                    temperature: 0.0,
                    ..base.clone()
                },
            ),
            ("do_sample", json!(true), base.clone()),
            ("top_k", Value::Null, base.clone()),
        ];
        for (key, value, wanted) in cases {
            assert_eq!(
                read(json!({ key: value })).unwrap().over(base.clone()),
                wanted,
                "{key}"
            );
        }
    }

    #[test]
    fn values_of_other_kinds_are_refused() {
        let cases = [
            ("do_sample", json!(1), "true or false"),
            ("temperature", json!("1"), "a number"),
            ("top_k", json!(-1), "a whole number"),
            ("top_k", json!(1u64 << 32), "a whole number"),
            ("top_p", json!([]), "a number"),
            ("min_p", json!({}), "a number"),
            ("typical_p", json!(true), "a number"),
            ("repetition_penalty", json!("a"), "a number"),
        ];
        for (key, value, expected) in cases {
            let problem = read(json!({ key: value.clone() })).unwrap_err().to_string();
            assert_eq!(
                problem,
                format!("key {key:?} is {value}; expected {expected}")
            );
        }
    }
}
