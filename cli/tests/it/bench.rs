//! `bench` on the emulator: what it says, not how fast.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::{End, MODEL, command, run};

#[test]
fn bench_measures_each_context() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let (path, svg) = (json.to_str().expect("UTF-8"), folder.path().join("bench.svg"));
    let svg = svg.to_str().expect("UTF-8");
    let arguments =
        ["--device", "emu", "--tokens", "2", "--rounds", "2", "--ctx", "1,9", "--json", path, "--plot", svg];
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
    assert_eq!(end.out.matches("same in all rounds and modes").count(), 2, "{}", end.out);
    assert_eq!(fs::read_to_string(svg).expect("the plot").matches("\nctx ").count(), 2);
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
    for (figures, ctx) in report["contexts"].as_array().expect("a list").iter().zip([1, 9]) {
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
fn a_prompt_is_taken_in_at_once_and_one_by_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("prompt.json");
    let arguments = ["--prompt", "11", "--device", "emu", "--rounds", "2", "--json"];
    let end = run(&[&["bench", MODEL][..], &arguments, &[json.to_str().expect("UTF-8")]].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert!(end.out.contains("graph, 2 rounds of a prompt of 11 tokens"), "{}", end.out);
    let report: Value = serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let ways = report["ways"].as_array().expect("a list");
    let columns: Vec<_> = ways.iter().map(|way| way["columns"].as_u64().expect("a number")).collect();
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
fn profile_has_a_row_for_each_kind_of_kernel_and_a_bar_for_each_kernel() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [json, svg] = ["profile.json", "profile.svg"].map(|name| folder.path().join(name));
    let arguments =
        ["--profile", "--device", "emu", "--tokens", "2", "--rounds", "1", "--ctx", "9", "--json"];
    let files = [json.to_str().expect("UTF-8"), "--plot", svg.to_str().expect("UTF-8")];
    let end = run(&[&["bench", MODEL][..], &arguments, &files].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert!(end.out.contains("taking times slows decoding: "), "{}", end.out);
    let report: Value = serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    let kernels = report["kernels"].as_array().expect("a list");
    let nodes: u64 = kernels.iter().map(|row| row["nodes"].as_u64().expect("a number")).sum();
    assert_eq!((kernels.len(), nodes), (8, 8 * 5 + 1));
    assert_eq!(report["timeline"].as_array().expect("a list").len(), 8 * 5 + 1);
    let drawn = fs::read_to_string(svg).expect("the picture");
    for label in ["0 qkv", "3 attention", "7 down", "head"] {
        assert_eq!(drawn.matches(&format!(">\n{label}\n<")).count(), 1, "{label}");
    }
}

#[test]
fn files_are_made_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kept = folder.path().join("kept.json");
    let kept = kept.to_str().expect("UTF-8");
    let bench = |arguments: &[&str]| {
        // Long enough that nobody would wait for it, if it were measured.
        let rounds = ["bench", MODEL, "--device", "emu", "--rounds", "100000"];
        run(&[&rounds, arguments].concat())
    };
    for arguments in [
        &["--json", "no-such-folder/file"][..],
        &["--plot", "no-such-folder/file"],
        &["--json", kept, "--plot", "no-such-folder/file"],
        &["--profile", "--json", "no-such-folder/file"],
        &["--profile", "--json", kept, "--plot", "no-such-folder/file"],
        &["--kernels", "--json", "no-such-folder/file"],
    ] {
        let err = "error: cannot write no-such-folder/file: No such file or directory (os error 2)\n".into();
        assert_eq!(bench(arguments), End { code: Some(1), out: String::new(), err }, "{arguments:?}");
    }
    // A measurement that fails leaves nothing either: neither file, nor what would have become one.
    let plot = folder.path().join("plot.svg");
    let end = bench(&["--ctx", "1000000", "--json", kept, "--plot", plot.to_str().expect("UTF-8")]);
    assert_eq!(
        (end.code, end.err.as_str()),
        (Some(2), "error: 256 tokens from context 1000000 on need 1000255 positions; this model has 2048\n")
    );
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

/// With a cache directory of its own, and what it writes as JSON.
fn run_in(folder: &Path, arguments: &[&str]) -> (End, Value) {
    let json = folder.join("bench.json");
    let to = ["--device", "emu", "--tokens", "1", "--rounds", "1", "--json"];
    let mut command = command(&[&["bench", MODEL][..], &to, &[text(&json)], arguments].concat());
    let end: End = command.env("XDG_CACHE_HOME", folder).output().expect("the program starts").into();
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    (end, serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn kernels_are_measured_alone_with_every_plan() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (end, report) = run_in(folder.path(), &["--kernels", "--ctx", "9", "--plans", "1x4_first,2x2_first"]);
    // Seven products and formats, each with both plans.
    assert_eq!(end.out.matches("\n| ").count(), 1 + 2 * 7, "{}", end.out);
    let best = report["best"].as_str().expect("a tuning");
    assert!(
        end.out.contains(&format!("fastest alone, over all layers: {best}\nIn a token, ")),
        "{}",
        end.out
    );
}

/// The emulator's times are chance, and so is what is chosen; what follows from them is not.
#[test]
fn tune_goes_by_whole_tokens_and_keeps_what_is_faster_for_later() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    // One plan is fast on the emulator and one is slow, so that as a rule something is kept, and then nothing.
    let arguments = ["--tune", "--ctx", "1,9", "--plan", "4x1_first", "--plans", "1x1_first"];
    let (end, report) = run_in(folder, &arguments);
    assert!(end.out.contains("decoded by overlapping pipeline\n"), "{}", end.out);
    let other = "qkv=4x1_first,o=4x1_first,gate_up=4x1_first,down=4x1_first,head=4x1_first";
    assert_eq!(report["instead_of"], other);
    assert!(end.out.contains(&format!("starts from the built-in plans, not from {other}.\n")), "{}", end.out);
    assert_eq!(report["tries"][9]["us"].as_array().expect("a list").len(), 2);
    check_search(&report, "1x1_first");
    let kept = check_kept(folder, &end, &report, None);

    let (later, report) = run_in(folder, &["--ctx", "9"]);
    let tuned = kept.as_ref().map(|(tuning, file)| format!("{tuning} ({})", file.display()));
    assert_eq!(report["tuning"].as_str(), tuned.as_deref());
    let said = tuned.as_ref().map_or(String::new(), |tuned| format!(", tuned {tuned}"));
    assert!(later.out.contains(&format!("overlapping kernels{said}\n")), "{}", later.out);

    let (end, report) = run_in(folder, &["--tune", "--ctx", "9", "--plans", "31x1_first"]);
    assert_eq!((report["tuning"].as_str(), report["instead_of"].as_str()), (None, tuned.as_deref()));
    check_search(&report, "31x1_first");
    check_kept(folder, &end, &report, kept);
}

/// Each product's tries are of what was chosen before, and the chosen one is the fastest or what was there.
fn check_search(report: &Value, plan: &str) {
    let mut there = String::new();
    let tries = report["tries"].as_array().expect("a list");
    assert_eq!(tries.len(), 2 * 5);
    for (pair, product) in tries.chunks(2).zip(["qkv", "o", "gate_up", "down", "head"]) {
        let with = [&there[..], &format!("{product}={plan}")].join(",");
        let with = with.trim_start_matches(',').to_owned();
        assert_eq!([&pair[0]["product"], &pair[1]["product"]], [product; 2]);
        assert_eq!((&pair[0]["plan"], &pair[1]["plan"]), (&Value::Null, &plan.into()));
        assert_eq!((&pair[0]["tuning"], &pair[1]["tuning"]), (&there[..].into(), &with[..].into()));
        let faster = check_share(&pair[1], &pair[0]);
        assert_eq!((&pair[0]["chosen"], &pair[1]["chosen"]), (&(!faster).into(), &faster.into()));
        there = if faster { with } else { there };
    }
    assert_eq!(report["result"]["tuning"].as_str().unwrap_or_default(), there);
}

/// Whether a tuning is faster than another by more than chance: its share is the mean over contexts.
fn check_share(of: &Value, first: &Value) -> bool {
    let us = |row: &Value, i: usize| row["us"][i]["median"].as_f64().expect("a time");
    let contexts = of["us"].as_array().expect("a list").len();
    let share = (0..contexts).map(|i| us(of, i) / us(first, i)).sum::<f64>() / contexts as f64;
    assert!((of["share"].as_f64().expect("a number") - share).abs() < 1e-9);
    share < 0.995
}

/// The result is kept if it is faster than the built-in plans; else what was kept before stays. Gives what is kept then.
fn check_kept(
    folder: &Path,
    end: &End,
    report: &Value,
    before: Option<(String, PathBuf)>,
) -> Option<(String, PathBuf)> {
    let result = Some(&report["result"]).filter(|result| !result.is_null());
    let faster = result.filter(|result| check_share(result, &report["built_in"]));
    let names = |key: &str| report[key].as_str().map(PathBuf::from);
    let kept = faster.map(|result| {
        let file = names("kept").expect("a file");
        assert!(end.out.contains(&format!("It is kept in {}: run and bench use it", file.display())));
        (result["tuning"].as_str().expect("a tuning").to_owned(), file)
    });
    if kept.is_none() {
        assert_eq!((names("kept"), names("stays")), (None, before.as_ref().map(|(_, file)| file.clone())));
        assert!(end.out.contains("kept.\n"), "{}", end.out);
    }
    let kept = kept.or(before);
    let files = fs::read_dir(folder.join("warpwright/tuning")).map_or(0, Iterator::count);
    assert_eq!(files, usize::from(kept.is_some()));
    if let Some((tuning, file)) = &kept {
        let written: Value =
            serde_json::from_str(&fs::read_to_string(file).expect("the file")).expect("JSON");
        assert_eq!(written["tuning"], tuning[..]);
    }
    kept
}
