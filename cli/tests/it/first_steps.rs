//! The first commands of a user: a prompt without an option, seeds, other programs' spellings, and tips.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::input::refused;
use crate::program::{End, MODEL, command, run};

const EMU: [&str; 2] = ["--device", "emu"];

/// Runs the program with a text on standard input.
fn piped(arguments: &[&str], text: &str) -> End {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that reads nothing has closed the pipe.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(text.as_bytes());
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn a_prompt_is_an_argument_an_option_or_a_pipe() {
    let rest = ["-n", "2", "--print", "ids", "--quiet", "--device", "emu"];
    let ids = |prompt: &[&str], input: Option<&str>| {
        let arguments = [&["run", MODEL], prompt, &rest].concat();
        let end = input.map_or_else(|| run(&arguments), |text| piped(&arguments, text));
        assert_eq!(
            (end.code, end.err.as_str()),
            (Some(0), ""),
            "{prompt:?}: {end:?}"
        );
        end.out
    };
    let wanted = ids(&["--prompt", "The borrow"], None);
    let cases: [(&[&str], Option<&str>); 6] = [
        (&["The borrow"], None),
        (&["The borrow"], Some("")),
        (&[], Some("The borrow\n")),
        (&["-"], Some("The borrow\n")),
        // An option ignores standard input.
        (&["-p", "The borrow"], Some("other")),
        (&["--file", "/dev/stdin"], Some("The borrow\r\n")),
    ];
    for (prompt, input) in cases {
        assert_eq!(ids(prompt, input), wanted, "{prompt:?}, {input:?}");
    }

    // With both, the prompt comes after the piped text.
    assert_eq!(
        ids(&["Why?"], Some("A text.\n")),
        ids(&["-p", "A text.\n\nWhy?"], None)
    );
}

#[test]
fn a_prompt_that_is_missing_is_named() {
    let none = "there is no prompt: add a text after the model, use --prompt TEXT or --prompt-file FILE, or pipe a text \
                in; `warpwright chat` starts a conversation";
    assert_eq!(run(&["run", MODEL]), refused(2, none));
    assert_eq!(run(&["run", "-m", MODEL, "-n", "3"]), refused(2, none));
    for text in ["", "\n", "\r\n"] {
        assert_eq!(piped(&["run", MODEL], text), refused(2, none), "{text:?}");
    }

    let end = run(&["run", MODEL, "-m", MODEL]);
    let two = format!(
        "there are two models: {MODEL} would be the prompt; leave one model out, or use --prompt {MODEL}"
    );
    assert_eq!(end, refused(2, &two));
    let swapped = format!("the model comes first: warpwright run {MODEL} \"The borrow\"");
    assert_eq!(run(&["run", "The borrow", MODEL]), refused(2, &swapped));
    let cases: [(&[&str], &str); 4] = [
        (
            &["run", MODEL, "a", "-p", "b"],
            "error: the argument '[PROMPT]' cannot be used with",
        ),
        (
            &["run", MODEL, "a", "-f", "b"],
            "error: the argument '[PROMPT]' cannot be used with",
        ),
        (
            &["run", MODEL, "a", "--prompt-ids", "1"],
            "error: the argument '[PROMPT]' cannot be used with",
        ),
        (
            &["run", MODEL, "two", "words"],
            "error: unexpected argument 'words' found\n\n  tip: a PROMPT of several words is one argument: put it in quotes",
        ),
    ];
    for (arguments, message) in cases {
        let end = run(arguments);
        assert!(
            end.code == Some(2) && end.err.starts_with(message),
            "{arguments:?}: {end:?}"
        );
    }
}

fn json(options: &[&str]) -> Value {
    let end = run(&[
        &["run", MODEL, "The trait", "-n", "6", "--json"],
        &EMU[..],
        options,
    ]
    .concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    serde_json::from_str(&end.out).expect("JSON")
}

#[test]
fn a_sampled_text_can_be_had_again_by_its_seed() {
    let first = json(&["--temp", "1"]);
    let seed = first["seed"].as_u64().expect("a seed").to_string();
    let again = json(&["--temp", "1", "-s", &seed]);
    assert_eq!(
        [&again["tokens"], &again["seed"]],
        [&first["tokens"], &first["seed"]]
    );
    assert_ne!(
        json(&["--temp", "1", "--seed", "-1"])["seed"],
        first["seed"]
    );

    // A greedy text has no seed.
    let greedy = json(&[]);
    assert_eq!(greedy.get("seed"), None);
    assert_eq!(greedy["sampling"]["temperature"], 0.0);
    assert_eq!(first["sampling"]["seed"], first["seed"]);

    // In words, and as lines of JSON.
    let run_it = [
        "run",
        MODEL,
        "The trait",
        "-n",
        "1",
        "--temp",
        "1",
        "--device",
        "emu",
    ];
    let end = run(&run_it);
    let line = end.err.lines().last().expect("statistics");
    let seed = line
        .strip_prefix("sampled at temperature 1; the same text again: --seed ")
        .expect("the seed");
    let lines = run(&[&run_it[..], &["--json=lines", "--seed", seed]].concat()).out;
    let last: Value =
        serde_json::from_str(lines.lines().last().expect("the object")).expect("JSON");
    assert_eq!(last["seed"].to_string(), seed);
    assert_eq!(
        end.out,
        format!("The trait{}\n", last["text"].as_str().expect("a text"))
    );
}

/// Options that cannot change a greedy text are named, and the text is the same.
#[test]
fn sampling_options_without_a_temperature_are_noted() {
    let greedy = json(&[]);
    let cases: &[(&[&str], &str, &str)] = &[
        (&["-s", "1"], "--seed has", "[\"--seed\"]"),
        (&["--seed", "-1"], "--seed has", "[\"--seed\"]"),
        (
            &["--top-k", "40", "--top-p", "0.9", "--min-p", "0.05"],
            "--top-k, --top-p, --min-p have",
            "[\"--top-k\",\"--top-p\",\"--min-p\"]",
        ),
        (
            &["--temp", "0", "--typical", "0.5"],
            "--typical-p has",
            "[\"--typical-p\"]",
        ),
    ];
    for (options, subject, unused) in cases {
        let end = run(&[
            &["run", MODEL, "The trait", "-n", "6", "--json"],
            &EMU[..],
            options,
        ]
        .concat());
        let note = format!(
            "note: {subject} no effect at temperature 0, which takes the most likely token; --temp 0.8 samples"
        );
        assert_eq!(end.code, Some(0), "{options:?}: {end:?}");
        assert!(end.err.contains(&note), "{options:?}: {end:?}");
        let found: Value = serde_json::from_str(&end.out).expect("JSON");
        assert_eq!(found["tokens"], greedy["tokens"]);
        assert_eq!(found["sampling"], greedy["sampling"]);
        assert_eq!(found["unused_options"].to_string(), *unused);
    }

    // A value out of its range is still an error.
    let end = run(&[&["run", MODEL, "a", "--top-p", "2"], &EMU[..]].concat());
    assert_eq!(end.code, Some(2), "{end:?}");
}

#[test]
fn spellings_of_llama_cpp_are_accepted() {
    let ours = json(&[
        "--ctx",
        "64",
        "--repeat-penalty",
        "1.1",
        "--penalty-window",
        "8",
        "--logit-bias",
        "5=-2",
    ]);
    let theirs = [
        "-c",
        "64",
        "--repeat-penalty",
        "1.1",
        "--repeat-last-n",
        "8",
        "-l",
        "5-2",
        "-ngl",
        "99",
        "-t",
        "4",
        "-fa",
        "on",
    ];
    let end = run(&[
        &[
            "run",
            "-m",
            MODEL,
            "The trait",
            "--n-predict",
            "6",
            "--json",
        ],
        &EMU[..],
        &theirs,
    ]
    .concat());
    let found: Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(found["tokens"], ours["tokens"]);
    let notes: Vec<&str> = end
        .err
        .lines()
        .filter_map(|line| line.split(" has no effect: ").next())
        .collect();
    assert_eq!(
        notes,
        ["note: -ngl 99", "note: -t 4", "note: -fa on"],
        "{end:?}"
    );

    // Up to the end of the context.
    let end = run(&[
        "run",
        MODEL,
        "--prompt-ids",
        "5,9",
        "-n",
        "-1",
        "-c",
        "5",
        "--json",
        "--device",
        "emu",
    ]);
    let found: Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(found["end"]["reason"], "context_full", "{found}");
}

/// What another program calls a command or an option leads to the right one, and to no other.
#[test]
fn tips_have_the_same_meaning() {
    let cases: &[(&[&str], &str)] = &[
        (&["server"], "use 'warpwright serve'"),
        (&["generate"], "use 'warpwright run'"),
        (&["train"], "use 'warpwright finetune'"),
        (&["quantize"], "Warpwright does not convert models: "),
        (&["chta"], "a similar command exists: 'chat'"),
        (&["Tokenise"], "a similar command exists: 'tokenize'"),
        (
            &["assets/rustdoc-7m-Q4_K_M.gguf"],
            "a command comes first: 'warpwright run assets/rustdoc-7m-Q4_K_M.gguf' or ",
        ),
        (
            &["-m", MODEL, "-p", "x"],
            "a command comes first, such as 'warpwright run' or 'warpwright chat'",
        ),
        (&["-hf", "a/b"], "a command comes first, such as"),
        (
            &["run", MODEL, "x", "--max-tokens", "3"],
            "use '--n-predict'",
        ),
        (&["run", MODEL, "x", "--top_k=3"], "use '--top-k'"),
        (
            &["run", MODEL, "x", "--temprature", "1"],
            "a similar option exists: '--temperature'",
        ),
        (
            &["run", MODEL, "x", "--mirostat", "2"],
            "this sampler does not exist here; ",
        ),
        (
            &["run", MODEL, "x", "-cnv"],
            "'warpwright chat' has a conversation",
        ),
        (
            &["run", MODEL, "x", "--rank", "3"],
            "'--rank' is an option of 'warpwright finetune'",
        ),
        (
            &["finetune", MODEL, "--num-train-epochs", "3"],
            "use '--epochs'",
        ),
        (&["finetune", MODEL, "--lora-r", "3"], "use '--rank'"),
        (&["merge", MODEL, "a", "--outfile", "b"], "use '--out'"),
        (&["run", MODEL, "-hx"], ""),
        (&["sing"], ""),
        (&["run", MODEL, "x", "--lroa", "y"], ""),
        (&["merge", MODEL, "--frobnicate"], ""),
    ];
    for (arguments, tip) in cases {
        let end = run(arguments);
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(2), ""),
            "{arguments:?}: {end:?}"
        );
        let found = end
            .err
            .lines()
            .find_map(|line| line.strip_prefix("  tip: "))
            .unwrap_or_default();
        assert!(
            found.starts_with(tip) && found.is_empty() == tip.is_empty(),
            "{arguments:?}: {}",
            end.err
        );
        assert_eq!(
            end.err.matches("tip:").count(),
            usize::from(!tip.is_empty()),
            "{}",
            end.err
        );
    }
}
