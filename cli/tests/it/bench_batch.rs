//! `bench batch` on the emulator: what it says, not how fast.

use std::fs;

use serde_json::Value;

use crate::program::{End, SHORTER, run};

/// The run, and what it writes as JSON.
fn bench(arguments: &[&str]) -> (End, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("batch.json");
    let to = [
        "--device",
        "emu",
        "--rounds",
        "1",
        "--json",
        json.to_str().expect("UTF-8"),
    ];
    let end = run(&[&["bench", "batch", SHORTER][..], &to, arguments].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    (
        end,
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON"),
    )
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// Five steps take the prompt in, and eight are without it: the sequence of 61 tokens comes to a second page.
#[test]
fn a_prompt_joins_a_few_tokens_at_a_time() {
    let arguments = [
        "--sequences",
        "1",
        "--ctx",
        "62",
        "--tokens",
        "1",
        "--join",
        "10",
        "--join-chunk",
        "2",
    ];
    let (end, report) = bench(&arguments);
    assert!(
        end.out
            .contains("while a prompt of 10 joins, 2 of its tokens a step"),
        "{}",
        end.out
    );
    let [join] = list(&report["joins"]) else {
        panic!("one join")
    };

    assert_eq!((&join["sequences"], &join["chunk"]), (&1.into(), &2.into()));
    assert!(number(&join["first_token_ms"]) > number(&join["longest_us"]) * 1e-3);
}

#[test]
fn a_prompt_that_has_no_room_is_refused() {
    let refused = |arguments: &[&str]| {
        let common = [
            "bench", "batch", SHORTER, "--device", "emu", "--tokens", "1", "--insist",
        ];
        let end = run(&[&common[..], arguments].concat());
        (end.code, end.err)
    };
    let cases: [(&[&str], &str); 3] = [
        (
            &["--sequences", "256", "--ctx", "1", "--join", "9"],
            "256 sequences are as many as a batch has, and the prompt is one more",
        ),
        (
            &["--sequences", "2", "--ctx", "1", "--join", "2049"],
            "the prompt has 2049 tokens; this model has 2048 positions",
        ),
        (
            &[
                "--sequences",
                "2",
                "--ctx",
                "2000",
                "--join",
                "1000",
                "--join-chunk",
                "8",
            ],
            "a prompt of 1000 tokens, 8 a step, takes 125 steps; the sequences, from context 2000 on, need 2124 \
             positions meanwhile, and this model has 2048",
        ),
    ];
    for (arguments, why) in cases {
        assert_eq!(
            refused(arguments),
            (Some(2), format!("error: --join: {why}\n"))
        );
    }
}

#[test]
fn kernels_of_a_step_are_printed_and_written() {
    let (end, report) = bench(&[
        "--sequences",
        "2",
        "--ctx",
        "5",
        "--tokens",
        "1",
        "--profile",
    ]);
    for text in [
        "The times are the emulator's",
        "\ntensor ceiling: ",
        "a step of 2 sequences at 5 positions, kernel by kernel: ",
        "\n| choose ",
        "between two events around each kernel",
    ] {
        assert!(end.out.contains(text), "{text}: {}", end.out);
    }

    let tensor = number(&report["tensor_ceiling"]["tflops"]);
    let ([figures], [profile]) = (list(&report["batches"]), list(&report["profiles"])) else {
        panic!("one batch")
    };

    let share = number(&figures["tflops"]) / tensor;
    assert!((number(&figures["share_of_tensor_ceiling"]) / share - 1.0).abs() < 1e-9);
    check_kernels(profile, 2, tensor);
}

fn check_kernels(profile: &Value, sequences: u64, tensor: f64) {
    let rows = list(&profile["kernels"]);
    let of = |part: &'static str| rows.iter().filter(move |row| row["part"] == part);
    let launches = |part| {
        of(part)
            .map(|row| row["launches"].as_u64().expect("a number"))
            .sum::<u64>()
    };
    let parts = [
        "embed",
        "attention",
        "o",
        "gate_up",
        "down",
        "norm",
        "head",
        "choose",
    ];
    assert_eq!(parts.map(launches), [1, 2, 2, 2, 2, 5, 1, 1]);

    // 2 blocks, keys and values of 128 halves, 5 positions.
    let read: u64 = of("attention")
        .map(|row| row["bytes"].as_u64().expect("a number"))
        .sum();
    assert_eq!(read, sequences * 5 * 2 * 2 * 128 * 2);
    let sum: f64 = rows.iter().map(|row| number(&row["us"])).sum();
    assert!((sum / number(&profile["us"]) - 1.0).abs() < 1e-9);
    for row in rows {
        let multiplies = ["qkv", "attention", "o", "gate_up", "down", "head"]
            .iter()
            .any(|part| row["part"] == *part);
        assert_eq!(
            (row["gb_per_s"].is_number(), row["tflops"].is_number()),
            (multiplies, multiplies),
            "{row}"
        );
        if multiplies {
            let share = number(&row["tflops"]) / tensor;
            assert!((number(&row["share_of_tensor_ceiling"]) / share - 1.0).abs() < 1e-9);
        }
    }
}
