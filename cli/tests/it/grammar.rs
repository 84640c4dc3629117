//! Structured output: what is written, how it ends, and what is refused.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::input::refused;
use crate::program::{End, MODEL, run};

/// A file with this text.
fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("grammar");
    fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("UTF-8").to_owned();
    (folder, file)
}

fn runs(options: &[&str]) -> End {
    run(&[
        &["run", MODEL, "--device", "emu", "--prompt", "As JSON: "],
        options,
    ]
    .concat())
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"size": {"enum": [8, 16]}, "name": {"const": "borrow checker"}},
    "required": ["size", "name"], "additionalProperties": false, "x-guidance": {"whitespace_flexible": false}}"#;

#[test]
fn a_schema_is_followed_and_its_cost_is_shown() {
    let (_folder, schema) = file(SCHEMA);
    let end = runs(&["--json-schema", &schema, "--json"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let object: Value = serde_json::from_str(&end.out).expect("JSON");
    let text: Value = serde_json::from_str(object["text"].as_str().expect("a text")).expect("JSON");
    assert!(text["size"] == 8 || text["size"] == 16, "{text}");
    assert_eq!(text["name"], "borrow checker");
    assert_eq!(object["end"]["reason"], "grammar", "{object}");
    assert_eq!(object["grammar"]["complete"], true, "{object}");
    assert!(
        object["grammar"]["forced_tokens"]
            .as_u64()
            .expect("a number")
            > 3,
        "{object}"
    );
    for time in ["mask_p50_s", "mask_p99_s", "taken_p50_s", "taken_p99_s"] {
        assert!(
            object["times"][time].as_f64().expect("a time") > 0.0,
            "{object}"
        );
    }
}

#[test]
fn a_text_that_is_cut_is_called_incomplete() {
    let end = runs(&["--regex", "[0-9]{9}", "-n", "2"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let lines: Vec<&str> = end.err.lines().collect();
    assert!(
        lines[0].contains(", limit of -n; the text is incomplete: its grammar requires more, "),
        "{end:?}"
    );
    assert!(
        lines[2].starts_with("grammar: 0 tokens forced, 2 chosen; CPU time per chosen token "),
        "{end:?}"
    );
    let ids = [
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt-ids",
        "0,389",
        "--print",
        "ids",
        "--quiet",
    ];
    let end = run(&[&ids[..], &["--regex", "-?x"]].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{end:?}");
    assert!(
        end.out
            .split_whitespace()
            .all(|id| id.parse::<u32>().is_ok()),
        "{end:?}"
    );
}

#[test]
fn what_is_no_grammar_is_refused_before_the_first_token() {
    let (_folder, unsupported) = file(r#"{"type": "array", "contains": {"type": "null"}}"#);
    let (_folder2, gbnf) = file("# llama.cpp\nroot ::= \"a\"\n");
    let says = |options: &[&str], sentence: &str| assert_eq!(runs(options), refused(2, sentence));
    says(
        &["--json-schema", &unsupported],
        &format!(
            "{unsupported}: the JSON schema cannot be used: the keyword contains at # is not supported; remove it, or \
             express it with other keywords"
        ),
    );
    says(
        &["--grammar", &gbnf],
        &format!(
            "{gbnf}: the grammar cannot be used: line 2 is GBNF, the notation of llama.cpp; use Lark's notation: \
             `start` instead of `root`, `name:` instead of `name ::=`, /[a-z]/ instead of [a-z]"
        ),
    );
    says(
        &["--regex", "[0-9"],
        "--regex: the regular expression cannot be used: line 1, column 1: unclosed character class",
    );
    let (_folder3, endless) = file(
        r##"{"properties": {"next": {"$ref": "#"}}, "required": ["next"], "type": "object"}"##,
    );
    let end = runs(&["--json-schema", &endless]);
    let sentence =
        format!("error: {endless}: the JSON schema cannot be used: no text can complete ");
    assert!(
        end.code == Some(2) && end.err.starts_with(&sentence),
        "{end:?}"
    );
    let (_folder4, open) = file("start: \"a\n");
    let end = runs(&["--grammar", &open]);
    assert!(
        end.code == Some(2) && end.err.contains("may lack its closing quote"),
        "{end:?}"
    );
    says(
        &["--json-schema", "no-such-file"],
        "cannot read the JSON schema no-such-file: No such file or directory (os error 2)",
    );
    let end = runs(&["--regex", "a", "--grammar", &gbnf]);
    assert_eq!(end.code, Some(2), "{end:?}");
}
