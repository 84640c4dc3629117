//! Help, and what is said to wrong arguments.

use crate::program::{MODEL, run};

#[test]
fn every_command_explains_itself() {
    let commands = [
        "run",
        "chat",
        "serve",
        "logits",
        "perplexity",
        "embed",
        "finetune",
        "merge",
        "info",
        "check",
        "emu",
        "bench",
        "devices",
        "doctor",
        "completions",
        "graph",
        "pull",
        "models",
    ];
    for command in commands {
        let end = run(&[command, "--help"]);
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{command}");
        assert!(
            end.out.contains(&format!("Usage: warpwright {command}")),
            "{}",
            end.out
        );
    }

    let end = run(&["--help"]);
    assert!(
        end.out.contains("Exit codes:\n  0    success\n"),
        "{}",
        end.out
    );
}

#[test]
fn wrong_arguments_are_named() {
    let cases: &[(&[&str], &str)] = &[
        (&["sing"], "error: unrecognized subcommand 'sing'"),
        (
            &["run"],
            "error: the following required arguments were not provided:\n  <MODEL>",
        ),
        (
            &[
                "run",
                MODEL,
                "--chat",
                "-p",
                "x",
                "--chat-template-kwargs",
                r#"{"messages": []}"#,
            ],
            "error: invalid value '{\"messages\": []}' for '--chat-template-kwargs <JSON>': messages is the conversation \
             itself: use --prompt and --system instead",
        ),
        (
            &[
                "run",
                MODEL,
                "--chat",
                "-p",
                "x",
                "--chat-template-kwargs",
                r#"{"a": 1, "a": 2}"#,
            ],
            "error: invalid value '{\"a\": 1, \"a\": 2}' for '--chat-template-kwargs <JSON>': it ",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--prompt-ids", "1"],
            "error: the argument '--prompt <TEXT>' cannot be used with",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--device", "gpu"],
            "error: invalid value 'gpu' for '--device <DEVICE>': use auto, cuda:N or emu",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--launch", "later"],
            "error: invalid value 'later' for '--launch <LAUNCH>'",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--temp", "hot"],
            "error: invalid value 'hot' for '--temperature <T>': invalid float literal",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--temp", "-1"],
            "error: the temperature is -1, but must be 0 (greedy) or from 0.01 to 100\n",
        ),
        (
            &[
                "run", MODEL, "--prompt", "x", "--temp", "1", "--min-p", "-0.1",
            ],
            "error: the sampling option min_p is -0.1, but must be from 0 to 1\n",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--top-k", "-1"],
            "error: invalid value '-1' for '--top-k <K>': -1 is not in 0..=4294967295",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--ctx", "-1"],
            "error: invalid value '-1' for '--ctx <TOKENS>': -1 is not in 0..=4294967295",
        ),
        (
            &["run", MODEL, "--prompt-ids", "-1,2"],
            "error: invalid value '-1' for '--prompt-ids <ID,ID,..>': \"-1\" is not a token id: expected a whole number",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--logit-bias", "-1=2"],
            "error: invalid value '-1=2' for '--logit-bias <ID=LOGIT>': expected a token id and a number, such as 13=-2.5",
        ),
        (
            &["detokenize", MODEL, "-1"],
            "error: \"-1\" is not a token id: expected a whole number",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--seed", "-2"],
            "error: invalid value '-2' for '--seed <N>': it can be 0 to 18446744073709551615, or -1 for a new seed each \
             time",
        ),
        (
            &["run", MODEL, "--prompt", "x", "-n", "-2"],
            "error: invalid value '-2' for '--n-predict <TOKENS>': it can be 0 to 4294967295, or -1 for no limit",
        ),
        (
            &["run", MODEL, "--prompt", "x", "--logit-bias", "7"],
            "error: invalid value '7' for '--logit-bias <ID=LOGIT>': expected a token id and a number, such as 13=-2.5",
        ),
        (
            &["run", MODEL, "--prompt", "x", "-n", "many"],
            "error: invalid value 'many' for '--n-predict <TOKENS>': it can be 0 to 4294967295, or -1 for no limit",
        ),
        (
            &["run", MODEL, "--prompt-ids", "1,,5"],
            "error: invalid value '' for '--prompt-ids <ID,ID,..>': \"\" is not a token id",
        ),
        (
            &["logits", MODEL, "--ids", "1,-5", "--out", "x"],
            "error: invalid value '-5' for '--ids <ID,ID,..>'",
        ),
        (
            &["bench"],
            "error: there is nothing to measure: name a MODEL, or a known shape with random weights, such as --shape \
             llama3.2-1b --quant q4_k_m; `warpwright bench --help` lists what else can be measured\n",
        ),
        (
            &["bench", "--quant", "q8_0"],
            "error: there is nothing to measure: name a MODEL, or a known shape with random weights, such as --shape \
             llama3.2-1b --quant q4_k_m\n",
        ),
        (
            &["bench", "finetune", "--batch", "4"],
            "error: there is nothing to measure: name a MODEL, or a known shape",
        ),
        (
            &["bench", "decod"],
            "error: unrecognized subcommand 'decod'\n\n  tip: a similar command exists: 'decode'\n",
        ),
        (
            &["bench", MODEL, "--join", "9"],
            "error: unexpected argument '--join' found\n\n  tip: '--join' is an option of 'warpwright bench batch'\n",
        ),
        (
            &["bench", MODEL, "--batch", "8,16", "--ctx", "512"],
            "error: `--batch` is now a subcommand. Write `warpwright bench batch assets/rustdoc-7m-Q4_K_M.gguf \
             --sequences 8,16 --ctx 512`\n\nUsage: warpwright bench <MODEL>",
        ),
        (
            &["bench", "-m", MODEL, "--shape", "llama3.1-8b"],
            "error: the argument '--model <MODEL>' cannot be",
        ),
        (
            &["bench", MODEL, "--shape", "llama3.1-8b", "--quant", "q8_0"],
            "error: the argument '[MODEL]' cannot be used with",
        ),
        (
            &["bench", MODEL, "--quant", "q8_0"],
            "error: the argument '[MODEL]' cannot be used with",
        ),
        (
            &[
                "bench",
                "batch",
                MODEL,
                "--sequences",
                "2",
                "--launch",
                "eager",
            ],
            "error: unexpected argument '--launch' found\n\n  tip: '--launch' is an option of 'warpwright bench decode'\n",
        ),
        (
            &["bench", "batch", MODEL],
            "error: the following required arguments were not provided:\n  --sequences <N,N,..>",
        ),
        (
            &[
                "bench",
                "batch",
                MODEL,
                "--sequences",
                "1",
                "--join-chunk",
                "9",
            ],
            "error: the following required arguments were not provided:\n  --join <N>",
        ),
        (
            &["bench", "--shape", "llama9", "--quant", "q8_0"],
            "error: invalid value 'llama9' for '--shape <NAME>'\n  [possible values: llama3.1-8b, llama3.2-1b, ",
        ),
        (
            &["bench", "--shape", "llama3.1-8b", "--quant", "q2"],
            "error: invalid value 'q2' for '--quant <NAME>'\n  [possible values: q2_k, q3_k, iq4_xs, iq4_nl, mxfp4, q4_1, q5_0, q5_1, q4_0, \
             q4_k_m, q5_k_m, q6_k, q8_0, bf16, f16, f32]",
        ),
        (
            &["bench", MODEL, "--ctx", "128,0"],
            "error: invalid value '0' for '--ctx <N,N,..>'",
        ),
        (
            &["bench", "kernels", MODEL, "--plans", "4x2"],
            "error: invalid value '4x2' for '--plans <PLAN,PLAN,..>': 4x2 is not a plan such as 4x2_first",
        ),
        (
            &["bench", "kernels", MODEL, "--rounds", "2"],
            "error: unexpected argument '--rounds' found",
        ),
        (
            &["bench", "kernels", MODEL, "--ctx", "1,2"],
            "error: invalid value '1,2' for '--ctx <N>'",
        ),
        (
            &["bench", "profile", MODEL, "--ctx", "1,2"],
            "error: invalid value '1,2' for '--ctx <N>'",
        ),
        (
            &["bench", "prompt", MODEL, "--tokens", "20", "--ctx", "1"],
            "error: unexpected argument '--ctx' found",
        ),
        (
            &["bench", "chunk", MODEL, "--tokens", "20", "--plot", "x"],
            "error: unexpected argument '--plot' found",
        ),
        (
            &["bench", MODEL, "--tokens", "0"],
            "error: invalid value '0' for '--tokens <N>'",
        ),
    ];
    for (arguments, message) in cases {
        let end = run(arguments);
        assert_eq!(end.code, Some(2), "{arguments:?}");
        assert!(end.err.starts_with(message), "{arguments:?}: {}", end.err);
        assert_eq!(end.out, "");
    }
}

#[test]
fn the_version_has_the_commit() {
    let end = run(&["--version"]);
    let version = end
        .out
        .strip_prefix(concat!("warpwright ", env!("CARGO_PKG_VERSION")))
        .expect("the version");
    let commit = version
        .trim_end()
        .strip_prefix(" (")
        .and_then(|rest| rest.strip_suffix(')'));

    // Without git there is none.
    let is_one =
        |commit: &str| commit.len() >= 10 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(version == "\n" || commit.is_some_and(is_one), "{version:?}");
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let end = run(&["completions", shell]);
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{shell}");
        assert!(
            end.out.contains("doctor") && end.out.contains("when-full"),
            "{shell}: {}",
            end.out
        );

        // Elvish and PowerShell complete no values, and zsh escapes colons.
        let script = end.out.replace('\\', "");
        let values = ["auto", "emu", "cuda:0"]
            .iter()
            .all(|device| script.contains(device));
        assert!(
            values || ["elvish", "powershell"].contains(&shell),
            "{shell}"
        );
    }
}
