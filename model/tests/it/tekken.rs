//! `tekken.json`, the tokenizer of Mistral's folders, against mistral-common: see `tests/data/tekken/tekken.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use warpwright_model::Tokenizer;

fn data(name: &str) -> Value {
    let text = fs::read_to_string(crate::repository(&format!(
        "model/tests/data/tekken/{name}"
    )));
    serde_json::from_str(&text.unwrap()).unwrap()
}

/// A folder with a changed file and nothing else.
fn folder(name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let path = crate::scratch(name);
    fs::create_dir_all(&path).unwrap();
    let mut file = data("tekken.json");
    change(&mut file);
    fs::write(path.join("tekken.json"), file.to_string()).unwrap();
    path
}

#[test]
fn texts_have_the_tokens_of_mistral_common() {
    let tokenizer = Tokenizer::open(&folder("whole", |_| ())).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!(tokenizer.size(), 624);
    let names = [0, 3, 19, 20, 23].map(|id| tokenizer.control(id));
    let wanted = [
        "<unk>",
        "[INST]",
        "[TOOL_CONTENT]",
        "<SPECIAL_20>",
        "<SPECIAL_23>",
    ];
    assert_eq!(names, wanted.map(Some));
    // By name, control tokens are found in a text.
    assert_eq!(tokenizer.encode("[INST]</s>").unwrap(), [1, 3, 2]);

    let tokenizer = tokenizer.literal();
    let ids = data("ids.json");
    let cases = ids["cases"].as_array().unwrap();
    assert!(cases.len() >= 20);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let found = tokenizer.encode(text).unwrap();
        assert_eq!(found, crate::ids(&case["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode(&found), text);
    }
}

#[test]
fn listed_control_tokens_are_read() {
    let listed = |file: &mut Value| {
        file["config"]["version"] = json!("v11");
        file["special_tokens"] = json!([
            {"rank": 0, "token_str": "<unk>", "is_control": true},
            {"rank": 1, "token_str": "<s>", "is_control": true},
            {"rank": 2, "token_str": "</s>", "is_control": true},
            {"rank": 3, "token_str": "[THINK]", "is_control": true},
        ]);
    };
    let tokenizer = Tokenizer::open(&folder("listed", listed)).unwrap();
    assert_eq!(tokenizer.control(3), Some("[THINK]"));
    assert_eq!(tokenizer.control(4), Some("<SPECIAL_4>"));
}

#[test]
fn damaged_files_are_named() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 8] = [
        (
            |file| file["vocab"][5]["rank"] = json!(7),
            "vocab[5] has the rank 7; expected 5",
        ),
        (
            |file| file["vocab"][300]["token_bytes"] = json!("%"),
            "token_bytes of vocab[300] is \"%\", which is not base64: ",
        ),
        (
            |file| file["vocab"][300]["token_bytes"] = json!(""),
            "vocab[300] has no bytes",
        ),
        (
            |file| file["vocab"][300]["token_bytes"] = json!("AA=="),
            "tokens 0 and 300 are both \"\u{100}\"",
        ),
        (
            |file| file["config"]["default_vocab_size"] = json!(10000),
            "vocab has 640 tokens; expected at least 9976, the tokens of default_vocab_size that are not control tokens",
        ),
        (
            |file| file["config"]["version"] = json!("v11"),
            "special_tokens is missing, which files of version \"v11\" have",
        ),
        (
            |file| file["special_tokens"] = json!([{"rank": 1, "token_str": "<s>"}]),
            "special_tokens[0] has the rank 1; expected 0",
        ),
        (
            |file| file["config"]["default_num_special_tokens"] = json!(700),
            "default_vocab_size is 624 and default_num_special_tokens is 700; expected at most 16777216, and not more \
             control tokens than tokens",
        ),
    ];
    for (change, message) in cases {
        let error = Tokenizer::open(&folder("damaged", change)).err();
        let error = error.expect("an error").to_string();
        let (_, found) = error
            .split_once("tekken.json: ")
            .unwrap_or_else(|| panic!("{error}"));
        assert!(found.starts_with(message), "{found}");
    }

    let path = folder("broken", |_| ());
    fs::write(path.join("tekken.json"), "{").unwrap();
    let error = Tokenizer::open(&path).expect_err("an error").to_string();
    assert!(error.contains("tekken.json: EOF while parsing"), "{error}");
}
