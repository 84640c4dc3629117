//! Text to tokens and back.

use serde_json::Value as Json;
use warpwright_model::Tokenizer;
use warpwright_model::gguf::Gguf;

use crate::write::{File, Val};

fn small() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(&crate::asset()).unwrap()).unwrap()
}

/// GPT-2's spelling of the bytes 0 to 255, in a vocabulary of nothing else.
pub(crate) fn letters() -> Vec<String> {
    let mut next = '\u{100}'..;
    (0..=255u8)
        .map(|b| match b {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(b),
            _ => next.next().unwrap(),
        })
        .map(String::from)
        .collect()
}

/// A vocabulary of the letters, `more`, and `merges`, with the last token a control token.
fn vocabulary(pre: &str, more: &[&str], merges: &[&str]) -> File {
    let tokens: Vec<String> = letters()
        .into_iter()
        .chain(more.iter().map(|s| s.to_string()))
        .chain(["<end>".into()])
        .collect();
    let types = (0..tokens.len())
        .map(|i| if i + 1 == tokens.len() { 3 } else { 1 })
        .collect();
    File::default()
        .pair("tokenizer.ggml.model", Val::Str("gpt2".into()))
        .pair("tokenizer.ggml.pre", Val::Str(pre.into()))
        .pair("tokenizer.ggml.tokens", Val::Strs(tokens))
        .pair("tokenizer.ggml.token_type", Val::I32s(types))
        .pair(
            "tokenizer.ggml.merges",
            Val::Strs(merges.iter().map(|s| s.to_string()).collect()),
        )
}

fn open(file: &File, name: &str) -> Result<Tokenizer, String> {
    let path = file.save(name);
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).map_err(|e| {
        e.to_string()
            .strip_prefix(&format!("{}: ", path.display()))
            .expect("the file's name")
            .to_owned()
    })
}

#[test]
fn agrees_with_the_reference() {
    let tokenizer = small();
    let reference = crate::reference();
    for run in reference
        .as_object()
        .unwrap()
        .values()
        .flat_map(|runs| runs.as_array().unwrap())
    {
        let ids = |key: &str| crate::ids(&run[key]);
        let prompt = run["prompt"].as_str().unwrap();
        assert_eq!(
            tokenizer.encode(prompt).unwrap(),
            ids("prompt_ids"),
            "{prompt}"
        );
        assert_eq!(tokenizer.decode(&ids("prompt_ids")), prompt);
        assert_eq!(
            Json::from(tokenizer.decode(&ids("greedy_ids"))),
            run["greedy_text"]
        );
    }
}

#[test]
fn every_text_comes_back() {
    let tokenizer = small();
    for text in [
        "",
        " ",
        "a  b\n\n\tc",
        "naïve café \u{1f980}\u{200d}",
        "fn f<'a>(x: &'a str) {}",
        "\0\u{7f}",
    ] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(ids[0], 0, "BOS comes first");
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn bos_is_not_doubled() {
    assert_eq!(small().encode("<|endoftext|>a").unwrap(), [0, 65]);
}

/// What llama.cpp v0.5.0 puts in front of a text, of files that say more or less (by node-llama-cpp 3.22.1).
#[test]
fn a_text_begins_as_llama_cpp_has_it() {
    let cases = [
        (None, None, None),
        (Some("gpt-2"), None, None),
        (Some("gpt-2"), Some(true), Some(257)),
        (Some("llama-bpe"), None, Some(257)),
        (Some("llama-bpe"), Some(false), None),
        (Some("qwen2"), Some(true), Some(257)),
        (Some("tekken"), None, Some(257)),
    ];
    for (pre, says, begins) in cases {
        let file = vocabulary(pre.unwrap_or("default"), &["ab"], &["a b"]);
        let file = if pre.is_none() {
            file.without("tokenizer.ggml.pre")
        } else {
            file
        };
        let file = file.pair("tokenizer.ggml.bos_token_id", Val::U32(257));
        let file = says.map_or(file.clone(), |says| {
            file.pair("tokenizer.ggml.add_bos_token", Val::Bool(says))
        });
        assert_eq!(
            open(&file, "begins.gguf").unwrap().bos(),
            begins,
            "{pre:?}, add_bos_token {says:?}"
        );
    }

    // It crashes where a text is to begin with a token that the file does not name; here that is refused.
    let file = vocabulary("llama-bpe", &["ab"], &["a b"]);
    let error = open(&file, "begins.gguf").unwrap_err();
    assert_eq!(
        error,
        "key \"tokenizer.ggml.bos_token_id\" is missing; expected a token below 258"
    );
}

#[test]
fn streams_whole_characters() {
    let file = vocabulary("gpt-2", &["ab"], &["a b"]);
    let tokenizer = open(&file, "stream.gguf").unwrap();
    let mut stream = tokenizer.stream();
    let crab = "a\u{1f980}".as_bytes();
    let texts: Vec<String> = crab.iter().map(|b| stream.push((*b).into())).collect();
    assert_eq!(texts, ["a", "", "", "", "\u{1f980}"]);
    assert_eq!(stream.push(0xff), "\u{fffd}");
    assert_eq!(stream.push(0xf0), "");
    assert_eq!(stream.push(u32::from(b'b')), "\u{fffd}b");
    assert_eq!(stream.push(257), "", "a control token has no text");
    assert_eq!(stream.push(0xe2), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn cuts_as_the_model_expects() {
    // Merges of digits and of a letter's upper case with an apostrophe show where each pattern cuts.
    let more = ["12", "34", "1234", "'S", "!\u{10a}"];
    let merges = ["1 2", "3 4", "12 34", "' S", "! \u{10a}"];
    let cases: &[(&str, &str, &[&str])] = &[
        ("gpt-2", "1234", &["1234"]),
        ("llama-bpe", "1234", &["12", "3", "4"]),
        ("qwen2", "1234", &["1", "2", "3", "4"]),
        ("gpt-2", "a'S", &["a", "'", "S"]),
        ("llama-bpe", "a'S", &["a", "'S"]),
        ("qwen2", "!\n", &["!\n"]),
        ("gpt-2", "!\n", &["!", "\n"]),
    ];
    for (pre, text, expected) in cases {
        let file =
            vocabulary(pre, &more, &merges).pair("tokenizer.ggml.add_bos_token", Val::Bool(false));
        let tokenizer = open(&file, "cuts.gguf").unwrap();
        let ids = tokenizer.encode(text).unwrap();
        let pieces: Vec<String> = ids.iter().map(|id| tokenizer.decode(&[*id])).collect();
        assert_eq!(pieces, *expected, "{pre}: {text:?}");
    }
}

#[test]
fn warns_where_a_file_does_not_say_how_to_cut() {
    let more = ["12", "34", "1234"];
    let file = vocabulary("default", &more, &["1 2", "3 4", "12 34"]);
    let said = open(&file, "pre-default.gguf").unwrap();
    assert_eq!(said.warnings(), [""; 0]);
    let silent = open(&file.without("tokenizer.ggml.pre"), "pre-missing.gguf").unwrap();
    assert_eq!(silent.warnings().len(), 1);
    assert!(
        silent.warnings()[0].starts_with("the file has no tokenizer.ggml.pre"),
        "{:?}",
        silent.warnings()
    );

    // Digits are cut by three, as GPT-2's pattern does not.
    for tokenizer in [said, silent] {
        assert_eq!(tokenizer.encode("1234").unwrap(), [256, 51, 52]);
    }
}

/// Vocabularies that were learned of texts may lack bytes, such as StarCoder's.
#[test]
fn warns_of_bytes_without_a_token() {
    let mut file = vocabulary("gpt-2", &["ab"], &["a b"]);
    for (_, value) in &mut file.pairs {
        if let Val::Strs(tokens) = value
            && tokens.len() > 2
        {
            tokens[3] = "no byte".into();
            tokens[0xc0] = "nor this".into();
        }
    }

    let tokenizer = open(&file, "bytes.gguf").unwrap();
    let warning = "the vocabulary has no token for 1 of the bytes of UTF-8, the first of which is 0x03; texts lose them, as \
                   they do in transformers";
    assert_eq!(tokenizer.warnings(), [warning]);
    assert_eq!(tokenizer.encode("a\u{3}ab").unwrap(), [97, 256]);
}

/// A token that ends a text by its spelling has no text, and stands in a prompt by name, whatever its type is.
#[test]
fn ends_of_texts_are_control_tokens() {
    let file = vocabulary("qwen2", &["<|im_end|>", "ab"], &["a b"]);
    let tokenizer = open(&file, "ends.gguf").unwrap();
    assert_eq!(tokenizer.encode("ab<|im_end|>").unwrap(), [257, 256]);
    assert_eq!(tokenizer.piece(256), b"");
}

#[test]
fn control_tokens_stand_in_text_by_name() {
    let tokenizer = open(&vocabulary("qwen2", &["ab"], &["a b"]), "control.gguf").unwrap();
    assert_eq!(tokenizer.encode("ab<end>a").unwrap(), [256, 257, 97]);
}

#[test]
fn refuses_wrong_vocabularies() {
    let good = || vocabulary("gpt-2", &["ab"], &["a b"]);
    let texts = |all: &[&str]| Val::Strs(all.iter().map(|s| s.to_string()).collect());
    let cases: &[(File, &str)] = &[
        (
            good().without("tokenizer.ggml.merges"),
            "the vocabulary has no merges (tokenizer.ggml.merges), without which a text has no tokens",
        ),
        (
            good().without("tokenizer.ggml.tokens"),
            "key \"tokenizer.ggml.tokens\" is missing; expected an array of strings",
        ),
        (
            good().pair("tokenizer.ggml.token_type", Val::I32s(vec![1])),
            "key \"tokenizer.ggml.token_type\" is an array of 1; expected an array of 258, one for each token",
        ),
        (
            good().pair("tokenizer.ggml.merges", texts(&["a b", "ab c"])),
            "merge 1 is \"ab c\"; expected two tokens whose concatenation is a token",
        ),
        (
            good()
                .pair("tokenizer.ggml.tokens", texts(&["a", "b", "a"]))
                .without("tokenizer.ggml.token_type"),
            "tokens 0 and 2 are both \"a\"",
        ),
        (
            good()
                .pair("tokenizer.ggml.tokens", texts(&["a"]))
                .without("tokenizer.ggml.token_type"),
            "the vocabulary has no token for the byte 0x20",
        ),
        (
            good().pair("tokenizer.ggml.add_eos_token", Val::Bool(true)),
            "key \"tokenizer.ggml.add_eos_token\" is true: an end-of-text token after the prompt is not supported",
        ),
        (
            good().pair("tokenizer.ggml.merges", texts(&["a \u{1b}[31mb"])),
            "merge 0 is \"a \\u{1b}[31mb\"; expected two tokens whose concatenation is a token",
        ),
        (
            good().pair("tokenizer.ggml.add_bos_token", Val::Bool(true)),
            "key \"tokenizer.ggml.bos_token_id\" is missing; expected a token below 258",
        ),
    ];
    for (file, message) in cases {
        assert_eq!(open(file, "wrong.gguf").unwrap_err(), *message);
    }
}

#[test]
fn a_cut_that_is_not_known_is_refused_with_those_that_are() {
    let file = vocabulary("whitespace", &["ab"], &["a b"]);
    let message = "tokenizer.ggml.pre is \"whitespace\"; supported: default, gpt-2, phi-2, jina-es, jina-de, jina-v2-es, \
             jina-v2-de, gigachat, a.x-4.0, mellum, modern-bert, mpt, jais, trillion, granite-docling, exaone4, olmo, \
             llama-bpe, llama3, llama-v3, falcon3, falcon-h1, pixtral, midm-2.0, lfm2, jina-v5-nano, dbrx, smaug-bpe, \
             glm4, chatglm-bpe, qwen2, deepseek-r1-qwen, kormo, f2llmv2, megrez, stablelm2, hunyuan, solar-open, \
             grok-2, qwen35, starcoder, refact, smollm, codeshell, exaone, minerva-7b, mellum2, command-r, falcon, \
             deepseek-llm, deepseek-coder, deepseek-v3, hunyuan-dense, joyai-llm, hy_v4, spark2_5, youtu, jais-2, \
             poro-chat, bloom, gpt3-finnish, viking, tekken, chameleon, gpt-4o, llama4, kanana2, talkie, minimax-m2, \
             granite-embed-multi-97m, tiny_aya, cohere2moe, kimi-k2, superbpe, bailingmoe, bailingmoe2, llada-moe, \
             seed-coder, ufakzeka, afmoe, laguna, exaone-moe, minicpm5, gemma4, granite-embed-multi-311m, sarvam-moe";
    assert_eq!(open(&file, "cut.gguf").unwrap_err(), message);
    let number = "key \"tokenizer.ggml.pre\" is an unsigned integer, 1; expected a string";
    assert_eq!(
        open(
            &file.clone().pair("tokenizer.ggml.pre", Val::U32(1)),
            "cut.gguf"
        )
        .unwrap_err(),
        number
    );
    let model = "tokenizer.ggml.model is \"rwkv\"; supported: gpt2 (byte-level BPE), llama (SentencePiece BPE), \
                 t5 (unigram), gemma4";
    let other = file.pair("tokenizer.ggml.model", Val::Str("rwkv".into()));
    assert_eq!(open(&other, "cut.gguf").unwrap_err(), model);
}
