//! SentencePiece's vocabularies, in GGUF files and as `tokenizer.json`.
//!
//! What is expected was computed by the packages `sentencepiece` and `tokenizers`, on vocabularies that the first one
//! trained: `tests/outside/tokenizers/small.py`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use warpwright_model::Tokenizer;
use warpwright_model::gguf::Gguf;

use crate::write::{File, Val};

pub(crate) fn data() -> Json {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/sentencepiece.json"
    );
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn texts(value: &Json) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect()
}

/// An array of 32-bit values of a type.
fn array(kind: u32, values: impl ExactSizeIterator<Item = [u8; 4]>) -> Val {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((values.len() as u64).to_le_bytes());
    bytes.extend(values.flatten());
    Val::Raw(9, bytes)
}

fn scores(scores: &[f32]) -> Val {
    array(6, scores.iter().map(|score| score.to_le_bytes()))
}

fn bytes(bytes: &[u8]) -> Val {
    Val::Raw(
        9,
        [
            &0u32.to_le_bytes()[..],
            &(bytes.len() as u64).to_le_bytes(),
            bytes,
        ]
        .concat(),
    )
}

/// The GGUF file of tables.
pub(crate) fn file(tables: &Json) -> File {
    let flag = |key: &str| Val::Bool(tables[key].as_bool().unwrap());
    let number = |value: &Json| value.as_f64().unwrap() as f32;
    let all: Vec<f32> = tables["scores"]
        .as_array()
        .unwrap()
        .iter()
        .map(number)
        .collect();
    let types = tables["types"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind.as_i64().unwrap() as i32);
    let charsmap = base64::decode(tables["charsmap"].as_str().unwrap()).unwrap();
    File::default()
        .pair(
            "tokenizer.ggml.model",
            Val::Str(tables["model"].as_str().unwrap().into()),
        )
        .pair(
            "tokenizer.ggml.tokens",
            Val::Strs(
                texts(&tables["tokens"])
                    .into_iter()
                    .map(String::from)
                    .collect(),
            ),
        )
        .pair("tokenizer.ggml.scores", scores(&all))
        .pair("tokenizer.ggml.token_type", Val::I32s(types.collect()))
        .pair(
            "tokenizer.ggml.unknown_token_id",
            Val::U32(tables["unknown"].as_u64().unwrap() as u32),
        )
        .pair("tokenizer.ggml.add_space_prefix", flag("add_space_prefix"))
        .pair(
            "tokenizer.ggml.remove_extra_whitespaces",
            flag("remove_extra_whitespaces"),
        )
        .pair("tokenizer.ggml.precompiled_charsmap", bytes(&charsmap))
        .pair("tokenizer.ggml.add_bos_token", Val::Bool(false))
}

pub(crate) fn open(file: &File, name: &str) -> Result<Tokenizer, String> {
    let path = file.save(name);
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).map_err(|e| {
        e.to_string()
            .strip_prefix(&format!("{}: ", path.display()))
            .expect("the file's name")
            .to_owned()
    })
}

#[test]
fn agrees_with_sentencepiece() {
    let data = data();
    for (name, model) in data["models"].as_object().unwrap() {
        // SentencePiece takes a text literally.
        let tokenizer = open(&file(&model["tables"]), "spm.gguf").unwrap().literal();
        for (index, text) in texts(&data["texts"]).into_iter().enumerate() {
            let expected = crate::ids(&model["ids"][index]);
            assert_eq!(
                tokenizer.encode(text).unwrap(),
                expected,
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn folders_agree_with_tokenizers() {
    let data = data();
    for (name, model) in data["models"].as_object().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("tokenizer.json"),
            model["tokenizer_json"].to_string(),
        )
        .unwrap();
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        for (index, text) in texts(&data["texts"]).into_iter().enumerate() {
            let expected = crate::ids(&model["library_ids"][index]);
            assert_eq!(
                tokenizer.encode(text).unwrap(),
                expected,
                "{name}: {text:?}"
            );
            assert_eq!(
                tokenizer.encode_places(text).unwrap().len(),
                expected.len(),
                "{name}: {text:?}"
            );
        }
    }
}

/// A vocabulary of the bytes, `more` with their scores and types, and a control token.
fn vocabulary(more: &[(&str, f32, i32)]) -> File {
    let bytes = (0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6));
    let more = more
        .iter()
        .map(|(text, score, kind)| ((*text).to_owned(), *score, *kind));
    let ends = [("<unk>", 2), ("<s>", 3)].map(|(text, kind)| (text.to_owned(), 0.0, kind));
    let all: Vec<(String, f32, i32)> = bytes.chain(ends).chain(more).collect();
    File::default()
        .pair("tokenizer.ggml.model", Val::Str("llama".into()))
        .pair(
            "tokenizer.ggml.tokens",
            Val::Strs(all.iter().map(|(text, ..)| text.clone()).collect()),
        )
        .pair(
            "tokenizer.ggml.scores",
            scores(&all.iter().map(|(_, score, _)| *score).collect::<Vec<_>>()),
        )
        .pair(
            "tokenizer.ggml.token_type",
            Val::I32s(all.iter().map(|(.., kind)| *kind).collect()),
        )
        .pair("tokenizer.ggml.unknown_token_id", Val::U32(256))
        .pair("tokenizer.ggml.bos_token_id", Val::U32(257))
        .pair("tokenizer.ggml.add_bos_token", Val::Bool(false))
}

const SPACE: &str = "\u{2581}";

/// Numbers from 258 on, in the order that they are given in.
#[test]
fn merges_by_score_from_the_left() {
    let more = [
        (SPACE, -9.0, 1),
        ("a", -9.0, 1),
        ("aa", -1.0, 1),
        ("aaa", -2.0, 1),
        ("ab", -3.0, 5),
        ("abb", -4.0, 1),
        ("b", -9.0, 1),
    ];
    let tokenizer = open(&vocabulary(&more), "spm-merges.gguf").unwrap();
    let cases: &[(&str, &[u32])] = &[
        ("", &[]),
        ("aaa", &[258, 261]),
        ("aaaaa", &[258, 260, 261]),
        ("ab", &[258, 259, 264]),
        ("abb", &[258, 263]),
        (" a", &[258, 258, 259]),
        ("\u{e9}", &[258, 0xc3, 0xa9]),
        ("\0", &[258, 0]),
        ("<s>a", &[257, 258, 259]),
        ("a<s>a", &[258, 259, 257, 258, 259]),
    ];
    for (text, ids) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{text:?}");
    }

    assert_eq!(tokenizer.encode_rest("aa").unwrap(), [260]);
    let places = [
        (258, 0..0),
        (259, 0..1),
        (0xc3, 1..3),
        (0xa9, 1..3),
        (258, 3..4),
        (257, 4..7),
    ];
    assert_eq!(tokenizer.encode_places("a\u{e9} <s>").unwrap(), places);
}

/// What a user types is no control token and no byte where a text is taken literally.
#[test]
fn typed_tokens_are_text() {
    let more = [
        ("<s", -1.0, 1),
        ("<0x0A", -1.0, 1),
        ("<tag>", 0.0, 4),
        (SPACE, -9.0, 1),
    ];
    let tokenizer = open(&vocabulary(&more), "spm-typed.gguf").unwrap();
    assert_eq!(tokenizer.encode_rest("<s>").unwrap(), [257]);
    assert_eq!(
        tokenizer.encode_rest("<tag><0x0A>").unwrap()[..2],
        [260, 261],
        "a space follows a token by name"
    );
    let tokenizer = tokenizer.literal();
    assert_eq!(
        tokenizer.decode(&tokenizer.encode("<s><unk><0x0A>").unwrap()),
        "<s><unk><0x0A>"
    );
    assert!(
        !tokenizer
            .encode("<s><unk><0x0A>")
            .unwrap()
            .iter()
            .any(|id| [10, 256, 257].contains(id))
    );
    assert_eq!(tokenizer.encode_rest("<tag>").unwrap(), [260]);
}

#[test]
fn texts_come_back_and_stream() {
    let more = [(SPACE, -9.0, 1), ("\u{2581}a", -1.0, 1)];
    let tokenizer = open(&vocabulary(&more), "spm-decode.gguf").unwrap();
    for text in ["", " ", "a", " a a  ", "\u{1f980}\n", "\t\0"] {
        assert_eq!(
            tokenizer.decode(&tokenizer.encode(text).unwrap()),
            text,
            "{text:?}"
        );
    }

    let mut stream = tokenizer.stream();
    let pieces: Vec<String> = [259, 0xf0, 0x9f, 0xa6, 0x80, 257, 0xe2]
        .iter()
        .map(|id| stream.push(*id))
        .collect();
    assert_eq!(
        pieces,
        [" a", "", "", "", "\u{1f980}", "", ""],
        "a space goes on from a text"
    );
    assert_eq!(stream.finish(), "\u{fffd}");
}

/// A text of a megabyte, and one whose pieces nest as deep as they can, take no time that grows with its square.
#[test]
fn long_texts_are_quick() {
    let mut more = vec![
        (SPACE, -9.0, 1),
        ("a", -9.0, 1),
        ("b", -8.0, 1),
        ("ab", -1.0, 5),
    ];
    let runs: Vec<String> = (2..12).map(|n| "a".repeat(n)).collect();
    more.extend(runs.iter().map(|run| (run.as_str(), -2.0, 1)));
    for kind in ["llama", "t5"] {
        let file = vocabulary(&more).pair("tokenizer.ggml.model", Val::Str(kind.into()));
        let tokenizer = open(&file, "spm-long.gguf").unwrap();
        for text in [
            "a".repeat(1 << 20),
            "ab ".repeat(1 << 18),
            "\u{e9}".repeat(1 << 18),
        ] {
            let start = Instant::now();
            assert!(tokenizer.encode(&text).unwrap().len() > 1 << 16);
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{kind}: {:?}",
                start.elapsed()
            );
        }
    }
}

#[test]
fn refuses_wrong_vocabularies() {
    let good = || vocabulary(&[("a", -1.0, 1)]);
    let t5 = |file: File| file.pair("tokenizer.ggml.model", Val::Str("t5".into()));
    let scored = |score: f32| {
        good().pair(
            "tokenizer.ggml.scores",
            scores(&[&[0.0; 258][..], &[score]].concat()),
        )
    };
    let no_byte = |file: File| {
        file.pair(
            "tokenizer.ggml.token_type",
            Val::I32s([&[1; 256][..], &[2, 3, 1]].concat()),
        )
    };
    let long = "x".repeat(2000);
    let unscored = "expected an array of 259 finite numbers, one for each token";
    let cases: &[(File, &str)] = &[
        (
            good().without("tokenizer.ggml.scores"),
            &format!("key \"tokenizer.ggml.scores\" is missing; {unscored}"),
        ),
        (
            scored(f32::NAN),
            &format!("key \"tokenizer.ggml.scores\" is an array of 259; {unscored}"),
        ),
        (
            good().pair("tokenizer.ggml.scores", scores(&[0.0])),
            &format!("key \"tokenizer.ggml.scores\" is an array of 1; {unscored}"),
        ),
        (
            good().without("tokenizer.ggml.token_type"),
            "key \"tokenizer.ggml.token_type\" is missing; expected an array that says which tokens are bytes and which \
             are control tokens",
        ),
        (
            vocabulary(&[("a", 0.0, 1), ("a", 0.0, 1)]),
            "tokens 258 and 259 are both \"a\"",
        ),
        (
            vocabulary(&[("x", 0.0, 6)]),
            "token 258 is of the type of bytes and spelled \"x\"; expected such as \"<0x0A>\"",
        ),
        (
            no_byte(good()).pair("tokenizer.ggml.unknown_token_id", Val::U32(9999)),
            "the vocabulary has no token for the byte 0x00",
        ),
        (
            good()
                .pair("tokenizer.ggml.add_bos_token", Val::Bool(true))
                .pair("tokenizer.ggml.bos_token_id", Val::U32(259)),
            "key \"tokenizer.ggml.bos_token_id\" is an unsigned integer, 259; expected a token below 259",
        ),
        (
            t5(vocabulary(&[(&long, 0.0, 1)])),
            "a token has 2000 bytes; a unigram vocabulary may have tokens of up to 1024",
        ),
    ];
    for (file, message) in cases {
        assert_eq!(open(file, "spm-wrong.gguf").unwrap_err(), *message);
    }
}

#[test]
fn refuses_damaged_normalizations() {
    // Too short; no trie; a trie of one unit, which leads out of itself.
    for map in [&[1][..], &[0, 0, 0, 0], &[4, 0, 0, 0, 0, 0, 0, 0, b'a', 0]] {
        let file =
            vocabulary(&[("a", -1.0, 1)]).pair("tokenizer.ggml.precompiled_charsmap", bytes(map));
        let message = "the normalization (precompiled_charsmap) is damaged: it is no trie with a replacement at each leaf";
        assert_eq!(open(&file, "spm-map.gguf").unwrap_err(), message);
    }
}

/// The unknown token stands for neighbours too, where there are no bytes.
#[test]
fn unknown_characters_are_one_token() {
    let file = vocabulary(&[("a", -1.0, 1), (SPACE, -1.0, 1)]).pair(
        "tokenizer.ggml.token_type",
        Val::I32s([&[1; 256][..], &[2, 3, 1, 1]].concat()),
    );
    for kind in ["llama", "t5"] {
        let tokenizer = open(
            &file
                .clone()
                .pair("tokenizer.ggml.model", Val::Str(kind.into())),
            "spm-unknown.gguf",
        );
        let ids = tokenizer
            .unwrap()
            .encode("\u{4e00}\u{4e01}a\u{4e00}")
            .unwrap();
        assert_eq!(ids, [259, 256, 258, 256], "{kind}");
    }
}

/// Files of a folder that the library would panic on, or that would lose text.
#[test]
fn refuses_wrong_folders() {
    let good = data()["models"]["unigram"]["tokenizer_json"].clone();
    let bpe = data()["models"]["bpe"]["tokenizer_json"].clone();
    let with = |file: &Json, pointer: &str, value: Json| {
        let mut file = file.clone();
        *file.pointer_mut(pointer).expect(pointer) = value;
        file
    };
    let error = |text: String| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        let error = Tokenizer::open(folder.path())
            .map(drop)
            .unwrap_err()
            .to_string();
        error
            .split_once("tokenizer.json: ")
            .expect("the file's name")
            .1
            .to_owned()
    };
    let damaged = "the normalization (precompiled_charsmap) is damaged: it is no trie with a replacement at each leaf";
    let map = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAA=="});
    assert_eq!(error(with(&good, "/normalizer", map).to_string()), damaged);
    let long = json!([["x".repeat(2000), 0.0]]);
    let refused = "a token has 2000 bytes; a unigram vocabulary may have tokens of up to 1024";
    assert_eq!(
        error(
            with(
                &with(&good, "/added_tokens", json!([])),
                "/model/vocab",
                long
            )
            .to_string()
        ),
        refused
    );
    let lossy = with(
        &with(&bpe, "/model/unk_token", Json::Null),
        "/model/byte_fallback",
        json!(false),
    );
    let refused = "the vocabulary has neither byte fallback nor an unknown token, so a text could lose characters";
    assert_eq!(error(lossy.to_string()), refused);
    let refused = "the decoder has a step of the type \"WordPiece\" where it stands; supported: ByteLevel, if the \
                   pre_tokenizer has it too, and Metaspace, or Replace of U+2581, with ByteFallback, Fuse and Strip in \
                   this order, as SentencePiece's vocabularies have";
    let word_piece = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    assert_eq!(
        error(with(&bpe, "/decoder", word_piece).to_string()),
        refused
    );
    let refused = "the vocabulary is of the kind \"WordLevel\"; supported: BPE, Unigram";
    assert_eq!(
        error(with(&bpe, "/model/type", json!("WordLevel")).to_string()),
        refused
    );
    let surrogate = bpe.to_string().replacen("\"<unk>\"", "\"\\ud800\"", 1);
    let error = error(surrogate);
    assert!(error.contains("hex escape"), "{error}");
}
