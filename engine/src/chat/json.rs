//! The filter `tojson`: what Python's `json.dumps` writes, with the arguments that transformers gives it.
//!
//! Letters beyond ASCII stay as they are, keys keep their order, and there is a space behind `,` and `:`
//! (<https://docs.python.org/3/library/json.html#json.dumps>).

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::bounded;

/// How to write.
struct Style {
    ascii: bool,
    /// What a level is indented by.
    indent: Option<String>,
    /// Between elements, and between a key and its value.
    separators: [String; 2],
    sorted: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > names.len() {
        return Err(wrong(format!("tojson takes {} arguments at most", names.len())));
    }
    let argument = |index: usize| match positional.get(index) {
        Some(value) => Ok(Some(value.clone())),
        None => named.get::<Option<Value>>(names[index]),
    };
    let indent = indent(argument(1)?)?;
    let style = Style {
        ascii: argument(0)?.is_some_and(|value| value.is_true()),
        separators: separators(argument(2)?, indent.is_some())?,
        indent,
        sorted: argument(3)?.is_some_and(|value| value.is_true()),
    };
    named.assert_all_used()?;
    bounded::pay(state, value, 0)?;
    let mut text = String::new();
    style.write(value, 0, &mut text)?;
    Ok(Value::from(text))
}

fn wrong(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// A number of spaces, or the text itself.
fn indent(value: Option<Value>) -> Result<Option<String>, Error> {
    let Some(value) = value.filter(|value| !value.is_none() && !value.is_undefined()) else {
        return Ok(None);
    };
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let spaces = i64::try_from(value.clone()).ok().or(bool::try_from(value).ok().map(i64::from));
    let spaces = spaces.filter(|spaces| *spaces <= 1000);
    spaces
        .map(|n| Some(" ".repeat(n.max(0) as usize)))
        .ok_or_else(|| wrong("indent of tojson must be a whole number up to 1000, or a string".to_owned()))
}

fn separators(value: Option<Value>, indented: bool) -> Result<[String; 2], Error> {
    let default = [if indented { "," } else { ", " }, ": "].map(str::to_owned);
    let Some(value) = value.filter(|value| !value.is_none() && !value.is_undefined()) else {
        return Ok(default);
    };
    let texts: Vec<String> = value.try_iter()?.filter_map(|text| text.as_str().map(str::to_owned)).collect();
    <[String; 2]>::try_from(texts).map_err(|_| wrong("separators of tojson must be two strings".to_owned()))
}

impl Style {
    fn write(&self, value: &Value, level: usize, to: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => to.push_str("null"),
            ValueKind::Bool => to.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => to.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or(""), to),
            ValueKind::Seq => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.items(['[', ']'], items, level, to)?;
            }
            ValueKind::Map => self.items(['{', '}'], self.entries(value)?, level, to)?,
            kind => return Err(wrong(format!("tojson of {kind}, which JSON does not have"))),
        }
        Ok(())
    }

    fn entries(&self, map: &Value) -> Result<Vec<(Option<String>, Value)>, Error> {
        let mut entries = vec![];
        for key in map.try_iter()? {
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or("").to_owned(),
                ValueKind::None => "null".to_owned(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
                ValueKind::Number => number(&key),
                kind => return Err(wrong(format!("tojson of a key that is {kind}"))),
            };
            entries.push((Some(name), map.get_item(&key)?));
        }
        if self.sorted {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(entries)
    }

    fn items(
        &self,
        [open, close]: [char; 2],
        items: Vec<(Option<String>, Value)>,
        level: usize,
        to: &mut String,
    ) -> Result<(), Error> {
        to.push(open);
        let some = !items.is_empty();
        for (i, (key, value)) in items.into_iter().enumerate() {
            if i > 0 {
                to.push_str(&self.separators[0]);
            }
            self.line(level + 1, to);
            if let Some(key) = key {
                self.string(&key, to);
                to.push_str(&self.separators[1]);
            }
            self.write(&value, level + 1, to)?;
        }
        if some {
            self.line(level, to);
        }
        to.push(close);
        Ok(())
    }

    /// A new line, where lines are indented.
    fn line(&self, level: usize, to: &mut String) {
        if let Some(indent) = &self.indent {
            to.push('\n');
            to.push_str(&indent.repeat(level));
        }
    }

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
                    let mut units = [0; 2];
                    c.encode_utf16(&mut units).iter().for_each(|unit| to.push_str(&format!("\\u{unit:04x}")));
                }
                c => to.push(c),
            }
        }
        to.push('"');
    }
}

/// A number as Python's `repr` has it: a float always with a point or an exponent, which has two digits at least.
pub(super) fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(x) = f64::try_from(value.clone()) else { return value.to_string() };
    match x {
        x if x.is_nan() => "NaN".to_owned(),
        x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        x if x == 0.0 || (1e-4..1e16).contains(&x.abs()) => format!("{x:?}"),
        x => {
            let text = format!("{x:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of Python 3.12.
    #[test]
    fn numbers_are_those_of_python() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1.25e-7, "1.25e-07"),
        ];
        for (x, wanted) in cases {
            assert_eq!(number(&Value::from(x)), wanted);
        }
        assert_eq!(number(&Value::from(-7)), "-7");
    }
}
