//! Where a prompt may come from, and what is said of how a text ended.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::program::{End, MODEL, command, run};

const RUN: [&str; 6] = ["run", MODEL, "--device", "emu", "-n", "1"];

fn prompted(arguments: &[&str], input: &[u8]) -> End {
    let mut command = command(&[&RUN, arguments].concat());
    let mut child = command
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

#[test]
fn a_prompt_is_the_same_from_everywhere() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("prompt");
    fs::write(&file, "The borrow checker\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let ends = [
        prompted(&["--prompt", "The borrow checker"], b""),
        prompted(&["--prompt", "-"], b"The borrow checker\n"),
        prompted(&["--prompt-file", file], b""),
        prompted(&["--prompt-file", "-"], b"The borrow checker\r\n"),
    ];
    for end in ends {
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(0), "The borrow checker uses\n"),
            "{end:?}"
        );
    }

    let end = prompted(
        &[
            "--prompt-ids",
            "0, 389 ,1166, 882,261",
            "--print",
            "ids",
            "--quiet",
        ],
        b"",
    );
    assert_eq!((end.code, end.out.as_str()), (Some(0), "1680\n"), "{end:?}");
}

#[test]
fn a_prompt_may_begin_with_a_dash() {
    for prompt in ["-x", "--help", "-- "] {
        let end = run(&[&RUN[..], &["--prompt", prompt]].concat());
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(end.out.starts_with(prompt), "{end:?}");
    }
}

#[test]
fn a_prompt_that_cannot_be_read_is_named() {
    let cases: [(&[&str], &[u8], &str); 2] = [
        (
            &["--prompt-file", "no-such-file"],
            b"",
            "cannot read the prompt from no-such-file: No such file or directory (os error 2)",
        ),
        (
            &["--prompt", "-"],
            b"a\xff",
            "cannot read the prompt from standard input: it is not valid UTF-8 at byte 1",
        ),
    ];
    for (arguments, input, sentence) in cases {
        let end = prompted(arguments, input);
        assert_eq!(
            (end.code, end.err),
            (Some(2), format!("error: {sentence}\n")),
            "{arguments:?}"
        );
    }
}

#[test]
fn the_closing_line_says_why_a_text_ended() {
    let cases: [(&[&str], &str); 2] = [
        (&["--prompt-ids", "0,389,1166", "-n", "2"], "limit of -n"),
        (
            &["--prompt-ids", "0,389,1166", "-n", "9", "--ctx", "4"],
            "context full",
        ),
    ];
    for (arguments, why) in cases {
        let end = run(&[
            &["run", MODEL, "--device", "emu", "--print", "ids"],
            arguments,
        ]
        .concat());
        let said = end.err.lines().next().unwrap_or_default();
        assert!(said.starts_with("2 tokens, "), "{end:?}");
        assert!(
            said.ends_with(&format!(", {why}, Warpwright CPU emulator")),
            "{end:?}"
        );
    }
}

#[test]
fn what_is_no_model_says_what_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let escape = folder.path().join("\u{1b}[31mred");
    fs::write(&escape, "no model").expect("a file");
    for file in [folder.path(), &escape] {
        let end = run(&["info", file.to_str().expect("UTF-8")]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(!end.err.contains('\u{1b}'), "{end:?}");
    }
}

#[test]
fn what_the_emulator_cannot_end_is_refused() {
    let bench = [
        "bench",
        "--shape",
        "llama3.1-8b",
        "--quant",
        "q4_k_m",
        "--device",
        "emu",
        "--ctx",
        "128",
    ];
    let end = run(&bench);
    assert_eq!((end.code, end.out.as_str()), (Some(2), ""));
    assert!(
        end.err.starts_with("error: the emulator would need "),
        "{end:?}"
    );
    let advice =
        "; use a GPU (--device cuda:0), a smaller model or fewer tokens, or insist with --insist\n";
    assert!(end.err.ends_with(advice), "{end:?}");
}
