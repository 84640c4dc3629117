//! Metadata under one prefix, with types and ranges checked.

use crate::gguf::file::Directory;
use crate::gguf::value::Value;
use crate::problem::Problem;

/// The keys that begin with `prefix.`.
pub(crate) struct MetadataKeys<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) prefix: &'a str,
}

/// Sizes stay below 2^24, so that a product of two fits 48 bits and every size is exact in f32.
pub(crate) const MAX_SIZE: u32 = 1 << 24;

impl<'a> MetadataKeys<'a> {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.directory.metadata.get(&self.key(name))
    }

    pub(crate) fn wrong<T>(
        &self,
        name: &str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Result<T, Problem> {
        Err(Problem::Key {
            key: self.key(name),
            found: found.to_string(),
            expected: expected.to_string(),
        })
    }

    /// A value of another type than `expected`, which names the type.
    fn mistyped<T>(
        &self,
        name: &str,
        found: &Value,
        expected: impl ToString,
    ) -> Result<T, Problem> {
        self.wrong(name, found.described(), expected)
    }

    pub(crate) fn expect(
        &self,
        name: &str,
        found: u32,
        holds: bool,
        expected: impl Fn() -> String,
    ) -> Result<(), Problem> {
        if holds {
            Ok(())
        } else {
            self.wrong(name, found, expected())
        }
    }

    pub(crate) fn size(&self, name: &str) -> Result<u32, Problem> {
        self.size_or(name, Err(Problem::MissingKey(self.key(name))))
    }

    pub(crate) fn size_or(
        &self,
        name: &str,
        default: Result<u32, Problem>,
    ) -> Result<u32, Problem> {
        let Some(found) = self.get(name) else {
            return default;
        };
        let expected = || format!("a whole number from 1 to {MAX_SIZE}");
        match found.integer() {
            Some(n) => match u32::try_from(n) {
                Ok(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
                _ => self.wrong(name, n, expected()),
            },
            None => self.mistyped(name, found, expected()),
        }
    }

    /// Returns a float of any value.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Problem> {
        self.float(name, "a floating-point number", |_| true)
    }

    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>, Problem> {
        self.float(name, "a finite floating-point number above zero", |x| {
            x.is_finite() && x > 0.0
        })
    }

    pub(crate) fn nonnegative(&self, name: &str) -> Result<Option<f64>, Problem> {
        self.float(name, "a finite floating-point number from zero up", |x| {
            x.is_finite() && x >= 0.0
        })
    }

    fn float(
        &self,
        name: &str,
        expected: &str,
        holds: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Float(x)) if holds(*x) => Ok(Some(*x)),
            Some(found @ Value::Float(_)) => self.wrong(name, found, expected),
            Some(found) => self.mistyped(name, found, expected),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(found) => self.mistyped(name, found, "a string"),
        }
    }
}
