//! The filter `tojson`: the text that Python's `json.dumps` writes, with the arguments that
//! transformers passes to it.
//!
//! Letters beyond ASCII stay as they are, keys keep their order, and a space follows `,` and `:`
//! (<https://docs.python.org/3/library/json.html#json.dumps>).

use crate::chat::jinja::error::Error;
use crate::chat::jinja::limits::{DEEPEST_VALUE, LONGEST};
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::text;
use crate::chat::jinja::python::value::{self, Dict, Value};

type Run<T> = Result<T, Error>;

/// The layout of the text.
struct Style {
    /// True if characters beyond ASCII are written as escapes.
    ascii: bool,
    /// The indentation of a level.
    indent: Option<String>,
    /// The text between elements, and between a key and its value.
    separators: [String; 2],
    /// True if entries are in the order of their keys.
    sorted: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub(crate) fn tojson(host: &mut dyn Host, value: &Value, arguments: Arguments) -> Run<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sorted] = arguments.bind("tojson", names)?;
    let indent = self::indent(indent)?;
    let style = Style {
        ascii: ascii.is_some_and(|value| value.truth()),
        separators: self::separators(separators, indent.as_deref())?,
        indent,
        sorted: sorted.is_some_and(|value| value.truth()),
    };
    let mut text = String::new();
    style.write(host, value, 0, &mut text)?;
    host.pay_text(text.len())?;
    Ok(text.into())
}

/// Returns the indentation: a number of spaces, or a text.
fn indent(value: Option<Value>) -> Run<Option<String>> {
    let value = match value {
        None | Some(Value::None) => return Ok(None),
        Some(value) => value,
    };
    match (value.as_str(), value.as_int()) {
        (Some(text), _) => Ok(Some(text.to_owned())),
        (None, Some(spaces)) if spaces <= 1000 => Ok(Some(" ".repeat(spaces.max(0) as usize))),
        _ => Err(Error::failed(
            "the indent of tojson must be a whole number up to 1000, or a string",
        )),
    }
}

/// Returns the separators. Python omits the space after a comma if lines are indented.
fn separators(value: Option<Value>, indent: Option<&str>) -> Run<[String; 2]> {
    let value = match value {
        None | Some(Value::None) => {
            let comma = if indent.is_some() { "," } else { ", " };
            return Ok([comma, ": "].map(str::to_owned));
        }
        Some(value) => value,
    };
    let items = value.items()?;
    let texts: Vec<String> = items
        .iter()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect();
    <[String; 2]>::try_from(texts)
        .ok()
        .filter(|_| items.len() == 2)
        .ok_or_else(|| Error::failed("the separators of tojson must be two strings"))
}

impl Style {
    /// Appends the JSON of a value. `level` is the number of values around it.
    fn write(&self, host: &mut dyn Host, value: &Value, level: usize, to: &mut String) -> Run<()> {
        host.pay(1)?;
        if level > DEEPEST_VALUE {
            return Err(Error::failed(format!(
                "a value is nested more than {DEEPEST_VALUE} deep"
            )));
        }

        if to.len() > LONGEST {
            return Err(Error::failed(format!(
                "a text is longer than {} MiB",
                LONGEST >> 20
            )));
        }

        match value {
            Value::None => to.push_str("null"),
            Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Value::Int(number) => to.push_str(&number.to_string()),
            Value::Float(number) => to.push_str(&float(*number)),
            Value::String(text) | Value::Markup(text) => self.string(text, to),
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                to.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.separate(i, level + 1, to);
                    self.write(host, item, level + 1, to)?;
                }
                if !items.is_empty() {
                    self.line(level, to);
                }
                to.push(']');
            }
            Value::Dict(dict) => {
                let entries = self.entries(dict)?;
                to.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    self.separate(i, level + 1, to);
                    self.string(key, to);
                    to.push_str(&self.separators[1]);
                    self.write(host, value, level + 1, to)?;
                }

                if !entries.is_empty() {
                    self.line(level, to);
                }

                to.push('}');
            }
            Value::Undefined(reason) => {
                return Err(Error::failed(format!("tojson of undefined: {reason}")));
            }
            _ => {
                let kind = value.type_name();
                return Err(Error::failed(format!(
                    "tojson of a {kind}, which JSON does not have"
                )));
            }
        }

        Ok(())
    }

    /// Returns the entries of a dictionary with the names of their keys.
    fn entries(&self, dict: &Dict) -> Run<Vec<(String, Value)>> {
        let mut entries = dict.entries().to_vec();
        if self.sorted {
            value::sort(&mut entries, |(key, _)| key.clone())?;
        }

        let named = entries.into_iter().map(|(key, value)| {
            let name = match &key {
                Value::String(text) | Value::Markup(text) => text.to_string(),
                Value::None => "null".to_owned(),
                Value::Bool(value) => if *value { "true" } else { "false" }.to_owned(),
                Value::Int(number) => number.to_string(),
                Value::Float(number) => float(*number),
                _ => {
                    let kind = key.type_name();
                    return Err(Error::failed(format!("tojson of a key that is a {kind}")));
                }
            };
            Ok((name, value))
        });
        named.collect()
    }

    /// Writes the text in front of an element.
    fn separate(&self, number: usize, level: usize, to: &mut String) {
        if number > 0 {
            to.push_str(&self.separators[0]);
        }
        self.line(level, to);
    }

    /// Begins a line, where lines are indented.
    fn line(&self, level: usize, to: &mut String) {
        if let Some(indent) = &self.indent {
            to.push('\n');
            to.push_str(&indent.repeat(level));
        }
    }

    /// Appends a string with its escapes.
    fn string(&self, text: &str, to: &mut String) {
        to.push('"');
        for c in text.chars() {
            match c {
                '"' => to.push_str("\\\""),
                '\\' => to.push_str("\\\\"),
                '\n' => to.push_str("\\n"),
                '\r' => to.push_str("\\r"),
                '\t' => to.push_str("\\t"),
                '\u{8}' => to.push_str("\\b"),
                '\u{c}' => to.push_str("\\f"),
                c if c < ' ' || self.ascii && !(' '..='~').contains(&c) => {
                    // JSON writes a character above U+FFFF as two surrogates.
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        to.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => to.push(c),
            }
        }
        to.push('"');
    }
}

/// Returns the text of a float. Python writes NaN and infinity, which JSON does not have.
fn float(x: f64) -> String {
    if x.is_nan() {
        "NaN".to_owned()
    } else if x.is_infinite() {
        if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        text::float(x)
    }
}
