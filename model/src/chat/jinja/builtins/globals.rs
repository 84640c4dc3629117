//! The functions that every template can call.

use std::cell::RefCell;
use std::rc::Rc;

use crate::chat::jinja::error::Error;
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::strftime::{self, Date};
use crate::chat::jinja::python::value::{Cycler, Dict, Joiner, Range, Value};

type Run<T> = Result<T, Error>;

/// The longest range that Jinja's sandbox allows.
const LONGEST_RANGE: usize = 100_000;

/// Returns the global variable with a name. Without a date, the function that reads it does not
/// exist.
pub(crate) fn global(name: &str, date: Option<Date>) -> Option<Value> {
    let functions = [
        "range",
        "dict",
        "lipsum",
        "cycler",
        "joiner",
        "namespace",
        "raise_exception",
        "strftime_now",
    ];
    let name = functions.into_iter().find(|function| *function == name)?;
    if name == "strftime_now" && date.is_none() {
        return None;
    }

    Some(Value::Function(name))
}

/// Calls a global function.
pub(crate) fn call(host: &mut dyn Host, name: &str, arguments: Arguments) -> Run<Value> {
    match name {
        "range" => range(arguments),
        "dict" => Ok(Value::Dict(Rc::new(dict("dict", arguments)?))),
        "namespace" => {
            let namespace = Rc::new(RefCell::new(dict("namespace", arguments)?));
            host.keep(&namespace);
            Ok(Value::Namespace(namespace))
        }
        "cycler" => {
            if let Some((unknown, _)) = arguments.named.first() {
                return Err(Error::failed(format!(
                    "cycler() has no argument named `{unknown}`"
                )));
            }

            if arguments.positional.is_empty() {
                return Err(Error::failed(
                    "at least one item has to be provided to cycler()",
                ));
            }

            let items = arguments.positional;
            Ok(Value::Cycler(Rc::new(Cycler {
                items,
                at: RefCell::new(0),
            })))
        }
        "joiner" => {
            let [separator] = arguments.bind("joiner()", ["sep"])?;
            let separator = separator.unwrap_or_else(|| ", ".into());
            Ok(Value::Joiner(Rc::new(Joiner {
                separator,
                used: RefCell::new(false),
            })))
        }
        "raise_exception" => {
            let [message] = arguments.bind("raise_exception()", ["message"])?;
            let Some(message) = message else {
                return Err(Error::failed("raise_exception() needs a message"));
            };
            Err(Error::raised(&*message.text()?))
        }
        "strftime_now" => {
            let [format] = arguments.bind("strftime_now()", ["format"])?;
            let Some(format) = format.as_ref().and_then(Value::as_str) else {
                return Err(Error::failed(
                    "strftime_now() needs a format, which is a string",
                ));
            };

            let Some(date) = host.date() else {
                return Err(Error::failed("strftime_now() has no date"));
            };

            let text = strftime::format(format, date);
            let text = text
                .map_err(|problem| Error::failed(format!("strftime_now({format:?}): {problem}")))?;
            host.pay_text(text.len())?;
            Ok(text.into())
        }
        _ => Err(Error::failed(format!(
            "the function `{name}` is not supported, because its text is random"
        ))),
    }
}

/// Returns Python's `range`.
fn range(arguments: Arguments) -> Run<Value> {
    if !arguments.named.is_empty() {
        return Err(Error::failed("range() takes no keyword arguments"));
    }

    let mut numbers = vec![];
    for value in &arguments.positional {
        match (value.as_int(), value) {
            (Some(number), _) => numbers.push(number),
            (None, Value::Undefined(reason)) => return Err(Error::undefined(reason)),
            (None, _) => {
                let kind = value.type_name();
                return Err(Error::failed(format!(
                    "'{kind}' object cannot be interpreted as an integer"
                )));
            }
        }
    }

    let (start, stop, step) = match *numbers {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] => (start, stop, step),
        _ => {
            return Err(Error::failed(format!(
                "range() takes 1 to 3 arguments, not {}",
                numbers.len()
            )));
        }
    };
    if step == 0 {
        return Err(Error::failed("range() arg 3 must not be zero"));
    }

    // The length of a range with larger numbers could overflow.
    let far = |number: i128| number.unsigned_abs() > 1 << 100;
    let range = Range { start, stop, step };
    if far(start) || far(stop) || far(step) || range.len() > LONGEST_RANGE {
        return Err(Error::failed(format!(
            "the range has more than {LONGEST_RANGE} numbers"
        )));
    }

    Ok(Value::Range(range))
}

/// Returns Python's `dict(mapping_or_pairs, **more)`.
fn dict(what: &str, arguments: Arguments) -> Run<Dict> {
    let mut dict = Dict::default();
    let mut given = arguments.positional.into_iter();
    match given.next() {
        None => {}
        Some(Value::Dict(other)) => dict = (*other).clone(),
        Some(pairs) => {
            for pair in pairs.items()? {
                let pair = pair.items()?;
                let [key, value] = &Vec::from(pair)[..] else {
                    return Err(Error::failed(format!(
                        "{what}() needs pairs of a key and a value"
                    )));
                };
                key.check_key()?;
                dict.insert(key.clone(), value.clone());
            }
        }
    }

    if given.next().is_some() {
        return Err(Error::failed(format!(
            "{what}() takes at most one argument without a name"
        )));
    }

    for (name, value) in arguments.named {
        dict.insert(name.into(), value);
    }

    Ok(dict)
}
