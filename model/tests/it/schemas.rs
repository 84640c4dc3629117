//! JSON schemas: references, excluded keys, and random walks that must not run into a dead end.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use warpwright_model::{Grammar, GrammarCompiler, GrammarText, Model, Tokenizer};

use crate::asset;

fn compiler() -> (Arc<Tokenizer>, GrammarCompiler) {
    let model = Model::open(&asset()).unwrap();
    let tokenizer = Arc::new(model.tokenizer().unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &model.outline).unwrap();
    (tokenizer, compiler)
}

/// A generator of numbers, the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn one<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn some(&mut self, items: &[&'static str]) -> Vec<&'static str> {
        items
            .iter()
            .copied()
            .filter(|_| self.below(3) == 0)
            .collect()
    }
}

/// Walks through allowed tokens, and returns the text and true if it is whole.
fn walk(
    grammar: &Grammar,
    tokenizer: &Tokenizer,
    draw: &mut Draw,
) -> Result<(String, bool), String> {
    let mut matcher = grammar.matcher();
    let mut ids = vec![];
    for step in 0..120 {
        if matcher.is_over() {
            break;
        }

        let bits = matcher
            .allowed()
            .map_err(|error| format!("{error} behind {:?}", tokenizer.decode(&ids)))?
            .to_vec();
        let allowed: Vec<u32> = (0..matcher.vocab())
            .filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        let text = |id: &u32| tokenizer.decode(&[*id]);
        let closing =
            |id: &&u32| matches!(text(id).as_str(), "}" | "\"" | "]" | ",") || text(id).is_empty();
        let closers: Vec<u32> = allowed.iter().filter(closing).copied().collect();

        // Free texts would go on for long.
        let from = if !closers.is_empty() && (step > 60 || draw.below(3) > 0) {
            &closers
        } else {
            &allowed
        };
        if from.is_empty() {
            return Ok((tokenizer.decode(&ids), false));
        }

        let id = *draw.one(from);
        matcher.take(id).map_err(|error| error.to_string())?;
        ids.push(id);
    }

    Ok((tokenizer.decode(&ids), matcher.is_over()))
}

const KEYS: [&str; 4] = ["a", "b", "x-1", ""];

/// Returns true if a key matches a pattern.
type Matches = fn(&str) -> bool;

/// Patterns, and what they match.
const PATTERNS: [(&str, Matches); 8] = [
    ("^a$", |key| key == "a"),
    ("^[ab]$", |key| key == "a" || key == "b"),
    ("^x-", |key| key.starts_with("x-")),
    ("^x-1$", |key| key == "x-1"),
    ("b", |key| key.contains('b')),
    ("^(a|b|x-1)?$", |key| KEYS.contains(&key)),
    ("", |_| true),
    ("^$", |key| key.is_empty()),
];

fn schema(draw: &mut Draw, depth: usize) -> Value {
    if depth == 0 || draw.below(4) == 0 {
        let plain = [
            json!({"const": 1}),
            json!({"type": "integer"}),
            json!({"type": "boolean"}),
            json!(false),
        ];
        return draw.one(&plain).clone();
    }
    if depth > 1 && draw.below(4) == 0 {
        return json!({"allOf": [object(draw, depth - 1), object(draw, depth - 1)]});
    }
    object(draw, depth)
}

fn object(draw: &mut Draw, depth: usize) -> Value {
    let mut object = Map::new();
    object.insert("type".into(), "object".into());
    let names: Vec<&str> = draw.some(&KEYS);
    if !names.is_empty() {
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), schema(draw, depth - 1)))
            .collect();
        object.insert("properties".into(), properties.into());
    }

    let patterns: Map<String, Value> = (0..draw.below(3))
        .map(|_| (draw.one(&PATTERNS).0.to_owned(), schema(draw, depth - 1)))
        .collect();
    if !patterns.is_empty() {
        object.insert("patternProperties".into(), patterns.into());
    }

    match draw.below(6) {
        0 => {}
        1 => drop(object.insert("additionalProperties".into(), json!({"type": "boolean"}))),
        _ => drop(object.insert("additionalProperties".into(), json!(false))),
    }

    let required = draw.some(&KEYS);
    if !required.is_empty() && draw.below(2) == 0 {
        object.insert("required".into(), json!(required));
    }

    match draw.below(8) {
        0 => drop(object.insert("minProperties".into(), json!(1 + draw.below(2)))),
        1 => drop(object.insert("maxProperties".into(), json!(draw.below(3)))),
        _ => {}
    }

    object.into()
}

/// Returns true if a value is of a schema of the generator, computed independently of the library.
fn valid(schema: &Value, value: &Value) -> bool {
    if let Value::Bool(any) = schema {
        return *any;
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        return false;
    }

    let right_type = match schema["type"].as_str() {
        None => true,
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("boolean") => value.is_boolean(),
        Some(_) => value.is_object(),
    };
    let all = schema["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .all(|schema| valid(schema, value));
    let Value::Object(entries) = value else {
        return right_type && all;
    };

    let required = schema["required"].as_array().into_iter().flatten();
    let complete = required
        .filter_map(Value::as_str)
        .all(|name| entries.contains_key(name));
    let len = entries.len() as u64;
    let counted = schema["minProperties"]
        .as_u64()
        .is_none_or(|least| len >= least)
        && schema["maxProperties"]
            .as_u64()
            .is_none_or(|most| len <= most);
    let entries_valid = entries.iter().all(|(key, value)| {
        let mut named = false;
        let mut right = true;
        if let Some(property) = schema["properties"].get(key) {
            named = true;
            right &= valid(property, value);
        }

        for (pattern, schema) in schema["patternProperties"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let (_, matches) = PATTERNS.iter().find(|(known, _)| known == pattern).unwrap();
            if matches(key) {
                named = true;
                right &= valid(schema, value);
            }
        }

        right
            && (named
                || schema
                    .get("additionalProperties")
                    .is_none_or(|schema| valid(schema, value)))
    });
    right_type && all && complete && counted && entries_valid
}

#[test]
fn random_walks_end_in_texts_that_the_schema_allows() {
    let (tokenizer, compiler) = compiler();
    let mut draw = Draw(11);
    let mut whole = 0;
    let mut rejected = BTreeSet::new();
    for _ in 0..150 {
        let schema = schema(&mut draw, 3);
        let text = schema.to_string();
        let grammar = match compiler.compile(&GrammarText::CompactJsonSchema(text.clone())) {
            Ok(grammar) => grammar,
            Err(error) => {
                rejected.insert(error.to_string());
                continue;
            }
        };
        for _ in 0..2 {
            let (written, complete) = walk(&grammar, &tokenizer, &mut draw)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            if complete {
                let value = serde_json::from_str(&written)
                    .unwrap_or_else(|error| panic!("{text}: {written}: {error}"));
                assert!(valid(&schema, &value), "{text}: {written}");
                whole += 1;
            }
        }
    }

    assert!(
        whole > 25,
        "{whole} texts were whole; rejected: {rejected:#?}"
    );
}

/// Schemas with one text, and that text.
#[test]
fn the_only_text_of_a_schema_is_forced() {
    let (tokenizer, compiler) = compiler();
    let cases = [
        (
            r##"{"definitions": {"a/b": {"const": 1}}, "$ref": "#/definitions/a~1b"}"##,
            "1",
        ),
        (
            r##"{"$defs": {"a~b": {"const": 1}}, "$ref": "#/$defs/a~0b"}"##,
            "1",
        ),
        (
            r##"{"$defs": {"a~1b": {"const": 1}, "a/b": {"const": 2}}, "$ref": "#/$defs/a~1b"}"##,
            "2",
        ),
        (
            r##"{"$defs": {"a b": {"const": 1}, "a%20b": {"const": 2}}, "$ref": "#/$defs/a%20b"}"##,
            "1",
        ),
        (
            r##"{"$defs": {"a": {"$anchor": "n", "const": 3}}, "$ref": "#n"}"##,
            "3",
        ),
        (
            r##"{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false,
                "patternProperties": {"^a$": {"type": "integer"}}}"##,
            r#"{"a":1}"#,
        ),
        (
            r##"{"type": "object", "required": ["a"], "additionalProperties": false, "patternProperties": {"^a$": {"const": 2}}}"##,
            r#"{"a":2}"#,
        ),
    ];
    for (schema, wanted) in cases {
        let grammar = compiler
            .compile(&GrammarText::CompactJsonSchema(schema.into()))
            .unwrap();
        let mut matcher = grammar.matcher();
        let mut ids = vec![];
        while !matcher.is_over() && ids.len() < 20 {
            let bits = matcher.allowed().unwrap().to_vec();
            let id = (0..matcher.vocab())
                .rfind(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1)
                .unwrap();
            matcher.take(id).unwrap();
            ids.push(id);
        }

        let text = tokenizer.decode(&ids);
        assert_eq!(text.trim_end_matches("<|endoftext|>"), wanted, "{schema}");
    }
}

#[test]
fn objects_without_a_key_that_is_left_are_rejected() {
    let (_, compiler) = compiler();

    // The object arises from two schemas, of which neither is a dead end.
    let schema = r#"{"allOf": [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {"type": "object", "patternProperties": {"^a$": {"type": "integer"}}, "additionalProperties": false}]}"#;
    let error = compiler
        .compile(&GrammarText::JsonSchema(schema.into()))
        .err()
        .map(|error| error.to_string());
    let reason =
        "an object within # allows keys by a pattern, but all of them are named or excluded";
    assert!(
        error.as_ref().is_some_and(|error| error.contains(reason)),
        "{error:?}"
    );
}

/// Returns the end of `text` that cannot be written within a schema, or nothing if all of it can.
fn refused_end(schema: &str, text: &str) -> String {
    let (tokenizer, compiler) = compiler();
    let grammar = compiler
        .compile(&GrammarText::CompactJsonSchema(schema.into()))
        .unwrap();
    let mut matcher = grammar.matcher();
    let ids: Vec<u32> = tokenizer.encode(text).unwrap();

    // The tokenizer puts BOS in front.
    let ids: Vec<u32> = ids
        .into_iter()
        .filter(|id| !tokenizer.decode(&[*id]).is_empty())
        .collect();
    for (at, id) in ids.iter().enumerate() {
        let bits = matcher.allowed().unwrap();
        let is_allowed = bits[*id as usize / 32] >> (id % 32) & 1 == 1;
        if !is_allowed {
            return tokenizer.decode(&ids[at..]);
        }
        matcher.take(*id).unwrap();
    }

    String::new()
}

/// Another spelling of a declared key would take the schema of additional keys.
#[test]
fn a_key_has_one_spelling() {
    let open = r#"{"type": "object", "properties": {"a": {"type": "integer"}}}"#;
    let typed = r#"{"type": "object", "properties": {"a\n\"": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}}"#;
    let required = r#"{"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}, "maxProperties": 2}"#;
    let pattern = r#"{"type": "object", "properties": {"a\n": {"type": "integer"}}, "patternProperties": {"^a": {"type": "boolean"}, "^x": {"type": "integer"}}}"#;
    let merged = r#"{"allOf": [{"properties": {"a": {"type": "integer"}}}, {"type": "object", "additionalProperties": {"type": "boolean"}}]}"#;
    let refused = [
        (open, r#"{"\u0061":"x"}"#),
        (open, r#"{"\u0061":1}"#),
        (open, r#"{"\u0062":1}"#),
        (typed, r#"{"a\u000a\"":true}"#),
        (typed, r#"{"a\n\u0022":true}"#),
        (required, r#"{"a":1,"\u0061":2}"#),
        (pattern, r#"{"a\u000A":true}"#),
        (pattern, r#"{"\u0078":true}"#),
        (merged, r#"{"\u0061":true}"#),
        (open, r#"{"b\/":true}"#),
    ];
    for (schema, text) in refused {
        assert_ne!(refused_end(schema, text), "", "{schema}: {text}");
    }

    let accepted = [
        (open, r#"{"a":1,"b":"x"}"#),
        (open, r#"{"\n\"\\":{"\t":"\r"}}"#),
        (typed, r#"{"a\n\"":1,"a":true}"#),
        (pattern, r#"{"a\t":true,"x\n":1}"#),
        (
            r#"{"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string"}}}"#,
            r#"{"a":"\u001b"}"#,
        ),
        // The schema's own setting allows the second spelling.
        (
            r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "x-guidance": {"json_allowed_escapes": "nrbtf\\\"u", "whitespace_flexible": false}}"#,
            r#"{"\u0061":"x"}"#,
        ),
    ];
    for (schema, text) in accepted {
        assert_eq!(refused_end(schema, text), "", "{schema}: {text}");
    }
}

#[test]
fn strings_that_need_an_escape_are_refused_next_to_open_objects() {
    let (_, compiler) = compiler();
    let compile = |schema: &str| {
        compiler
            .compile(&GrammarText::JsonSchema(schema.into()))
            .err()
            .map(|error| error.to_string())
    };
    let string = r#"{"properties": {"a": {"const": "\u001b"}}, "required": ["a"]"#;
    let error = compile(&format!("{string}}}")).expect("an error");
    let reason = r#"the string "\u{1b}" at #/properties/a/const has a control character that needs a \u escape"#;
    assert!(error.contains(reason), "{error}");
    assert_eq!(
        compile(&format!(
            r#"{string}, "additionalProperties": false, "type": "object"}}"#
        )),
        None
    );
}
