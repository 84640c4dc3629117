//! `--adapter` as a user gives it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::{End, SHORTER, run};

/// The device and what else each run of a decoder has.
const EMULATOR: [&str; 2] = ["--device", "emu"];

fn logits(folder: &Path, more: &[&str]) -> (End, Vec<f32>) {
    let out = folder.join("logits").display().to_string();
    let end = run(&[
        &["logits", SHORTER, "--ids", "1,500,90", "--out", &out],
        &EMULATOR[..],
        more,
    ]
    .concat());
    let bytes = fs::read(&out).unwrap_or_default();
    (
        end,
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
    )
}

/// Writes three steps' adapter of two projections to this folder.
fn finetune(folder: &Path) -> String {
    let [data, out] = ["data.jsonl", "adapter"].map(|name| folder.join(name).display().to_string());
    fs::write(&data, "{\"text\": \"Iterators are lazy.\"}\n").expect("a file for a test");
    let settings = [
        "--seq",
        "6",
        "--batch",
        "1",
        "--rank",
        "4",
        "--targets",
        "q_proj,v_proj",
    ];
    let steps = ["--steps", "3", "--lr", "2e-2"];
    let end = run(&[
        &["finetune", SHORTER, "--data", &data, "--out", &out],
        &EMULATOR[..],
        &settings,
        &steps,
    ]
    .concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    out
}

#[test]
fn a_trained_adapter_changes_what_a_model_says() {
    let temporary = tempfile::tempdir().expect("a folder for a test");
    let folder = temporary.path();
    let adapter = finetune(folder);
    let base = logits(folder, &[]);
    let adapted = logits(folder, &["--adapter", &adapter]);
    assert_eq!(
        [base.0.code, adapted.0.code],
        [Some(0); 2],
        "{:?}",
        adapted.0
    );
    let apart = base
        .1
        .iter()
        .zip(&adapted.1)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(
        base.1.len() == 3 * 4096 && adapted.1.len() == 3 * 4096 && apart > 0.05,
        "{apart}"
    );

    let end = run(&[&["info", SHORTER, "--adapter", &adapter], &EMULATOR[..]].concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    for row in [
        "rank 4, alpha 32",
        "q_proj, v_proj",
        &format!("trained for {SHORTER}"),
        "on projections in ",
    ] {
        assert!(end.out.contains(row), "{row}: {}", end.out);
    }

    // As if it had been trained on other weights.
    let notes = Path::new(&adapter).join("warpwright.json");
    fs::write(&notes, json!({"base_formats": {"NF4": 56}}).to_string()).expect("a file for a test");
    let run_with = [
        "run",
        SHORTER,
        "--prompt-ids",
        "1,5",
        "-n",
        "2",
        "--print",
        "ids",
        "--adapter",
        &adapter,
    ];
    let end = run(&[&run_with, &EMULATOR[..]].concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    let warning =
        "warning: the adapter was trained on projections in 56 x NF4, and this model has ";
    assert!(end.err.contains(warning), "{}", end.err);
    assert!(!end.err.contains("has no matrices"), "{}", end.err);
    let line = "adapter of rank 4, alpha 32, ";
    assert!(
        end.err.contains(line) && end.err.contains("prompts are prefilled up to eight tokens"),
        "{}",
        end.err
    );
    names_what_is_missing(folder, &adapter);
    measures_with_and_without(folder, &adapter);
    refuses_what_does_not_fit(folder, &adapter);
}

/// As if all projections had been trained, and some matrices lost.
fn names_what_is_missing(folder: &Path, adapter: &str) {
    let config = Path::new(adapter).join("adapter_config.json");
    let text = fs::read_to_string(&config).expect("the settings of the adapter");
    let mut settings: Value = serde_json::from_str(&text).expect("JSON");
    settings["target_modules"] = json!("all-linear");
    fs::write(&config, settings.to_string()).expect("a file for a test");
    let (end, _) = logits(folder, &["--adapter", adapter]);
    fs::write(&config, text).expect("a file for a test");
    let warning = "warning: the adapter has no matrices for model.layers.0.self_attn.k_proj, \
                   model.layers.0.self_attn.o_proj, model.layers.0.mlp.gate_proj and 7 more, although its settings \
                   list them; these projections are unchanged, as in PEFT\n";
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.err.contains(warning), "{}", end.err);
}

/// Rows without the adapter and with it, whose tokens differ.
fn measures_with_and_without(folder: &Path, adapter: &str) {
    let json = folder.join("bench.json");
    let path = json.display().to_string();
    let few = [
        "--ctx",
        "1",
        "--tokens",
        "1",
        "--rounds",
        "1",
        "--json",
        &path,
        "--adapter",
        adapter,
    ];
    let end = run(&[&["bench", SHORTER], &few[..], &EMULATOR].concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.out.contains("| 1 with the adapter: "), "{}", end.out);
    let found: Value = serde_json::from_slice(&fs::read(&json).expect("figures")).expect("JSON");
    let [base, with] = [0, 1].map(|row| &found["contexts"][row]);
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    let share = number(with, "tokens_per_s") / number(base, "tokens_per_s");
    assert!(
        (number(with, "share_of_base") / share - 1.0).abs() < 1e-9,
        "{found}"
    );
    let [more, adapter] = [
        number(with, "weight_bytes") - number(base, "weight_bytes"),
        number(with, "adapter_bytes"),
    ];
    assert!(
        more == adapter && more > 0.0 && base.get("adapter_bytes").is_none(),
        "{found}"
    );
}

/// Exit code 2 before a device is touched, and no file left behind.
fn refuses_what_does_not_fit(folder: &Path, adapter: &str) {
    fs::remove_file(folder.join("logits")).expect("the last logits");
    let config = Path::new(adapter).join("adapter_config.json");
    let text = fs::read_to_string(&config).expect("the settings of the adapter");
    let mut settings: Value = serde_json::from_str(&text).expect("JSON");
    settings["use_dora"] = json!(true);
    fs::write(&config, settings.to_string()).expect("a file for a test");
    let sentence = format!(
        "error: {}: \"use_dora\" is true: DoRA is not supported, only LoRA without magnitudes\n",
        config.display()
    );
    let commands: [&[&str]; 4] = [
        &["info", SHORTER],
        &["bench", SHORTER],
        &["run", SHORTER, "--prompt", "x"],
        &[
            "logits",
            SHORTER,
            "--ids",
            "1",
            "--out",
            &folder.join("logits").display().to_string(),
        ],
    ];
    for command in commands {
        let end = run(&[command, &["--adapter", adapter], &EMULATOR].concat());
        assert_eq!(
            (end.code, end.err.as_str()),
            (Some(2), sentence.as_str()),
            "{command:?}"
        );
    }

    assert!(!folder.join("logits").exists());
    let end = run(&["info", SHORTER, "--adapter", SHORTER]);
    let sentence = format!(
        "error: {SHORTER}: not a directory: an adapter is a directory that contains adapter_config.json and \
         adapter_model.safetensors\n"
    );
    assert_eq!((end.code, end.err), (Some(2), sentence));
    let end = run(&[
        "bench",
        "--shape",
        "llama3.2-1b",
        "--quant",
        "q8_0",
        "--adapter",
        adapter,
    ]);
    assert_eq!(end.code, Some(2));
    assert!(end.err.contains("'--adapter <FOLDER>'"), "{}", end.err);
}
