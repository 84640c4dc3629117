//! `rank_pattern` and `alpha_pattern`: other values for some modules.
//!
//! PEFT takes the first key that matches the end of a module's name as a regular expression. Here a key is a name, or
//! the end of one after a dot; others are refused, and so are two keys with different values for one module, because
//! which comes first is not kept.

use serde_json::Value;

use crate::adapter::fault::Fault;

/// The keys of a pattern with their values.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Vec<(String, f64)>);

impl Patterns {
    /// Those of `rank_pattern` or `alpha_pattern`.
    pub(crate) fn read(key: &'static str, value: &Value) -> Result<Patterns, Fault> {
        let wrong = |found: &Value, wanted: &str| Fault::Value {
            key: key.into(),
            found: found.to_string(),
            wanted: wanted.into(),
        };
        let entries = match value {
            Value::Null => return Ok(Patterns::default()),
            Value::Object(entries) => entries,
            other => return Err(wrong(other, "an object of module names and numbers")),
        };
        let entry = |(name, value): (&String, &Value)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(Fault::Pattern {
                    key,
                    pattern: name.clone(),
                });
            }
            let number = value.as_f64().filter(|number| *number > 0.0);
            Ok((
                name.clone(),
                number.ok_or_else(|| wrong(value, "positive for each module"))?,
            ))
        };
        Ok(Patterns(
            entries.iter().map(entry).collect::<Result<_, _>>()?,
        ))
    }

    /// The value for a module, if there is one.
    pub(crate) fn of(&self, key: &'static str, module: &str) -> Result<Option<f64>, Fault> {
        let mut found: Option<f64> = None;
        for (_, value) in self.0.iter().filter(|(name, _)| names(name, module)) {
            if let Some(first) = found.filter(|first| first != value) {
                return Err(Fault::TwoValues {
                    key,
                    module: module.into(),
                    first,
                    second: *value,
                });
            }
            found = Some(*value);
        }
        Ok(found)
    }
}

/// Whether a name is that of the module, or its end after a dot.
pub(crate) fn names(name: &str, module: &str) -> bool {
    module
        .strip_suffix(name)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
