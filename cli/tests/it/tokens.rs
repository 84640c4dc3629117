//! `tokenize` and `detokenize`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::input::refused;
use crate::program::{End, MODEL, command, run};

fn with_input(arguments: &[&str], input: &[u8]) -> End {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input)
        .expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

fn done(out: &str) -> End {
    End {
        code: Some(0),
        out: out.to_owned(),
        err: String::new(),
    }
}

#[test]
fn a_text_becomes_tokens_and_a_text_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("text");
    fs::write(&file, "The borrow checker\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let ids = "0,389,1166,882,261";
    let lines = "0\t<|endoftext|>\n389\t\"The\"\n1166\t\" borrow\"\n882\t\" check\"\n261\t\"er\"\n";
    let json =
        "{\"ids\":[0,389,1166,882,261],\"pieces\":[\"\",\"The\",\" borrow\",\" check\",\"er\"]}\n";
    let text = "The borrow checker";
    assert_eq!(run(&["tokenize", MODEL, text]), done(lines));
    assert_eq!(
        run(&["tokenize", MODEL, text, "--ids"]),
        done(&format!("{ids}\n"))
    );
    assert_eq!(
        run(&["tokenize", MODEL, "--file", file, "--ids", "--no-bos"]),
        done("389,1166,882,261\n")
    );
    assert_eq!(
        with_input(&["tokenize", MODEL, "-", "--json"], b"The borrow checker\n"),
        done(json)
    );
    assert_eq!(
        run(&["detokenize", MODEL, ids]),
        done("The borrow checker\n")
    );
    assert_eq!(
        run(&["detokenize", MODEL, "389", "1166", "882,261"]),
        done("The borrow checker\n")
    );
    assert_eq!(
        with_input(&["detokenize", MODEL, "-"], b"389 1166\n882,261\n"),
        done("The borrow checker\n")
    );
}

/// A control token that a text names is one, unless the text is taken literally.
#[test]
fn typed_tokens_are_text_if_asked() {
    let text = "<|endoftext|>a";
    assert_eq!(
        run(&["tokenize", MODEL, text, "--ids", "--no-bos"]),
        done("65\n")
    );
    let end = run(&["tokenize", MODEL, text, "--ids", "--no-special", "--no-bos"]);
    assert_eq!(end.code, Some(0));
    assert!(!end.out.split([',', '\n']).any(|id| id == "0"), "{end:?}");
    assert_eq!(
        run(&["detokenize", MODEL, end.out.trim()]),
        done("<|endoftext|>a\n")
    );

    // A part of a character.
    let end = run(&["tokenize", MODEL, "--no-bos", "\u{1f980}"]);
    assert!(end.out.contains("\"\\xf0"), "{end:?}");
}

#[test]
fn what_cannot_be_used_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (
            &["detokenize", MODEL, "1", "4096"],
            "token 1 is 4096; the vocabulary ends before 4096",
        ),
        (
            &["detokenize", MODEL, "1,x"],
            "\"x\" is not a token id: expected a whole number, as in 1,5,9",
        ),
        (
            &["tokenize", "LICENSE-MIT", "a"],
            "LICENSE-MIT: not a GGUF file: it starts with [4d, 49, 54, 20], not with \"GGUF\"",
        ),
        (
            &["tokenize", MODEL, "--file", "no-such-file"],
            "cannot read the text from no-such-file: No such file or directory (os error 2)",
        ),
    ];
    for (arguments, sentence) in cases {
        assert_eq!(run(arguments), refused(2, sentence), "{arguments:?}");
    }

    let end = with_input(&["tokenize", MODEL, "-"], b"a\xff");
    assert_eq!(
        end,
        refused(
            2,
            "cannot read the text from standard input: it is not valid UTF-8 at byte 1"
        )
    );
}
