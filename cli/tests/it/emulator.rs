//! What the program does, on the emulator.

use std::fs;
use std::io::Read;

use crate::program::{MODEL, command, run};

/// How the float64 reference continues "The borrow checker", token by token.
const GREEDY: &str = " uses a low-level write-limit";

#[test]
fn run_continues_a_prompt() {
    let end = run(&[
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt",
        "The borrow checker",
        "-n",
        "9",
    ]);
    assert_eq!(
        (end.code, end.out),
        (Some(0), format!("The borrow checker{GREEDY}\n"))
    );
    let said: Vec<&str> = end.err.lines().collect();
    let [tokens, loading] = said[..] else {
        panic!("{said:?}")
    };

    assert!(tokens.starts_with("9 tokens, "), "{tokens}");
    assert!(
        tokens.ends_with(", limit of -n, Warpwright CPU emulator"),
        "{tokens}"
    );
    assert!(
        tokens.contains(" tokens/s after the first 8, first token "),
        "{tokens}"
    );
    let parts = [
        "opened the file in ",
        " s and the device in ",
        "; loaded 4.7 MB in ",
        "kernels ready after ",
    ];
    for part in parts {
        assert!(loading.contains(part), "{loading}");
    }
}

#[test]
fn quiet_leaves_only_what_the_model_writes() {
    let end = run(&[
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt",
        "The borrow checker",
        "-n",
        "9",
        "--quiet",
    ]);
    assert_eq!(
        (end.code, end.out, end.err),
        (Some(0), format!("{GREEDY}\n"), String::new())
    );
}

#[test]
fn ids_go_in_and_out() {
    let arguments = [
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt-ids",
        "0,389,1166,882,261",
        "-n",
        "4",
        "--print",
        "ids",
    ];
    for launch in ["graph", "eager"] {
        let end = run(&[&arguments[..], &["--launch", launch, "--quiet"]].concat());
        assert_eq!(
            (end.code, end.out.as_str(), end.err.as_str()),
            (Some(0), "1680 260 2366 13\n", ""),
            "{launch}"
        );
    }
}

/// The same seed gives the same text in every launch mode; another one gives another.
#[test]
fn sampled_text_follows_from_the_seed() {
    let of = |launch: &str, seed: &str| {
        let few = [
            "run",
            MODEL,
            "--device",
            "emu",
            "--prompt-ids",
            "0,389,1166",
            "-n",
            "5",
            "--print",
            "ids",
        ];
        let sampled = [
            "--quiet", "--temp", "1.5", "--top-k", "200", "--launch", launch, "--seed", seed,
        ];
        let end = run(&[&few[..], &sampled].concat());
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
        end.out
    };
    let text = of("graph", "1");
    assert_eq!(text, of("eager", "1"));
    assert_ne!(text, of("graph", "2"));
}

#[test]
fn log_probabilities_are_said_of_each_token() {
    let few = [
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt-ids",
        "0,389,1166,882,261",
        "-n",
        "2",
        "--print",
        "ids",
    ];
    let end = run(&[&few[..], &["--quiet", "--logprobs", "2"]].concat());
    assert_eq!((end.code, end.out.as_str()), (Some(0), "1680 260\n"));
    let said: Vec<&str> = end.err.lines().collect();
    assert!(
        said.len() == 2 && said[0].starts_with("token 1680 -"),
        "{said:?}"
    );
    let [of_token, best] = said[0].split("; ").collect::<Vec<_>>()[..] else {
        panic!("{said:?}")
    };

    // Greedy: the token is the best one.
    assert!(
        best.starts_with(of_token.strip_prefix("token ").unwrap()),
        "{said:?}"
    );
}

#[test]
fn logits_are_the_same_bytes_as_a_graph_and_kernel_by_kernel() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [graph, eager] = ["graph", "eager"].map(|launch| {
        let out = folder.path().join(launch);
        let out = out.to_str().expect("UTF-8");
        let end = run(&[
            "logits",
            MODEL,
            "--device",
            "emu",
            "--launch",
            launch,
            "--ids",
            "0,389,1166",
            "--out",
            out,
        ]);
        assert_eq!(
            (end.code, end.out.as_str(), end.err.as_str()),
            (Some(0), "", "")
        );
        fs::read(out).expect("the logits")
    });
    assert_eq!(graph.len(), 3 * 4096 * 4);
    assert!(graph == eager);
}

#[test]
fn info_shows_the_model_without_loading_it() {
    let end = run(&["info", MODEL, "--device", "emu"]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    for fact in [
        "llama",
        "4 query, 2 key and value, of 64",
        "bytes of weights",
        "attn_q.weight",
        "x Q4_K",
        "overlapping pipeline",
    ] {
        assert!(end.out.contains(fact), "{fact}: {}", end.out);
    }
}

#[test]
fn info_is_told_as_json() {
    let end = run(&["info", "-m", MODEL, "--device", "emu", "--json"]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    let facts: serde_json::Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(
        [&facts["architecture"], &facts["chat_template"]],
        [&"llama".into(), &serde_json::Value::Null]
    );

    // 4096 x 256 of the embedding, 8 layers of 786,944, and the last norm.
    assert_eq!(
        facts["parameters"],
        4096 * 256 + 8 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256 + 2 * 256) + 256
    );
    let bytes: u64 = facts["formats"]
        .as_object()
        .expect("formats")
        .values()
        .filter_map(|mix| mix["bytes"].as_u64())
        .sum();
    let tensors = facts["tensors"].as_array().expect("tensors");
    assert_eq!(
        bytes,
        tensors
            .iter()
            .filter_map(|class| class["bytes"].as_u64())
            .sum::<u64>()
    );
    assert_eq!(
        facts["tokenizer"]["ends_with"][0]["spelling"],
        "<|endoftext|>"
    );
}

#[test]
fn doctor_has_a_line_for_everything() {
    let end = run(&["doctor"]);
    let lines: Vec<Vec<&str>> = end
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let state = |what: &str| {
        lines
            .iter()
            .find(|line| line[0] == what)
            .map(|line| line[1])
    };
    assert_eq!(
        (state("program"), state("emulator")),
        (Some("fine"), Some("fine")),
        "{end:?}"
    );
    assert!(
        state("driver").is_some() && state("cache").is_some(),
        "{end:?}"
    );
    let to_do = lines.iter().any(|line| line[1] == "TO");
    assert_eq!(end.code, Some(i32::from(to_do)), "{end:?}");
}

#[test]
fn devices_lists_the_emulator() {
    let end = run(&["devices"]);
    assert_eq!(end.code, Some(0));
    assert!(end.out.contains("| emu "), "{}", end.out);
    assert!(end.out.contains("Warpwright CPU emulator"), "{}", end.out);
}

#[test]
fn graph_draws_every_launch() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dot = folder.path().join("decode.dot");
    let end = run(&[
        "graph",
        MODEL,
        "--device",
        "emu",
        "--dot",
        dot.to_str().expect("UTF-8"),
    ]);
    assert_eq!(
        (end.code, end.out.as_str(), end.err.as_str()),
        (Some(0), "", "")
    );
    let text = fs::read_to_string(dot).expect("the graph");
    assert!(text.starts_with("digraph"), "{text}");
    for kernel in [
        "embed_tiled",
        "qkv",
        "attention_pipelined",
        "project",
        "gate_up",
        "head",
    ] {
        assert!(text.contains(kernel), "{kernel}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let mut child = command(&[
        "run",
        MODEL,
        "--device",
        "emu",
        "--prompt-ids",
        "1",
        "-n",
        "200",
        "--quiet",
    ])
    .spawn()
    .expect("the program starts");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut said)
        .expect("UTF-8");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

/// Rows of tokens that are fed without chunks have the bits of tokens that are fed one at a time.
#[test]
fn logits_do_not_depend_on_how_many_tokens_are_fed_together() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ids: Vec<String> = (0..20).map(|i| (40 + 97 * i).to_string()).collect();
    let logits = |count: usize, more: &[&str]| {
        let out = folder.path().join("logits").display().to_string();
        let ids = ids[..count].join(",");
        let end = run(&[
            &[
                "logits", MODEL, "--device", "emu", "--ids", &ids, "--out", &out,
            ],
            more,
        ]
        .concat());
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
        fs::read(out).expect("the logits")
    };
    let all = logits(20, &[]);
    let few = logits(3, &[]);
    assert!(all.starts_with(&few), "the first rows have other bits");
    assert_ne!(logits(20, &["--fast"]), all, "chunks round differently");
}
