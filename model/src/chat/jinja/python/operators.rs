//! Python's operators.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::chat::jinja::error::Error;
use crate::chat::jinja::parse::syntax::{Comparison, Operator};
use crate::chat::jinja::python::format;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::text;
use crate::chat::jinja::python::value::{self, Value, View};

type Run<T> = Result<T, Error>;

/// Returns the spelling of an operator in Python's error messages.
fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Sub => "-",
        Operator::Mul => "*",
        Operator::Div => "/",
        Operator::FloorDiv => "//",
        Operator::Mod => "%",
        Operator::Pow => "** or pow()",
    }
}

/// Returns the error for operands that an operator does not accept.
fn unsupported<T>(operator: Operator, left: &Value, right: &Value) -> Run<T> {
    for value in [left, right] {
        if let Value::Undefined(reason) = value {
            return Err(Error::undefined(reason));
        }
        if matches!(value, Value::Markup(_)) {
            return Err(Error::failed(
                "operators on an escaped string are not supported",
            ));
        }
    }
    Err(Error::failed(format!(
        "unsupported operand type(s) for {}: '{}' and '{}'",
        sign(operator),
        left.type_name(),
        right.type_name()
    )))
}

/// Applies an operator to two values.
pub(crate) fn binary(
    host: &mut dyn Host,
    operator: Operator,
    left: &Value,
    right: &Value,
) -> Run<Value> {
    if operator == Operator::Mod
        && let Value::String(text) = left
    {
        return format::percent(host, text, right);
    }

    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return integers(operator, a, b);
    }
    if let (Some(a), Some(b)) = (left.as_float(), right.as_float()) {
        return floats(operator, a, b);
    }

    match operator {
        Operator::Add => match (left, right) {
            (Value::String(a), Value::String(b)) => {
                host.pay_text(a.len() + b.len())?;
                Ok(format!("{a}{b}").into())
            }
            // An escaped string escapes the strings that it is joined with.
            (Value::Markup(_), Value::String(_) | Value::Markup(_))
            | (Value::String(_), Value::Markup(_)) => {
                let escaped = |value: &Value| match value {
                    Value::Markup(text) => text.to_string(),
                    _ => text::html_escaped(value.as_str().unwrap_or_default()),
                };
                let joined = escaped(left) + &escaped(right);
                host.pay_text(joined.len())?;
                Ok(Value::Markup(joined.into()))
            }
            (Value::List(a), Value::List(b)) => {
                host.pay(a.len() + b.len())?;
                Ok(a.iter().chain(&**b).cloned().collect::<Vec<_>>().into())
            }
            (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => {
                host.pay(a.len() + b.len())?;
                Ok(Value::tuple(a.iter().chain(&**b).cloned().collect()))
            }
            _ => unsupported(operator, left, right),
        },
        Operator::Mul => match (left, right) {
            (value, times) if times.as_int().is_some() => repeated(host, value, times, right, left),
            (times, value) if times.as_int().is_some() => repeated(host, value, times, right, left),
            _ => unsupported(operator, left, right),
        },
        Operator::Sub if matches!(left, Value::View(_, View::Keys | View::Items)) => Err(
            Error::failed("operators on views of dictionaries are not supported"),
        ),
        Operator::Sub | Operator::Div | Operator::FloorDiv | Operator::Mod | Operator::Pow => {
            unsupported(operator, left, right)
        }
    }
}

/// Repeats a list or a text.
fn repeated(
    host: &mut dyn Host,
    value: &Value,
    times: &Value,
    right: &Value,
    left: &Value,
) -> Run<Value> {
    let times = usize::try_from(times.as_int().unwrap_or(0).max(0)).unwrap_or(usize::MAX);
    let mut items = |items: &[Value]| {
        host.pay(items.len().saturating_mul(times))?;
        Ok(items
            .iter()
            .cycle()
            .take(items.len().saturating_mul(times))
            .cloned()
            .collect::<Vec<_>>())
    };
    match value {
        Value::List(list) => Ok(items(list)?.into()),
        Value::Tuple(list) | Value::Group(list) => Ok(Value::tuple(items(list)?)),
        Value::String(text) => {
            host.pay_text(text.len().saturating_mul(times))?;
            Ok(text.repeat(times).into())
        }
        _ => unsupported(Operator::Mul, left, right),
    }
}

fn zero<T>() -> Run<T> {
    Err(Error::failed("division by zero"))
}

/// Applies an operator to whole numbers.
fn integers(operator: Operator, a: i128, b: i128) -> Run<Value> {
    let large = || Error::failed("a whole number is beyond 128 bits");
    let number = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Sub => a.checked_sub(b),
        Operator::Mul => a.checked_mul(b),
        Operator::Div | Operator::FloorDiv | Operator::Mod if b == 0 => return zero(),
        Operator::Div => return quotient(a, b),
        Operator::FloorDiv => {
            let quotient = a.checked_div(b).ok_or_else(large)?;
            // Python rounds down, and Rust rounds toward zero.
            let rounds = a % b != 0 && (a < 0) != (b < 0);
            Some(quotient - i128::from(rounds))
        }
        Operator::Mod => a.checked_rem(b).map(|rest| {
            if rest != 0 && (rest < 0) != (b < 0) {
                rest + b
            } else {
                rest
            }
        }),
        Operator::Pow if b < 0 && a == 0 => return zero(),
        Operator::Pow if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
        Operator::Pow => match a {
            0 | 1 => Some(if b == 0 { 1 } else { a }),
            -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        },
    };
    number.map(Value::Int).ok_or_else(large)
}

/// Divides whole numbers. Python rounds the exact quotient once, which floats do up to 2^53.
fn quotient(a: i128, b: i128) -> Run<Value> {
    let exact = |x: i128| x.unsigned_abs() <= 1 << 53;
    if exact(a) && exact(b) {
        return Ok(Value::Float(a as f64 / b as f64));
    }
    if a % b == 0 {
        return Ok(Value::Float((a / b) as f64));
    }

    Err(Error::failed(
        "dividing whole numbers beyond 2^53 is not supported",
    ))
}

/// Applies an operator to floats.
fn floats(operator: Operator, a: f64, b: f64) -> Run<Value> {
    let number = match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div | Operator::FloorDiv | Operator::Mod if b == 0.0 => return zero(),
        Operator::Div => a / b,
        Operator::FloorDiv => divided(a, b).0,
        Operator::Mod => divided(a, b).1,
        Operator::Pow if a == 0.0 && b < 0.0 => return zero(),
        Operator::Pow if a < 0.0 && b.fract() != 0.0 && b.is_finite() => {
            return Err(Error::failed("complex numbers are not supported"));
        }
        Operator::Pow => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(Error::failed("the result of ** is too large"));
            }
            power
        }
    };
    Ok(Value::Float(number))
}

/// Returns the quotient and the remainder as `float_divmod` in CPython computes them.
fn divided(a: f64, b: f64) -> (f64, f64) {
    let mut rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 {
        if (b < 0.0) != (rest < 0.0) {
            rest += b;
            quotient -= 1.0;
        }
    } else {
        rest = 0f64.copysign(b);
    }

    let floor = if quotient != 0.0 {
        let floor = quotient.floor();
        if quotient - floor > 0.5 {
            floor + 1.0
        } else {
            floor
        }
    } else {
        0f64.copysign(a / b)
    };
    (floor, rest)
}

/// Returns `-value`.
pub(crate) fn negative(value: &Value) -> Run<Value> {
    match value {
        Value::Float(number) => Ok(Value::Float(-number)),
        _ => match value.as_int() {
            Some(number) => integers(Operator::Sub, 0, number),
            None => unary(value, "-"),
        },
    }
}

/// Returns `+value`.
pub(crate) fn positive(value: &Value) -> Run<Value> {
    match value {
        Value::Float(number) => Ok(Value::Float(*number)),
        _ => value
            .as_int()
            .map_or_else(|| unary(value, "+"), |number| Ok(Value::Int(number))),
    }
}

/// Returns the error for an operand of a sign.
fn unary<T>(value: &Value, sign: &str) -> Run<T> {
    match value {
        Value::Undefined(reason) => Err(Error::undefined(reason)),
        _ => Err(Error::failed(format!(
            "bad operand type for unary {sign}: '{}'",
            value.type_name()
        ))),
    }
}

/// Compares two values with an operator.
pub(crate) fn compare(comparison: Comparison, left: &Value, right: &Value) -> Run<bool> {
    let order =
        |sign, is: fn(Ordering) -> bool| Ok(value::compare(left, right, sign, 0)?.is_some_and(is));
    match comparison {
        Comparison::Equal => value::equal(left, right, 0),
        Comparison::NotEqual => value::equal(left, right, 0).map(|equal| !equal),
        Comparison::Less => order("<", Ordering::is_lt),
        Comparison::LessEqual => order("<=", Ordering::is_le),
        Comparison::Greater => order(">", Ordering::is_gt),
        Comparison::GreaterEqual => order(">=", Ordering::is_ge),
        Comparison::In => contains(right, left),
        Comparison::NotIn => contains(right, left).map(|found| !found),
    }
}

/// Returns the result of Python's `item in container`.
fn contains(container: &Value, item: &Value) -> Run<bool> {
    match container {
        Value::String(text) | Value::Markup(text) => match item.as_str() {
            Some(part) => Ok(text.contains(part)),
            None => Err(Error::failed(format!(
                "'in <string>' requires string as left operand, not {}",
                item.type_name()
            ))),
        },
        Value::Dict(dict) | Value::View(dict, View::Keys) => {
            item.check_key()?;
            Ok(dict.get(item).is_some())
        }
        Value::Iter(items) => {
            // A generator is read up to the item.
            loop {
                let next = items.borrow_mut().pop_front();
                match next {
                    None => return Ok(false),
                    Some(next) if value::equal(&next, item, 0)? => return Ok(true),
                    Some(_) => {}
                }
            }
        }
        Value::List(_)
        | Value::Tuple(_)
        | Value::Group(_)
        | Value::View(_, View::Values | View::Items)
        | Value::Range(_)
        | Value::Undefined(_) => {
            for other in container.items()? {
                if value::equal(&other, item, 0)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(Error::failed(format!(
            "argument of type '{}' is not iterable",
            container.type_name()
        ))),
    }
}

/// Returns the position of an index, which counts from the end if it is negative.
fn position(index: i128, len: usize) -> Option<usize> {
    let at = if index < 0 {
        index + len as i128
    } else {
        index
    };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// Returns `object[index]`, or `None` if Python raises a `TypeError` or `LookupError`.
pub(crate) fn item(object: &Value, index: &Value) -> Option<Value> {
    match object {
        Value::Dict(dict) => {
            index.check_key().ok()?;
            dict.get(index).cloned()
        }
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
            items.get(position(index.as_int()?, items.len())?).cloned()
        }
        Value::String(text) => {
            let at = position(index.as_int()?, text.chars().count())?;
            text.chars().nth(at).map(|c| c.to_string().into())
        }
        Value::Markup(text) => {
            let at = position(index.as_int()?, text.chars().count())?;
            text.chars()
                .nth(at)
                .map(|c| Value::Markup(c.to_string().into()))
        }
        Value::Range(range) => range.items().nth(position(index.as_int()?, range.len())?),
        _ => None,
    }
}

/// Returns Python's `object[start:stop:step]`.
pub(crate) fn slice(object: &Value, bounds: &[Value; 3]) -> Run<Value> {
    if let Value::Undefined(reason) = object {
        return Err(Error::undefined(reason));
    }

    let mut numbers = [None; 3];
    for (number, bound) in numbers.iter_mut().zip(bounds) {
        match bound {
            Value::None => {}
            _ => match bound.as_int() {
                Some(value) => *number = Some(value),
                None => {
                    return Err(Error::failed(
                        "the bounds of a slice must be whole numbers or none",
                    ));
                }
            },
        }
    }

    let [start, stop, step] = numbers;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::failed("the step of a slice cannot be zero"));
    }

    let picked = |len: usize| {
        let len = len as i128;
        let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let clamp = |bound: i128| {
            let bound = if bound < 0 {
                bound.saturating_add(len)
            } else {
                bound
            };
            bound.clamp(lowest, highest)
        };
        let first = start.map_or(if step > 0 { lowest } else { highest }, clamp);
        let end = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
        let more = move |at: &i128| if step > 0 { *at < end } else { *at > end };
        std::iter::successors(Some(first), move |at| at.checked_add(step))
            .take_while(more)
            .map(|at| at as usize)
    };
    let items = |items: &[Value]| {
        picked(items.len())
            .map(|at| items[at].clone())
            .collect::<Vec<_>>()
    };
    let text = |text: &str| {
        let chars: Vec<char> = text.chars().collect();
        picked(chars.len()).map(|at| chars[at]).collect::<String>()
    };
    match object {
        Value::String(string) => Ok(text(string).into()),
        Value::Markup(string) => Ok(Value::Markup(text(string).into())),
        Value::List(list) => Ok(Value::List(Rc::new(items(list)))),
        Value::Tuple(list) | Value::Group(list) => Ok(Value::tuple(items(list))),
        Value::Range(_) => Err(Error::failed(
            "slices of range() are not supported; use the filter `list`",
        )),
        _ => Err(Error::failed(format!(
            "a {} cannot be sliced",
            object.type_name()
        ))),
    }
}
