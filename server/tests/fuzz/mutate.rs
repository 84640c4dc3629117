//! Random changes of requests, some of their bytes and some of their JSON.

use serde_json::{Map, Value, json};

/// A generator of random numbers (xorshift by Marsaglia, <https://doi.org/10.18637/jss.v008.i14>).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit
    }
}

/// Returns a changed copy of one of the seeds. Each has the character of its endpoint in front of a
/// body.
pub(crate) fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let seed = &seeds[random.below(seeds.len())];
    let (endpoint, body) = seed.split_first().expect("a seed has an endpoint");
    let mut body = body.to_vec();
    // A changed value must still be JSON to get past the first parser.
    if random.below(4) > 0
        && let Ok(mut json) = serde_json::from_slice::<Value>(&body)
    {
        let other = &seeds[random.below(seeds.len())];
        let other = serde_json::from_slice(&other[1..]).unwrap_or_default();
        for _ in 0..=random.below(4) {
            change(&mut json, &other, random);
        }
        body = json.to_string().into_bytes();
    }
    if random.below(4) == 0 {
        for _ in 0..=random.below(6) {
            change_bytes(&mut body, random);
        }
    }
    let endpoint = if random.below(20) == 0 {
        b'a' + random.below(20) as u8
    } else {
        *endpoint
    };
    [&[endpoint], &body[..]].concat()
}

fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.below(256) as u8),
        2 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        _ if at < bytes.len() => {
            let end = (at + 1 + random.below(20)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {}
    }
}

/// Replaces, removes or adds a value somewhere.
fn change(value: &mut Value, other: &Value, random: &mut Random) {
    // Most values are deep, so the walk seldom stops at the top.
    if random.below(6) > 0 {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let number = random.below(fields.len());
                if let Some(child) = fields.values_mut().nth(number) {
                    return change(child, other, random);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let number = random.below(items.len());
                return change(&mut items[number], other, random);
            }
            Value::Object(_)
            | Value::Array(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => {}
        }
    }
    match (random.below(4), &mut *value) {
        (0, Value::Object(fields)) => remove(fields, random),
        (0, Value::Array(items)) if !items.is_empty() => {
            items.remove(random.below(items.len()));
        }
        (1, Value::Object(fields)) => {
            let (name, child) = part(other, random);
            fields.insert(name, child);
        }
        (1, Value::Array(items)) => items.push(part(other, random).1),
        (2, _) => *value = part(other, random).1,
        _ => *value = junk(random),
    }
}

fn remove(fields: &mut Map<String, Value>, random: &mut Random) {
    if fields.is_empty() {
        return;
    }
    let number = random.below(fields.len());
    if let Some(name) = fields.keys().nth(number).cloned() {
        fields.remove(&name);
    }
}

/// Returns a random field of another request.
fn part(other: &Value, random: &mut Random) -> (String, Value) {
    match other {
        Value::Object(fields) if !fields.is_empty() => {
            let number = random.below(fields.len());
            let found = fields.iter().nth(number);
            let (name, value) = found.expect("the number is below the length");
            if random.below(2) == 0 {
                return part(value, random);
            }
            (name.clone(), value.clone())
        }
        Value::Array(items) if !items.is_empty() => part(&items[random.below(items.len())], random),
        value => ("x".to_owned(), value.clone()),
    }
}

fn junk(random: &mut Random) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(0.5),
        json!(1e308),
        json!(-1e-308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(4_294_967_296_u64),
        json!(4096),
        json!(""),
        json!("a"),
        json!("\u{0}"),
        json!("äöü🙂\u{202e}"),
        json!("a".repeat(5000)),
        json!("[[[[((((a*)*)*)*"),
        json!("{\"a\": [1"),
        json!("auto"),
        json!("required"),
        json!("none"),
        json!("tool"),
        json!("assistant"),
        json!([]),
        json!([[]]),
        json!([0]),
        json!({}),
        json!({"type": "object"}),
        json!({"type": "text", "text": "a"}),
        json!({"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}),
        json!({"type": "function", "function": {"name": "f"}}),
    ];
    values[random.below(values.len())].clone()
}
