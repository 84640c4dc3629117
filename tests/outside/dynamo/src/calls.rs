//! Random calls of the functions in `tools.json`.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// The functions that the model may call.
pub(crate) const TOOLS: &str = include_str!("../tools.json");

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

impl Call {
    /// Returns all strings in the arguments, also those in lists and objects.
    pub(crate) fn strings(&self) -> Vec<&str> {
        let mut found = vec![];
        add_strings(&self.arguments, &mut found);
        found
    }
}

/// Returns true if calls are equal. JSON has one type of numbers, so 1 equals 1.0.
pub(crate) fn equal(one: &[Call], other: &[Call]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len()
        && pairs.all(|(one, other)| {
            one.name == other.name && equal_values(&one.arguments, &other.arguments)
        })
}

fn equal_values(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => {
            one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| equal_values(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value)| {
                other
                    .get(key)
                    .is_some_and(|other| equal_values(value, other))
            };
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

fn add_strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(values) => values.iter().for_each(|value| add_strings(value, found)),
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            found.push(key);
            add_strings(value, found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Words for strings without any difficulty.
const WORDS: [&str; 8] = ["ls", "-l", "Oslo", "is", "it", "warm", "a", "x1"];

/// Characters outside of ASCII: with accents, in two and three bytes, and joined ones.
const UNICODE: [&str; 7] = [
    "Malmö",
    "東京",
    "🙂",
    "\u{1f469}\u{200d}\u{1f4bb}",
    "e\u{301}",
    "\u{2028}",
    "עברית",
];

/// Characters with a meaning in JSON, Python or a shell.
const QUOTES: [&str; 13] = [
    "\"", "'", "\\", "\\n", "\\\"", "`", "```", "{", "}", "[", "]", ",", ":",
];

/// Texts that a reader could take for a value of another type.
const OTHER_TYPES: [&str; 13] = [
    "12",
    "-0.5",
    "007",
    "1e5",
    "true",
    "False",
    "null",
    "None",
    "{}",
    "[1, 2]",
    "{\"a\": \"b\"}",
    "",
    "NaN",
];

/// References to characters in HTML.
const REFERENCES: [&str; 5] = ["&amp;", "&lt;b&gt;", "&#39;", "a && b", "&quot;"];

/// Returns calls whose strings may contain the marks of a format.
pub(crate) fn random_calls(random: &mut Random, most: usize, marks: &[&str]) -> Vec<Call> {
    let count = 1 + random.below(most.min(3));
    (0..count).map(|_| random_call(random, marks)).collect()
}

fn random_call(random: &mut Random, marks: &[&str]) -> Call {
    let (name, arguments) = match random.below(8) {
        0 => ("ping", json!({})),
        1 | 2 => ("run", json!({ "command": random_string(random, marks) })),
        _ => ("get_weather", random_arguments(random, marks)),
    };
    Call {
        name: name.to_owned(),
        arguments,
    }
}

fn random_arguments(random: &mut Random, marks: &[&str]) -> Value {
    let mut arguments = Map::new();
    arguments.insert("city".to_owned(), random_string(random, marks).into());
    if random.once_in(3) {
        arguments.insert("note".to_owned(), random_string(random, marks).into());
    }

    if random.once_in(3) {
        let days = [0, 1, 3, -2, 9_007_199_254_740_993_i64, i64::MAX, i64::MIN];
        arguments.insert("days".to_owned(), random.one(&days).into());
    }

    if random.once_in(3) {
        let lon = [0.5, -74.25, 1.0, 0.1, 12345.678];
        arguments.insert("lon".to_owned(), random.one(&lon).into());
    }

    if random.once_in(4) {
        arguments.insert("exact".to_owned(), random.once_in(2).into());
    }

    if random.once_in(4) {
        // Formats without quotes do not distinguish the string "null" from null.
        let unit = match random_string(random, marks) {
            text if random.once_in(2) || matches!(text.as_str(), "null" | "None") => Value::Null,
            text => text.into(),
        };
        arguments.insert("unit".to_owned(), unit);
    }

    if random.once_in(3) {
        let tags: Vec<String> = (0..random.below(3))
            .map(|_| random_string(random, marks))
            .collect();
        arguments.insert("tags".to_owned(), tags.into());
    }

    if random.once_in(3) {
        arguments.insert("more".to_owned(), random_object(random, 3, marks));
    }

    Value::Object(arguments)
}

fn random_object(random: &mut Random, depth: usize, marks: &[&str]) -> Value {
    let keys = ["a", "b", "key", "x_1", "für", "two words"];
    let mut object = Map::new();
    for _ in 0..random.below(3) {
        let key = random.one(&keys).to_owned();
        object.insert(key, random_value(random, depth - 1, marks));
    }
    Value::Object(object)
}

fn random_value(random: &mut Random, depth: usize, marks: &[&str]) -> Value {
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => random.once_in(2).into(),
        2 => random.one(&[0, 7, -12]).into(),
        3 => random.one(&[0.25, -3.5, 2.0]).into(),
        4 => random_string(random, marks).into(),
        5 => {
            let count = random.below(3);
            let values = (0..count).map(|_| random_value(random, depth - 1, marks));
            values.collect()
        }
        _ => random_object(random, depth, marks),
    }
}

/// Returns a string. Half of all strings have no difficulty, because a reply with several of them
/// would otherwise nearly always have one.
fn random_string(random: &mut Random, marks: &[&str]) -> String {
    let special: &[&str] = match random.below(14) {
        0 => &UNICODE,
        1 => &QUOTES,
        2 => return random.one(&OTHER_TYPES).to_owned(),
        3 => &REFERENCES,
        4 => &["\n", "\n\n", "\r\n", "\t", " \n"],
        5 => marks,
        6 => {
            return format!(
                "{}{}{}",
                random.one(&["", " ", "\n"]),
                random.one(&WORDS),
                random.one(&[" ", "\n", "\t"])
            );
        }
        _ => &[],
    };
    let mut text = random.one(&WORDS).to_owned();
    for _ in 0..random.below(3) {
        if !special.is_empty() {
            text.push_str(random.one(&["", " "]));
            text.push_str(random.one(special));
        }
        text.push_str(random.one(&["", " "]));
        text.push_str(random.one(&WORDS));
    }

    text
}

/// Writes JSON in a random style: with or without spaces, on one line or several, and with or
/// without escapes.
pub(crate) fn styled_json(random: &mut Random, value: &Value) -> String {
    let text = match random.below(3) {
        0 => value.to_string(),
        1 => serde_json::to_string_pretty(value).unwrap_or_default(),
        _ => spaced(value),
    };
    if !random.once_in(3) {
        return text;
    }

    // Only strings contain characters outside of ASCII and slashes.
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_ascii() && c != '/' {
            escaped.push(c);
        } else if c == '/' {
            escaped.push_str("\\/");
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }

    escaped
}

/// Writes JSON with the spaces of Python's `json.dumps`.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(spaced).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)));
            let entries: Vec<String> = entries.collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
