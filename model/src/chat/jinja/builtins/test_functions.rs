//! Tests: `value is name(arguments)`, as `jinja2/tests.py` has them.

use std::rc::Rc;

use crate::chat::jinja::builtins::names::{is_filter, is_test};
use crate::chat::jinja::error::Error;
use crate::chat::jinja::parse::syntax::Comparison;
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::operators;
use crate::chat::jinja::python::text;
use crate::chat::jinja::python::value::{self, Value};

/// Returns the comparison with the name of a test.
fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "==" | "eq" | "equalto" => Comparison::Equal,
        "!=" | "ne" => Comparison::NotEqual,
        ">" | "gt" | "greaterthan" => Comparison::Greater,
        ">=" | "ge" => Comparison::GreaterEqual,
        "<" | "lt" | "lessthan" => Comparison::Less,
        "<=" | "le" => Comparison::LessEqual,
        "in" => Comparison::In,
        _ => return None,
    })
}

/// Applies a test.
///
/// # Errors
/// Returns an error if there is no test of this name, or if Jinja2 would raise an exception.
pub(crate) fn apply(name: &str, value: &Value, arguments: Arguments) -> Result<bool, Error> {
    let what = format!("the test `{name}`");
    if let Some(comparison) = comparison(name) {
        let [other] = arguments.bind(&what, ["b"])?;
        let other = other.ok_or_else(|| Error::failed(format!("{what} needs an argument")))?;
        return operators::compare(comparison, value, &other);
    }

    match name {
        "divisibleby" => {
            let [number] = arguments.bind(&what, ["num"])?;
            return match (remainder(value, number.as_ref())?, number) {
                (Some(rest), Some(_)) => Ok(rest == 0.0),
                _ => Err(Error::failed("divisibleby needs two numbers")),
            };
        }
        "sameas" => {
            let [other] = arguments.bind(&what, ["other"])?;
            let other = other.ok_or_else(|| Error::failed("sameas needs an argument"))?;
            return same(value, &other);
        }
        _ => {}
    }

    let [] = arguments.bind(&what, [])?;
    let parity = |wanted: f64| match remainder(value, Some(&Value::Int(2)))? {
        Some(rest) => Ok(rest == wanted),
        None => Err(Error::failed(format!("{what} needs a number"))),
    };

    // Jinja converts the value to a string first.
    let cased = |has: fn(char) -> bool, lacks: fn(char) -> bool| {
        let text = value.text()?;
        Ok(text.chars().any(has) && !text.chars().any(|c| lacks(c) || text::is_title(c)))
    };
    Ok(match name {
        "odd" => return parity(1.0),
        "even" => return parity(0.0),
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "filter" | "test" if value.check_key().is_err() => {
            return value.check_key().map(|()| false);
        }
        "filter" => value.as_str().is_some_and(is_filter),
        "test" => value.as_str().is_some_and(is_test),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
        "string" => value.as_str().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "escaped" => matches!(value, Value::Markup(_)),
        "lower" => return cased(char::is_lowercase, char::is_uppercase),
        "upper" => return cased(char::is_uppercase, char::is_lowercase),
        "iterable" => matches!(
            value,
            Value::Undefined(_)
                | Value::String(_)
                | Value::Markup(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Group(_)
                | Value::Dict(_)
                | Value::View(..)
                | Value::Range(_)
                | Value::Iter(_)
                | Value::Loop(_)
        ),
        // Jinja calls everything with a length and `[..]` a sequence. An undefined value has both.
        "sequence" => matches!(
            value,
            Value::Undefined(_)
                | Value::String(_)
                | Value::Markup(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Group(_)
                | Value::Dict(_)
                | Value::Range(_)
        ),
        "callable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Macro(_)
                | Value::Loop(_)
                | Value::Joiner(_)
                | Value::Function(_)
                | Value::Method(_)
        ),
        _ => return Err(Error::failed(format!("no test is named `{name}`"))),
    })
}

/// Returns Python's `value % number`, if both are numbers.
fn remainder(value: &Value, number: Option<&Value>) -> Result<Option<f64>, Error> {
    if let Value::Undefined(reason) = value {
        return Err(Error::undefined(reason));
    }
    let Some(number) = number else {
        return Ok(None);
    };

    if let (Some(a), Some(b)) = (value.as_int(), number.as_int()) {
        return match a.checked_rem_euclid(b) {
            Some(rest) if rest != 0 && b < 0 => Ok(Some((rest + b) as f64)),
            Some(rest) => Ok(Some(rest as f64)),
            None => Err(Error::failed("division by zero")),
        };
    }

    match (value.as_float(), number.as_float()) {
        (Some(_), Some(0.0)) => Err(Error::failed("division by zero")),
        (Some(a), Some(b)) => {
            let rest = a % b;
            Ok(Some(if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }))
        }
        _ => Ok(None),
    }
}

/// Returns true if two values are one object in CPython.
///
/// Equal strings and large numbers may or may not be one object, so they are an error.
fn same(a: &Value, b: &Value) -> Result<bool, Error> {
    let unknown = || {
        Err(Error::failed(
            "sameas is supported for none, true, false and small numbers",
        ))
    };
    match (a, b) {
        (Value::None, Value::None) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a), Value::Int(b)) if a == b && !(-5..=256).contains(a) => unknown(),
        (Value::Int(a), Value::Int(b)) => Ok(a == b),
        (Value::List(a), Value::List(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Dict(a), Value::Dict(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::String(a), Value::String(b)) if a != b => Ok(false),
        (Value::Float(a), Value::Float(b)) if a != b => Ok(false),
        (Value::Undefined(_), Value::Undefined(_)) => unknown(),
        _ if a.type_name() != b.type_name() => Ok(false),
        (Value::Namespace(_) | Value::Macro(_) | Value::Loop(_) | Value::Iter(_), _) => {
            value::equal(a, b, 0)
        }
        _ => unknown(),
    }
}
