//! 5,000 strings in the vocabularies that are in the repository: what `tests/outside/tokenizers/compare.py` has found.
//!
//! The file has a hash of the judge's tokens for each 100 strings, and of ours where they differ. The strings are made by
//! the script that the judges were given (`strings.py`).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use warpwright_model::Tokenizer;

use crate::repository;
use crate::sentencepiece::{data, file, open};

/// Strings of a block.
const BLOCK: usize = 100;

fn strings() -> Vec<String> {
    let script = repository("tests/outside/tokenizers/strings.py");
    let made = Command::new("python3")
        .arg("-B")
        .arg(script)
        .output()
        .expect("python3 starts");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    serde_json::from_slice(&made.stdout).expect("JSON")
}

/// The first 12 digits of the hash of a block's tokens as JSON.
fn hash(tokenizer: &Tokenizer, block: &[String]) -> String {
    let ids = |text: &String| -> Vec<u32> {
        tokenizer
            .encode_places(text)
            .unwrap()
            .into_iter()
            .map(|(id, _)| id)
            .collect()
    };
    let json = serde_json::to_string(&block.iter().map(ids).collect::<Vec<_>>()).unwrap();
    let digest = Sha256::digest(json.as_bytes());
    digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The hash that the file has of our own tokens.
fn wanted(entry: &Json, block: usize) -> &str {
    let own = entry["ours"].get(block.to_string());
    own.unwrap_or(&entry["blocks"][block])
        .as_str()
        .expect("a hash")
}

#[test]
fn strings_have_the_tokens_that_were_found() {
    let expected =
        fs::read_to_string(repository("tests/outside/tokenizers/expected.json")).unwrap();
    let expected: Json = serde_json::from_str(&expected).unwrap();
    let opened = |path: &str| Tokenizer::open(&repository(path)).unwrap();
    let mut tokenizers = vec![
        ("rustdoc-7m".to_owned(), opened("tests/data/rustdoc-7m")),
        (
            "rustdoc-7m GGUF".to_owned(),
            opened("assets/rustdoc-7m-Q4_K_M.gguf"),
        ),
    ];
    for (name, model) in data()["models"].as_object().unwrap() {
        let own = open(&file(&model["tables"]), "strings.gguf").unwrap();
        tokenizers.push((format!("own {name}"), own.literal()));
        tokenizers.push((format!("own {name} tokenizer.json"), of_folder(model)));
    }

    let strings = strings();
    assert_eq!((strings.len(), tokenizers.len()), (5000, 10));
    for (name, tokenizer) in tokenizers {
        for (index, block) in strings.chunks(BLOCK).enumerate() {
            let first = index * BLOCK;
            assert_eq!(
                hash(&tokenizer, block),
                wanted(&expected[&name], index),
                "{name}, strings from {first}"
            );
        }
    }
}

fn of_folder(model: &Json) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = folder.path();
    fs::write(
        path.join("tokenizer.json"),
        model["tokenizer_json"].to_string(),
    )
    .unwrap();
    Tokenizer::open(path).unwrap()
}
