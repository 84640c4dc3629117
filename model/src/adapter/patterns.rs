//! The settings `rank_pattern` and `alpha_pattern`: other values for some modules.
//!
//! PEFT uses the first key that matches the end of a module's name as a regular expression. Here a
//! key must be a module name, or the end of one after a dot. Two keys with different values for one
//! module are rejected, because JSON objects keep no order.

use serde_json::Value;

use crate::adapter::fault::AdapterFault;

/// The keys of a pattern with their values.
#[derive(Debug, Default)]
pub(crate) struct RankPatterns(Vec<(String, f64)>);

impl RankPatterns {
    /// Reads the value of `rank_pattern` or `alpha_pattern`.
    pub(crate) fn read(key: &'static str, value: &Value) -> Result<RankPatterns, AdapterFault> {
        let wrong = |found: &Value, wanted: &str| AdapterFault::Value {
            key: key.into(),
            found: found.to_string(),
            wanted: wanted.into(),
        };
        let entries = match value {
            Value::Null => return Ok(RankPatterns::default()),
            Value::Object(entries) => entries,
            other => return Err(wrong(other, "an object of module names and numbers")),
        };
        let entry = |(name, value): (&String, &Value)| {
            // PEFT reads the names as regular expressions. Without operators they are plain names.
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(AdapterFault::Pattern {
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
        Ok(RankPatterns(
            entries.iter().map(entry).collect::<Result<_, _>>()?,
        ))
    }

    /// Returns the value for a module, or `None` if no key matches.
    pub(crate) fn of(&self, key: &'static str, module: &str) -> Result<Option<f64>, AdapterFault> {
        let mut found: Option<f64> = None;
        for (_, value) in self.0.iter().filter(|(name, _)| names(name, module)) {
            if let Some(first) = found.filter(|first| first != value) {
                return Err(AdapterFault::TwoValues {
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

/// Returns true if a name is the name of the module, or its end after a dot.
pub(crate) fn names(name: &str, module: &str) -> bool {
    module
        .strip_suffix(name)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
