//! `bench` on the emulator: what it says, not how fast.

use std::fs;

use serde_json::Value;

use crate::program::{MODEL, run};

#[test]
fn bench_measures_each_context() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let path = json.to_str().expect("UTF-8");
    let arguments = ["--device", "emu", "--tokens", "2", "--rounds", "2", "--ctx", "1,9", "--json", path];
    let end = run(&[&["bench", MODEL][..], &arguments].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    for text in ["The times are the emulator's", "graph, 2 rounds of 2 tokens", "read ceiling: ", "|   9 | "]
    {
        assert!(end.out.contains(text), "{text}: {}", end.out);
    }
    assert_eq!(end.out.matches("same in all rounds and modes").count(), 2, "{}", end.out);
    let report = serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON");
    check_figures(&report);
}

fn check_figures(report: &Value) {
    assert_eq!(report["device"]["name"], "Warpwright CPU emulator");
    assert_eq!(report["device"]["emulator"], true);
    assert_eq!(report["model"], MODEL);
    assert_eq!(report["read_ceiling"]["bytes"], 4 << 20);
    let number = |value: &Value| value.as_f64().expect("a number");
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
