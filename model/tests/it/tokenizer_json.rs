//! Odd files `tokenizer.json`: what is read gives what the Python package `tokenizers` 0.23.3 gives, the rest is named.

use serde_json::{Value, json};
use warpwright_model::Tokenizer;

const SPACE: &str = "\u{2581}";

/// A file with this model and these parts.
fn file(
    model: Value,
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    control: &[(&str, usize)],
) -> Value {
    let added: Vec<Value> = control
        .iter()
        .map(|(content, id)| added(*id, content, &[("special", true)]))
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model,
    })
}

fn added(id: usize, content: &str, flags: &[(&str, bool)]) -> Value {
    let mut token = json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": false,
    });
    for (flag, value) in flags {
        token[flag] = (*value).into();
    }
    token
}

/// A BPE model: tokens, and merges with what they make behind them.
fn bpe(mut tokens: Vec<String>, merges: &[(&str, &str)], unknown: Option<&str>) -> Value {
    for (a, b) in merges {
        tokens.push(format!("{a}{b}"));
    }
    let table: serde_json::Map<String, Value> = (0..)
        .zip(tokens)
        .map(|(id, token)| (token, Value::from(id)))
        .collect();
    json!({
        "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": unknown.is_some(), "byte_fallback": unknown.is_some(),
        "ignore_merges": false, "vocab": table, "merges": merges,
    })
}

fn byte_level(regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex})
}

/// 266 tokens and `<s>`: 256 is `he`, 259 `hello`, 261 `or`, 262 ` wor`.
fn bytes() -> Value {
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        ("Ġ", "w"),
        ("o", "r"),
        ("Ġw", "or"),
        ("Ġ", "Ġ"),
        ("1", "2"),
        ("Ã", "©"),
    ];
    let model = bpe(crate::tokenizer::letters(), &merges, None);
    file(
        model,
        Value::Null,
        byte_level(true),
        byte_level(true),
        &[("<s>", 266)],
    )
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

/// 290 tokens: three control tokens, the bytes, 259 is a space, 260 `h`, 288 ` hello`.
fn spaces() -> Value {
    let control = ["<unk>", "<s>", "</s>"];
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let letters = format!("{SPACE}helowrdabc123é.,!?'");
    let tokens = control
        .map(String::from)
        .into_iter()
        .chain(bytes)
        .chain(letters.chars().map(String::from));
    let double = format!("{SPACE}{SPACE}");
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        (SPACE, "w"),
        ("o", "r"),
        ("▁w", "or"),
        (SPACE, SPACE),
        (&double, SPACE),
        (SPACE, "hello"),
        ("a", SPACE),
    ];
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": SPACE}, replace(json!({"String": " "}), SPACE)]});
    let model = bpe(tokens.collect(), &merges, Some("<unk>"));
    let decoder = json!({"type": "Sequence", "decoders": chain(&["Replace", "ByteFallback", "Fuse", "Strip"])});
    file(
        model,
        normalizer,
        Value::Null,
        decoder,
        &[("<unk>", 0), ("<s>", 1), ("</s>", 2)],
    )
}

/// Steps of a decoder.
fn chain(kinds: &[&str]) -> Vec<Value> {
    let step = |kind: &&str| match *kind {
        "Replace" => replace(json!({"String": SPACE}), " "),
        "Strip" => json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        "Metaspace" => metaspace("always"),
        kind => json!({ "type": kind }),
    };
    kinds.iter().map(step).collect()
}

fn metaspace(scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": true})
}

/// 28 tokens: three control tokens, 3 is a space, 4 ` hello`, 5 `hello`.
fn unigram() -> Value {
    let words = [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("</s>", 0.0),
        (SPACE, -3.0),
        ("▁hello", -4.0),
        ("hello", -4.5),
        ("▁wor", -4.0),
        ("ld", -4.2),
        ("▁▁", -5.0),
    ];
    let letters = "helowrdabc123é.,!?'"
        .chars()
        .map(|letter| json!([letter.to_string(), -8.0]));
    let vocab: Vec<Value> = words
        .iter()
        .map(|word| json!(word))
        .chain(letters)
        .collect();
    let model = json!({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false});
    let control = [("<unk>", 0), ("<s>", 1), ("</s>", 2)];
    file(
        model,
        Value::Null,
        metaspace("always"),
        metaspace("always"),
        &control,
    )
}

/// A change to a file: what stands at a place, or in front of `/-` what is added to a list.
type Change = (&'static str, Value);

fn changed(mut file: Value, changes: &[Change]) -> Value {
    for (place, value) in changes {
        match place.strip_suffix("/-") {
            Some(list) => file
                .pointer_mut(list)
                .unwrap()
                .as_array_mut()
                .unwrap()
                .push(value.clone()),
            None => {
                let (object, key) = place.rsplit_once('/').unwrap();
                let object = file.pointer_mut(object).unwrap();
                match (object.as_array().is_some(), key.parse::<usize>()) {
                    (true, Ok(index)) => object[index] = value.clone(),
                    _ => object[key] = value.clone(),
                }
            }
        }
    }
    file
}

fn open(text: &str) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
    Tokenizer::open(folder.path()).map_err(|error| {
        error
            .to_string()
            .split_once("tokenizer.json: ")
            .expect("the file's name")
            .1
            .to_owned()
    })
}

fn pre(steps: &[Value]) -> Change {
    let steps = [steps, &[byte_level(false)]].concat();
    (
        "/pre_tokenizer",
        json!({"type": "Sequence", "pretokenizers": steps}),
    )
}

fn split(pattern: Value, behavior: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert})
}

/// A file, a text, its tokens, and the text of these.
type Case = (
    Value,
    Vec<Change>,
    &'static str,
    &'static [u32],
    &'static str,
);

fn byte_cases() -> Vec<Case> {
    let merges = bytes()["model"]["merges"].clone();
    let lines = merges
        .as_array()
        .unwrap()
        .iter()
        .map(|merge| format!("{} {}", text(&merge[0]), text(&merge[1])));
    let lines: Vec<String> = ["#version: 0.2".to_owned()]
        .into_iter()
        .chain(lines)
        .collect();
    let digits = json!({"type": "Digits", "individual_digits": true});
    let odd = json!({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFD"},
        {"type": "StripAccents"}, replace(json!({"Regex": "l+"}), "l")]});
    let short =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    let fused = json!({"type": "Sequence", "decoders": [byte_level(true), {"type": "Fuse"}]});
    let nulls = vec![
        ("/model/fuse_unk", Value::Null),
        ("/model/byte_fallback", Value::Null),
    ];
    let word = added(261, "or", &[("single_word", true)]);
    let turned = split(json!({"String": "l"}), "Removed", true);
    let hello: &[u32] = &[259, 262, 108, 100];
    vec![
        (bytes(), vec![], "hello world", hello, "hello world"),
        (
            bytes(),
            vec![("/truncation", short)],
            "hello world",
            hello,
            "hello world",
        ),
        (
            bytes(),
            vec![("/model/merges", json!(lines))],
            "hello world",
            hello,
            "hello world",
        ),
        (bytes(), nulls, "é", &[265], "é"),
        (
            bytes(),
            vec![("/added_tokens/-", word)],
            "or wor or",
            &[261, 262, 32, 261],
            "or wor or",
        ),
        (
            bytes(),
            vec![("/normalizer", odd)],
            "HÉLLO",
            &[256, 108, 111],
            "helo",
        ),
        (
            bytes(),
            vec![pre(&[digits])],
            "12 12",
            &[49, 50, 32, 49, 50],
            "12 12",
        ),
        (bytes(), vec![pre(&[turned])], "hello", &[108, 108], "ll"),
        (bytes(), vec![("/decoder", fused)], "é!", &[265, 33], "é!"),
    ]
}

fn space_cases() -> Vec<Case> {
    let x = |flags: &[(&str, bool)]| vec![("/added_tokens/-", added(290, "<x>", flags))];
    let decoders = json!(chain(&["ByteFallback", "Fuse", "Replace", "Strip"]));
    let four = vec![("/added_tokens/-", added(290, "▁▁▁▁", &[]))];
    let newline = vec![("/added_tokens/-", added(13, "<0x0A>", &[]))];
    let (normal, strips) = (
        x(&[("normalized", true)]),
        x(&[("lstrip", true), ("rstrip", true)]),
    );
    vec![
        (
            spaces(),
            vec![],
            "hello world",
            &[288, 285, 262, 266],
            "hello world",
        ),
        (
            spaces(),
            normal,
            "a <x> b",
            &[259, 267, 290, 259, 268],
            "a <x> b",
        ),
        (
            spaces(),
            strips,
            "a <x>  b",
            &[259, 267, 290, 259, 268],
            "a<x> b",
        ),
        (
            spaces(),
            four,
            "a▁▁▁▁b",
            &[259, 267, 290, 259, 268],
            "a     b",
        ),
        (spaces(), newline, "h\nh", &[259, 260, 13, 260], "h\nh"),
        (
            spaces(),
            vec![("/model/byte_fallback", json!(false))],
            "hxQh",
            &[259, 260, 0, 260],
            "hh",
        ),
        (
            spaces(),
            vec![("/decoder/decoders/3/start", json!(0))],
            "hello",
            &[288],
            " hello",
        ),
        (
            spaces(),
            vec![("/decoder/decoders", decoders)],
            "hello ñ",
            &[288, 259, 198, 180],
            "hello ñ",
        ),
    ]
}

fn unigram_cases() -> Vec<Case> {
    let never = vec![
        ("/pre_tokenizer", metaspace("never")),
        ("/decoder", metaspace("never")),
    ];
    vec![
        (
            unigram(),
            vec![],
            "hello  world",
            &[4, 3, 6, 7],
            "hello  world",
        ),
        (
            unigram(),
            vec![("/added_tokens/-", added(28, "  ", &[]))],
            "  hello",
            &[28, 4],
            "   hello",
        ),
        (unigram(), never, "hello world", &[5, 6, 7], "hello world"),
    ]
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// Ids and texts were recorded: `Tokenizer.from_str(file)`, `encode(text).ids`, `decode(ids)`.
#[test]
fn texts_have_the_tokens_of_the_python_package() {
    for (base, changes, text, ids, decoded) in
        [byte_cases(), space_cases(), unigram_cases()].concat()
    {
        let tokenizer = open(&changed(base, &changes).to_string()).unwrap();
        assert_eq!(tokenizer.warnings(), [""; 0], "{changes:?}");
        let found = tokenizer.encode(text).unwrap();
        assert_eq!(
            (&*found, tokenizer.decode(ids).as_str()),
            (ids, decoded),
            "{changes:?}"
        );
        let mut stream = tokenizer.stream();
        let streamed: String =
            ids.iter().map(|id| stream.push(*id)).collect::<String>() + &stream.finish();
        assert!(
            [decoded.to_owned(), format!(" {decoded}")].contains(&streamed),
            "{changes:?}: {streamed}"
        );
    }
}

/// A file, a change to it, and how the refusal begins.
type Refusal = (Value, Change, String);

fn refused_decoders() -> Vec<Refusal> {
    let steps = |kinds: &[&str]| ("/decoder/decoders", json!(chain(kinds)));
    let place = |kind: &str| {
        format!(
            "the decoder has a step of the type \"{kind}\" where it stands; supported: ByteLevel, "
        )
    };
    let stripped = json!({"type": "Sequence", "decoders": [byte_level(true), {"type": "Strip"}]});
    vec![
        (
            spaces(),
            steps(&["Replace", "ByteFallback", "Strip", "Fuse"]),
            place("Strip"),
        ),
        (
            spaces(),
            steps(&["ByteFallback", "Fuse", "Strip", "Replace"]),
            place("Strip"),
        ),
        (
            spaces(),
            steps(&["Fuse", "Replace", "ByteFallback"]),
            place("ByteFallback"),
        ),
        (
            spaces(),
            steps(&["Metaspace", "Fuse", "Strip"]),
            place("Strip"),
        ),
        (
            spaces(),
            ("/decoder/decoders/3/start", json!(2)),
            place("Strip"),
        ),
        (
            unigram(),
            ("/decoder/replacement", json!("_")),
            place("Metaspace"),
        ),
        (bytes(), ("/decoder", stripped), place("Strip")),
        (
            bytes(),
            ("/decoder", Value::Null),
            "the decoder is missing; supported: ".into(),
        ),
    ]
}

fn refused_steps() -> Vec<Refusal> {
    let regex = |text: &str| pre(&[split(json!({ "Regex": text }), "Isolated", false)]);
    let case = |change, message: &str| (bytes(), change, message.to_owned());
    let prepend = json!({"type": "Prepend", "prepend": ""});
    let fixed = json!({"type": "FixedLength", "length": 0});
    let nothing = ("/normalizer", replace(json!({"Regex": "x*"}), "a"));
    vec![
        case(
            ("/normalizer", json!({"type": "Frob"})),
            "normalizer has the type \"Frob\", which is none of the tokenizer library's",
        ),
        case(
            nothing,
            "normalizer: pattern of Replace also matches where there is nothing",
        ),
        case(
            ("/normalizer", prepend),
            "normalizer: prepend of Prepend is empty; leave the step out",
        ),
        case(
            pre(&[fixed]),
            "pre_tokenizer: length of FixedLength is 0; expected 1 or more",
        ),
        case(
            regex("l$"),
            "pre_tokenizer: pattern of Split \"l$\" has ^ or $, which",
        ),
        case(
            regex("\\p{N}{1,3}+"),
            "pre_tokenizer: pattern of Split \"\\\\p{N}{1,3}+\" has {n}?",
        ),
    ]
}

fn refused_templates() -> Vec<Refusal> {
    let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let text = || json!({"Sequence": {"id": "A", "type_id": 0}});
    let case = |single: &[Value], id: u32, message: &str| {
        let tokens = json!({"<s>": {"id": "<s>", "ids": [id], "tokens": ["<s>"]}});
        let template = json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens});
        let message = format!("post_processor: single of TemplateProcessing {message}");
        (bytes(), ("/post_processor", template), message)
    };
    vec![
        case(
            &[token("<x>"), text()],
            266,
            "names \"<x>\", of which special_tokens has no ids",
        ),
        case(
            &[token("<s>"), text()],
            267,
            "names \"<s>\", which is 267; expected a token below 267",
        ),
        case(&[text(), text()], 266, "has not the text, $A, once"),
    ]
}

fn refused_models() -> Vec<Refusal> {
    let case = |change, message: &str| (bytes(), change, message.to_owned());
    vec![
        case(
            ("/model/continuing_subword_prefix", json!("##")),
            "model.continuing_subword_prefix is \"##\", which is not supported",
        ),
        case(
            ("/model/merges", json!([])),
            "the vocabulary has no merges (model.merges), without which",
        ),
        case(
            ("/added_tokens/-", added(266, "<s>", &[])),
            "added token \"<s>\" stands twice, with different settings",
        ),
        case(
            ("/added_tokens/-", added(270, "<x>", &[])),
            "added token \"<x>\" does not get its number, 270",
        ),
    ]
}

#[test]
fn what_would_be_read_wrong_is_named() {
    let all = [
        refused_decoders(),
        refused_steps(),
        refused_templates(),
        refused_models(),
    ];
    for (base, change, message) in all.concat() {
        let refused = open(&changed(base, std::slice::from_ref(&change)).to_string()).unwrap_err();
        assert!(refused.starts_with(&message), "{change:?}: {refused}");
    }

    let twice = bytes()
        .to_string()
        .replace("\"vocab\":{", "\"vocab\":{\"h\":3,");
    assert_eq!(
        open(&twice).unwrap_err(),
        "it has the key \"h\" twice in one object"
    );
    let spare = changed(bytes(), &[("/decoder/more", json!(1))]);
    let warnings = open(&spare.to_string()).unwrap().warnings().to_vec();
    assert_eq!(
        warnings,
        ["the key more of ByteLevel (decoder) is not known, and left out"]
    );
}

/// What ends texts by its spelling, though the file says that it may stand in any; and an entry of a unigram model.
#[test]
fn a_literal_text_has_no_control_token() {
    let marked = changed(
        bytes(),
        &[("/added_tokens/-", added(267, "<|im_end|>", &[]))],
    );
    let text = "a<|im_end|><s>";
    let tokenizer = open(&marked.to_string()).unwrap();
    assert_eq!(tokenizer.encode(text).unwrap(), [97, 267, 266]);
    let tokenizer = tokenizer.literal();
    let ids = tokenizer.encode(text).unwrap();
    assert_eq!(
        (
            ids.iter().any(|id| *id > 265),
            tokenizer.decode(&ids).as_str()
        ),
        (false, text)
    );
    let tokenizer = open(&unigram().to_string()).unwrap();
    assert_eq!(tokenizer.encode("a<s>b").unwrap(), [3, 16, 1, 3, 17]);
    let tokenizer = tokenizer.literal();
    let ids = tokenizer.encode("a<s>b'hello").unwrap();
    assert_eq!(
        (ids.contains(&1), tokenizer.decode(&ids).as_str()),
        (false, "ab'hello")
    );
}
