//! `-m MODEL` in every command that takes a model.

use crate::program::{MODEL, run};

/// Each pair of command lines means the same.
#[test]
fn the_option_replaces_the_first_argument() {
    let option = format!("--model={MODEL}");
    let attached = format!("-m{MODEL}");
    let cases: [(&[&str], &[&str]); 9] = [
        (&["tokenize", MODEL, "hi"], &["tokenize", "-m", MODEL, "hi"]),
        (&["tokenize", MODEL, "hi"], &["tokenize", "hi", &attached]),
        (
            &["tokenize", MODEL, "--", "-m"],
            &["tokenize", &option, "--", "-m"],
        ),
        (
            &["detokenize", MODEL, "72", "73"],
            &["detokenize", "72", "-m", MODEL, "73"],
        ),
        (
            &["info", MODEL, "--device", "emu"],
            &["info", "--device", "emu", "-m", MODEL],
        ),
        (
            &["merge", MODEL, "x", "--out", "y"],
            &["merge", "-m", MODEL, "x", "--out", "y"],
        ),
        (
            &["finetune", MODEL, "--data", "x", "--out", "y"],
            &["finetune", "--data", "x", "--out", "y", "-m", MODEL],
        ),
        (
            &["bench", MODEL, "--ctx", "1,4096"],
            &["bench", "-m", MODEL, "--ctx", "1,4096"],
        ),
        (
            &["perplexity", MODEL, "no-such"],
            &["perplexity", "no-such", "--model", MODEL],
        ),
    ];
    for (first, option) in cases {
        let (first, with_option) = (run(first), run(option));
        assert_eq!(with_option, first, "{option:?}");
        assert!(!first.err.contains("Usage"), "{first:?}");
    }
}

/// A value that looks like the option, and an option without a value.
#[test]
fn only_the_option_is_the_option() {
    let end = run(&["tokenize", MODEL, "--ids", "--", "-m"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (Some(0), "0,13,77\n"),
        "{end:?}"
    );
    let cases: &[(&[&str], &str)] = &[
        (
            &["tokenize", "-m"],
            "error: a value is required for '--model <MODEL>' but none was supplied",
        ),
        (
            &["tokenize", "-m", MODEL, "a", "b"],
            "error: unexpected argument 'b' found",
        ),
        (
            &["info", "-m", MODEL, MODEL],
            "error: unexpected argument 'assets",
        ),
        (
            &["info", "-m", "a", "-m", "b"],
            "error: the argument '--model <MODEL>' cannot be used multiple times",
        ),
        (
            &["detokenize", "-m", MODEL],
            "error: the following required arguments were not provided:\n  <IDS>...",
        ),
        (
            &["merge", "-m", MODEL, "--out", "x"],
            "error: the following required arguments were not provided:\n  <ADAPTER>",
        ),
        (
            &["info"],
            "error: the following required arguments were not provided:\n  <MODEL>",
        ),
        (
            &["info", "--positional-model", MODEL],
            "error: unexpected argument '--positional-model' found",
        ),
        (
            &["check", "-m", MODEL],
            "error: unexpected argument '-m' found",
        ),
    ];
    for (arguments, message) in cases {
        let end = run(arguments);
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(2), ""),
            "{arguments:?}: {end:?}"
        );
        assert!(end.err.starts_with(message), "{arguments:?}: {}", end.err);
    }
}
