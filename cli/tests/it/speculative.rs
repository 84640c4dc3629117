//! `--lookup` and `--draft`: the same texts, and what is said of guesses.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::input::refused;
use crate::program::{MODEL, command, run};

const RUN: [&str; 8] = [
    "run",
    MODEL,
    "--device",
    "emu",
    "-n",
    "7",
    "-p",
    "let a = 1;\nlet a = 1;\nlet",
];
/// The same weights before they were quantized.
const DRAFT: &str = "tests/data/rustdoc-7m-F16.gguf";

fn json(options: &[&str]) -> Value {
    let end = run(&[&RUN[..], options, &["--json"]].concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    serde_json::from_str(&end.out).expect("JSON")
}

#[test]
fn texts_are_the_same_with_guesses() {
    let plain = json(&[]);
    assert!(plain.get("speculative").is_none());
    for guesses in [
        &["--lookup"][..],
        &["--draft", DRAFT, "--draft-max", "1", "--draft-always"],
    ] {
        let found = json(guesses);
        assert_eq!(
            [&found["text"], &found["end"]],
            [&plain["text"], &plain["end"]],
            "{guesses:?}"
        );
        let figures = &found["speculative"];
        let number = |key: &str| figures[key].as_u64().expect("a number");
        assert!(
            number("accepted") > 0 && number("drafted") >= number("accepted"),
            "{figures}"
        );
        assert!(number("tokens") == 7, "{figures}");
    }
}

/// Sampled, and with a stop string that ends the text within guesses.
#[test]
fn sampled_texts_are_the_same_with_guesses_and_end_at_a_stop_string() {
    let sampled = ["--temp", "0.9", "--seed", "3", "--stop", "0_"];
    let plain = json(&sampled);
    let found = json(&[&sampled[..], &["--draft", MODEL, "--draft-always"]].concat());
    assert_eq!(
        plain["end"],
        serde_json::json!({ "reason": "stop_string", "string": "0_" }),
        "{plain}"
    );
    assert_eq!(
        [&found["text"], &found["end"], &found["tokens"]],
        [&plain["text"], &plain["end"], &plain["tokens"]]
    );
    let figures = &found["speculative"];
    assert!(figures["accepted"].as_u64() > Some(0), "{figures}");
}

/// A draft model that is as large as the model, and a text without repetitions.
#[test]
fn the_reason_for_no_guesses_is_named() {
    let quiet = json(&["--draft", DRAFT]);
    let reason = quiet["speculative"]["no_guesses"]
        .as_str()
        .expect("a reason");
    assert!(reason.ends_with(
        " % of the bytes of one of the model, too many to be faster; --draft-always guesses anyway"
    ));
    let end = run(&[
        "run",
        MODEL,
        "--device",
        "emu",
        "-n",
        "2",
        "--lookup",
        "--prompt-ids",
        "5,9",
    ]);
    assert!(
        end.err
            .contains(", no guesses: the latest tokens had not occurred before, limit of -n"),
        "{end:?}"
    );
}

#[test]
fn a_conversation_goes_on_with_guesses() {
    let said = |options: &[&str]| {
        let chat = [
            "chat", MODEL, "--device", "emu", "--temp", "0", "--ctx", "64", "-n", "6",
        ];
        let template = ["--chat-template", "cli/tests/it/brief.jinja"];
        let mut child = command(&[&chat[..], &template, options].concat())
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = b"one two one two one two one\nTraits\n";
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(lines)
            .expect("it reads");
        let end: crate::program::End = child.wait_with_output().expect("it ends").into();
        assert_eq!(end.code, Some(0), "{end:?}");
        end.out
    };
    assert_eq!(said(&["--lookup=2", "--draft-always"]), said(&[]));
}

#[test]
fn guesses_that_cannot_be_made_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let other = folder.path().join("other.gguf");
    let mut bytes = fs::read(format!("../{MODEL}")).expect("the model");
    let at = bytes
        .windows(13)
        .position(|window| window == b"<|endoftext|>")
        .expect("a control token");
    bytes[at + 10] = b'u';
    fs::write(&other, bytes).expect("a file");
    let other = other.to_str().expect("UTF-8");
    let vocabulary = format!(
        "{other}: the draft model has another vocabulary, in which token 0 is the control token \"<|endoftexu|>\" and not the \
         control token \"<|endoftext|>\": use a draft model of the same family"
    );
    let one_by_one = "--regex cannot be combined with guesses, because a grammar chooses one token at a time: leave out --lookup and --draft";
    let cases: [(&[&str], &str); 4] = [
        (&["--lookup", "--regex", "[a-z]+"], one_by_one),
        (&["--draft", other], &vocabulary),
        (
            &["--draft-max", "3"],
            "--draft-max has no guesses to apply to: add --lookup or --draft MODEL",
        ),
        (
            &["--draft-always"],
            "--draft-always has no guesses to apply to: add --lookup or --draft MODEL",
        ),
    ];
    for (options, sentence) in cases {
        assert_eq!(
            run(&[&RUN[..], options].concat()),
            refused(2, sentence),
            "{options:?}"
        );
    }

    for options in [
        &["--lookup=0"][..],
        &["--lookup", "--draft-max", "8"],
        &["--lookup", "--draft", DRAFT],
    ] {
        let end = run(&[&RUN[..], options].concat());
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(2), ""),
            "{options:?}: {end:?}"
        );
    }
}
