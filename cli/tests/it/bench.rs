//! `bench` on the emulator: what it says, not how fast.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{End, MODEL, SHORTER, run};

#[test]
fn bench_measures_each_context() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let path = json.to_str().expect("UTF-8");
    let svg = folder.path().join("bench.svg");
    let svg = svg.to_str().expect("UTF-8");
    let arguments = [
        "--device", "emu", "--tokens", "2", "--rounds", "2", "--ctx", "1,9", "--json", path,
        "--plot", svg,
    ];
    let end = run(&[&["bench", MODEL][..], &arguments].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    for text in [
        "The times are the emulator's",
        "graph, 2 rounds of 2 tokens",
        "decoded by overlapping pipeline\nloaded 4.7 MB in ",
        "read ceiling: ",
        "|   9 | ",
    ] {
        assert!(end.out.contains(text), "{text}: {}", end.out);
    }

    assert_eq!(
        end.out.matches("same in all rounds and modes").count(),
        2,
        "{}",
        end.out
    );
    let plot = fs::read_to_string(svg).expect("the plot");
    for text in [
        "tokens per second",
        "positions in the context",
        "allowed by the read ceiling",
        "measured",
    ] {
        assert!(plot.contains(text), "{text}: {plot}");
    }

    assert!(!plot.contains("assets/"), "the title has no folder: {plot}");
    let report = serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    check_figures(&report);
}

fn check_figures(report: &Value) {
    assert_eq!(report["device"]["name"], "Warpwright CPU emulator");
    assert_eq!(report["device"]["emulator"], true);
    assert_eq!(report["model"], MODEL);
    assert_eq!(report["read_ceiling"]["bytes"], 4 << 20);
    let number = |value: &Value| value.as_f64().expect("a number");
    let loading = &report["loading"];
    let rate = number(&loading["bytes"]) / number(&loading["weights_s"]) / 1e9;
    assert!((number(&loading["gb_per_s"]) / rate - 1.0).abs() < 1e-9);
    assert!(number(&loading["kernels_s"]) <= number(&loading["graphs_s"]));
    for (figures, ctx) in report["contexts"]
        .as_array()
        .expect("a list")
        .iter()
        .zip([1, 9])
    {
        assert_eq!(figures["ctx"], ctx);

        // 8 blocks, keys and values of 128 halves; two tokens attend ctx and ctx + 1 positions.
        assert_eq!(figures["kv_bytes"], 8 * 2 * 128 * 2 * (2 * ctx + 1) / 2);
        let (wall, weights) = (&figures["wall_us"], number(&figures["weight_bytes"]));
        assert!(
            number(&wall["min"]) <= number(&wall["median"])
                && number(&wall["median"]) <= number(&wall["max"])
        );
        let rate = (weights + number(&figures["kv_bytes"])) / number(&wall["median"]) / 1e3;
        assert!((number(&figures["gb_per_s"]) / rate - 1.0).abs() < 1e-9);
        assert_eq!(figures["first_tokens"].as_array().expect("a list").len(), 2);
    }
}

#[test]
fn prompts_are_taken_in_at_once_and_one_by_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("prompt.json");
    let arguments = [
        "--tokens", "11", "--device", "emu", "--rounds", "2", "--json",
    ];
    let end = run(&[
        &["bench", "prompt", SHORTER][..],
        &arguments,
        &[json.to_str().expect("UTF-8")],
    ]
    .concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert!(
        end.out.contains("graph, 2 rounds of each prompt"),
        "{}",
        end.out
    );
    let report: Value =
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let ways = report["prompts"].as_array().expect("a list");
    let columns: Vec<_> = ways
        .iter()
        .map(|way| way["at_once"].as_u64().expect("a number"))
        .collect();
    assert_eq!(columns, [8, 1]);
    for way in ways {
        assert_eq!(way["next"], ways[0]["next"]);
        assert_eq!(way["next"].as_array().expect("a list").len(), 2);
        let number = |value: &Value| value.as_f64().expect("a number");
        let rate = 1e6 / number(&way["us_per_token"]["median"]);
        assert!((number(&way["tokens_per_s"]) / rate - 1.0).abs() < 1e-9);
    }
}

#[test]
fn prompts_are_taken_in_by_chunks() {
    let end = run(&[
        "bench", "prompt", SHORTER, "--tokens", "20", "--device", "emu", "--rounds", "1",
    ]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    let at_once = |prompt: &str| {
        let rows = end
            .out
            .lines()
            .filter(|line| line.starts_with(&format!("| {prompt:>6} |")));
        rows.map(|row| row.split('|').nth(2).expect("a cell").trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(at_once("20"), ["20", "8"], "{}", end.out);
    let end = run(&[
        "bench", "chunk", SHORTER, "--tokens", "2", "--device", "emu",
    ]);
    assert_eq!(end.code, Some(2));
    assert!(
        end.err
            .starts_with("error: a prompt of 2 tokens is not prefilled in chunks"),
        "{}",
        end.err
    );
}

#[test]
fn kernels_of_chunks_are_printed_and_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("chunk.json");
    let arguments = [
        "--tokens", "20", "--device", "emu", "--rounds", "1", "--json",
    ];
    let end = run(&[&["bench", "chunk", SHORTER][..], &arguments, &[text(&json)]].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert!(
        end.out
            .contains("kernels of a chunk, the fastest of 1 rounds"),
        "{}",
        end.out
    );
    assert!(
        end.out
            .contains("the first chunk of 20 tokens, kernel by kernel"),
        "{}",
        end.out
    );
    let report: Value =
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let [chunk] = &report["chunks"].as_array().expect("a list")[..] else {
        panic!("one chunk")
    };

    assert_eq!(chunk["tokens"], 20);
    let rows = chunk["kernels"].as_array().expect("a list");
    let sum: f64 = rows
        .iter()
        .map(|row| row["us"].as_f64().expect("a number"))
        .sum();
    assert!((sum / chunk["us"].as_f64().expect("a number") - 1.0).abs() < 1e-6);
    let cells = |line: &str| {
        line.split('|')
            .skip(1)
            .take(3)
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let printed: Vec<_> = end
        .out
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(cells)
        .collect();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a name").to_owned();
    let written = |row: &Value| {
        [
            text(row, "part"),
            text(row, "kernel"),
            row["launches"].to_string(),
        ]
        .to_vec()
    };
    assert_eq!(printed, rows.iter().map(written).collect::<Vec<_>>());
}

#[test]
fn profile_has_a_row_for_each_kind_of_kernel_and_no_times_of_the_emulator() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [json, svg] = ["profile.json", "profile.svg"].map(|name| folder.path().join(name));
    let arguments = [
        "--device", "emu", "--tokens", "2", "--rounds", "1", "--ctx", "9", "--json",
    ];
    let files = [
        json.to_str().expect("UTF-8"),
        "--plot",
        svg.to_str().expect("UTF-8"),
    ];
    let end = run(&[&["bench", "profile", MODEL][..], &arguments, &files].concat());
    let err = "error: --plot draws times, and the emulator does not measure time; leave out --plot, or use \
               a GPU\n";
    assert_eq!((end.code, end.err.as_str()), (Some(2), err));
    assert!(!json.exists() && !svg.exists());
    let end = run(&[&["bench", "profile", MODEL][..], &arguments, &files[..1]].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert!(
        end.out.contains("The emulator does not measure time"),
        "{}",
        end.out
    );
    assert!(
        !end.out.contains("us a token") && !end.out.contains(" -"),
        "{}",
        end.out
    );
    let report: Value =
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let kernels = report["kernels"].as_array().expect("a list");
    let nodes: u64 = kernels
        .iter()
        .map(|row| row["nodes"].as_u64().expect("a number"))
        .sum();
    assert_eq!((kernels.len(), nodes), (8, 8 * 5 + 1));
    assert!(
        kernels.iter().all(|row| row.get("us").is_none()),
        "{kernels:?}"
    );
    assert_eq!(
        (report.get("token_us"), &report["timeline"]),
        (None, &Value::Array(vec![]))
    );
}

#[test]
fn files_are_made_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kept = folder.path().join("kept.json");
    let kept = kept.to_str().expect("UTF-8");
    let bench = |measurement: &str, arguments: &[&str]| {
        let common = ["bench", measurement, SHORTER, "--device", "emu", "--insist"];
        run(&[&common, arguments].concat())
    };

    // Long enough that nobody would wait for it, if it were measured.
    const LONG: [&str; 2] = ["--rounds", "100000"];
    let missing = "no-such-folder/file";
    for (measurement, arguments) in [
        ("decode", [&LONG[..], &["--json", missing]].concat()),
        ("decode", [&LONG[..], &["--plot", missing]].concat()),
        (
            "decode",
            [&LONG[..], &["--json", kept, "--plot", missing]].concat(),
        ),
        ("profile", [&LONG[..], &["--json", missing]].concat()),
        (
            "profile",
            [&LONG[..], &["--json", kept, "--plot", missing]].concat(),
        ),
        (
            "chunk",
            [&LONG[..], &["--tokens", "20", "--json", missing]].concat(),
        ),
        ("kernels", vec!["--json", missing]),
    ] {
        let err =
            "error: cannot write no-such-folder/file: No such file or directory (os error 2)\n"
                .into();
        assert_eq!(
            bench(measurement, &arguments),
            End {
                code: Some(1),
                out: String::new(),
                err
            },
            "{measurement} {arguments:?}"
        );
    }

    // A measurement that fails leaves nothing either: neither file, nor what would have become one.
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().expect("UTF-8");
    let end = bench(
        "decode",
        &["--ctx", "1000000", "--json", kept, "--plot", plot],
    );
    assert_eq!(
        (end.code, end.err.as_str()),
        (
            Some(2),
            "error: 256 tokens from context 1000000 on need 1000255 positions; this model has 2048\n"
        )
    );
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

/// The run, and what it writes as JSON.
fn run_in(folder: &Path, arguments: &[&str]) -> (End, Value) {
    let json = folder.join("bench.json");
    let to = ["--device", "emu", "--json", text(&json)];
    let end = run(&[&["bench"], arguments, &to].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    (
        end,
        serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON"),
    )
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn kernels_are_measured_alone_with_every_plan() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (end, report) = run_in(
        folder.path(),
        &[
            "kernels",
            SHORTER,
            "--ctx",
            "9",
            "--plans",
            "1x4_first,2x2_first",
        ],
    );

    // Seven products and formats, each with both plans.
    assert_eq!(end.out.matches("\n| ").count(), 1 + 2 * 7, "{}", end.out);
    let best = report["best"].as_str().expect("a tuning");
    assert!(
        end.out.contains(&format!(
            "fastest alone, over all layers: {best}\nIn a token, "
        )),
        "{}",
        end.out
    );
}

#[test]
fn a_plan_is_named_beside_the_figures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let once = [SHORTER, "--ctx", "9", "--tokens", "1", "--rounds", "1"];
    let (end, report) = run_in(
        folder.path(),
        &[&once[..], &["--plan", "o=4x1_first"]].concat(),
    );
    assert_eq!(report["plan"], "o=4x1_first");
    assert!(
        end.out.contains("overlapping pipeline, plan o=4x1_first\n"),
        "{}",
        end.out
    );
    let (end, report) = run_in(folder.path(), &once);
    assert_eq!(report["plan"], Value::Null);
    assert!(end.out.contains("overlapping pipeline\n"), "{}", end.out);
}
