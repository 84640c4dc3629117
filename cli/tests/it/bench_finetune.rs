//! `bench finetune` on the emulator: what it says, not how fast.

use std::fs;

use serde_json::Value;

use crate::input::refused;
use crate::program::{SHORTER, run};

/// A round to warm up and one that is timed, of ten steps each, as a graph and kernel by kernel.
#[test]
fn steps_are_timed_as_a_graph_and_kernel_by_kernel() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("finetune.json");
    let end = run(&[
        "bench",
        "finetune",
        SHORTER,
        "--batch",
        "1",
        "--seq",
        "2",
        "--rank",
        "2",
        "--rounds",
        "1",
        "--profile",
        "--device",
        "emu",
        "--json",
        json.to_str().expect("UTF-8"),
    ]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    for text in [
        "10 steps of each kind\ntrained by kernels in f32, rank 2 on all projections",
        "|         1 x 2 | ",
        "the same |",
        "1 x 2, kernel by kernel: ",
        "| update   | train_adamw_256 ",
    ] {
        assert!(end.out.contains(text), "{text}: {}", end.out);
    }

    let report: Value =
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let shape = &report["shapes"][0];
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(number(&shape["ms_per_step"]["min"]) > 0.0 && shape["differs"].is_null());

    // Each kernel of the step is in the table, and was launched as often as the graph has nodes.
    let kernels = shape["kernels"].as_array().expect("a list");
    let launches: f64 = kernels
        .iter()
        .map(|kernel| number(&kernel["launches"]))
        .sum();
    assert_eq!(launches, number(&shape["nodes"]));
}

#[test]
fn what_cannot_be_trained_is_refused_before_weights_are_made() {
    let cases: [(&[&str], &str); 4] = [
        (
            &["--shape", "gemma3-1b"],
            "gemma3-1b nf4: fine-tuning does not support models of the family gemma3, only llama, qwen2, qwen3",
        ),
        (
            &["--shape", "tinyllama-1.1b", "--seq", "4096"],
            "--seq 4096: this model has 2048 positions",
        ),
        (
            &[SHORTER, "--rounds", "4294967295"],
            "--rounds 4294967295: at most 1000000 of 10 steps each",
        ),
        (
            &[SHORTER, "--rank", "0"],
            "rank is 0, but must be at least 1",
        ),
    ];
    for (arguments, sentence) in cases {
        let arguments = [
            &["bench", "finetune", "--batch", "4", "--device", "emu"],
            arguments,
        ]
        .concat();
        assert_eq!(run(&arguments), refused(2, sentence), "{arguments:?}");
    }
}
