//! `warpwright finetune` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{End, MODEL, SHORTER, command, run};
use crate::signals::signal;

const SAMPLES: &str = r#"{"text": "The borrow checker makes sure that references are valid."}
{"prompt": "A vector", "completion": " is a growable array."}

{"text": "Iterators are lazy.", "source": "left alone"}
"#;

struct Bench {
    folder: TempDir,
    model: &'static str,
}

impl Bench {
    fn new(samples: &str) -> Bench {
        let folder = tempfile::tempdir().expect("a folder for a test");
        fs::write(folder.path().join("data.jsonl"), samples).expect("a file for a test");
        Bench {
            folder,
            model: SHORTER,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, out: &str, more: &[&str]) -> End {
        let arguments = self.arguments(out, more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn arguments(&self, out: &str, more: &[&str]) -> Vec<String> {
        let [data, out] =
            [self.path("data.jsonl"), self.path(out)].map(|path| path.display().to_string());
        let arguments = [
            "finetune", self.model, "--data", &data, "--out", &out, "--device", "emu",
        ];
        let small = [
            ["--seq", "16"],
            ["--batch", "1"],
            ["--rank", "4"],
            ["--targets", "q_proj,v_proj"],
        ];
        let small = small
            .into_iter()
            .filter(|[flag, _]| !more.contains(flag))
            .flatten();
        arguments
            .into_iter()
            .chain(small)
            .chain(more.iter().copied())
            .map(String::from)
            .collect()
    }

    /// Lines of `metrics.jsonl`, without what a clock says.
    fn metrics(&self, out: &str) -> Vec<Value> {
        let text =
            fs::read_to_string(self.path(out).join("metrics.jsonl")).expect("metrics are there");
        let mut rows: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        for row in &mut rows {
            row["tokens_per_second"] = Value::Null;
        }

        rows
    }

    /// The number of points of each curve.
    fn curves(&self, out: &str) -> Vec<usize> {
        let text =
            fs::read_to_string(self.path(out).join("loss.svg")).expect("the curves are there");

        // The first line of each color is the curve, the second one stands beside its name.
        let lines = ["#2E86C1", "#C0392B"].into_iter().filter_map(|color| {
            text.lines()
                .find(|line| line.starts_with("<polyline") && line.contains(color))
        });
        let points = lines.map(|line| line.split("points=\"").nth(1).expect("points"));
        points
            .map(|points| {
                points
                    .split('"')
                    .next()
                    .expect("an end")
                    .split_whitespace()
                    .count()
            })
            .collect()
    }

    /// What stderr says of a run that is refused.
    fn refused(&self, more: &[&str]) -> String {
        let end = self.run("refused", more);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(!self.path("refused").exists(), "something was written");
        end.err
    }
}

fn bytes(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("adapter_model.safetensors")).expect("the adapter is there")
}

#[test]
fn trains_and_goes_on_from_a_checkpoint() {
    let bench = Bench::new(SAMPLES);
    let three = [
        "--steps",
        "3",
        "--launch",
        "eager",
        "--dropout",
        "0.1",
        "--warmup",
        "1",
    ];
    let whole = bench.run("whole", &[&three[..], &["--save-every", "2"]].concat());
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(whole.out.contains("| samples "), "{}", whole.out);
    assert!(whole.out.contains("3 steps in "), "{}", whole.out);
    let metrics = fs::read_to_string(bench.path("whole/metrics.jsonl")).expect("metrics are there");
    assert_eq!(metrics.lines().count(), 3);
    let config =
        fs::read_to_string(bench.path("whole/adapter_config.json")).expect("the config is there");
    for key in [
        r#""peft_type": "LORA""#,
        r#""r": 4"#,
        r#""q_proj""#,
        r#""lora_dropout": 0.1"#,
    ] {
        assert!(config.contains(key), "{config}");
    }

    let checkpoint = bench.path("whole/checkpoint-2").display().to_string();
    let resumed = bench.run(
        "resumed",
        &[&three[..], &["--resume", &checkpoint]].concat(),
    );
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(
        bytes(&bench.path("whole")) == bytes(&bench.path("resumed")),
        "other bits after resuming"
    );

    let last = ["--save-every", "1", "--resume", &checkpoint];
    let end = bench.run("last", &[&three[..], &last].concat());
    assert!(end.out.contains("1 steps in "), "{}", end.out);
    let checkpoint_of_all = bench.path("last/checkpoint-3").display().to_string();
    let end = bench.run(
        "nothing",
        &[&three[..], &["--resume", &checkpoint_of_all]].concat(),
    );
    assert!(end.out.contains("no step was left to train"), "{}", end.out);
    assert!(bytes(&bench.path("whole")) == bytes(&bench.path("nothing")));

    let refused = bench.refused(&[&three[..], &["--resume", &checkpoint, "--lr", "1e-3"]].concat());
    assert!(refused.contains("the training had lr = 0.0002, and now it is 0.001, so it would not continue with the same bits: restore the value, or start again without --resume\n"), "{refused}");
    let state = bench.path("whole/checkpoint-2/trainer_state.json");
    let text = fs::read_to_string(&state).expect("the state is there");
    fs::write(&state, text.replace("\"step\": 2", "\"step\": 9"))
        .expect("the state can be changed");
    let refused = bench.refused(&[&three[..], &["--resume", &checkpoint]].concat());
    assert!(
        refused.contains("the checkpoint is of step 9, and the training has only 3 steps"),
        "{refused}"
    );
    let end = bench.run("whole", &three);
    assert_eq!(end.code, Some(2));
    assert!(end.err.contains("is not empty"), "{}", end.err);
}

#[test]
fn a_graph_gives_the_bits_of_single_launches() {
    let bench = Bench::new(SAMPLES);
    let once = ["--steps", "1", "--lr", "1e-2", "--warmup", "0"];
    for launch in ["graph", "eager"] {
        let end = bench.run(launch, &[&once[..], &["--launch", launch]].concat());
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    assert!(bytes(&bench.path("graph")) == bytes(&bench.path("eager")));
}

/// Adapters have the bits of a training without; a run that goes on has the whole curve, and no point of it twice.
#[test]
fn evaluates_without_a_trace() {
    let bench = Bench::new(SAMPLES);
    let held_out = bench.path("eval.jsonl");
    let two = "{\"prompt\": \"A slice\", \"completion\": \" borrows.\"}\n{\"text\": \"A vector owns its elements.\"}\n";
    fs::write(&held_out, two).expect("a file for a test");
    let held_out = held_out.display().to_string();
    let three = [
        "--steps",
        "3",
        "--launch",
        "eager",
        "--dropout",
        "0.1",
        "--lr",
        "1e-2",
        "--save-every",
        "2",
    ];
    let eval = [&three[..], &["--eval", &held_out, "--eval-every", "2"]].concat();
    let whole = bench.run("whole", &eval);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let without = bench.run("without", &three);
    assert!(
        bytes(&bench.path("whole")) == bytes(&bench.path("without")),
        "an evaluation leaves a trace"
    );
    assert!(!without.err.contains("evaluation"), "{}", without.err);
    assert_eq!(
        (bench.curves("whole"), bench.curves("without")),
        (vec![3, 3], vec![3])
    );

    let (metrics, steps) = (bench.metrics("whole"), bench.metrics("without"));
    let (evaluations, rest): (Vec<_>, Vec<_>) = metrics
        .iter()
        .cloned()
        .partition(|row| row.get("eval_loss").is_some());
    assert_eq!(rest, steps);
    let after: Vec<_> = evaluations
        .iter()
        .map(|row| row["step"].as_u64().expect("a step"))
        .collect();
    assert_eq!(after, [0, 2, 3]);
    for row in &evaluations {
        let (step, loss) = (&row["step"], row["eval_loss"].as_f64().expect("a loss"));
        let line = format!(
            "step {step} of 3: evaluation loss {loss:.4} over {} tokens\n",
            row["eval_tokens"]
        );
        assert!(whole.err.contains(&line), "{line}: {}", whole.err);
    }

    assert_ne!(evaluations[0]["eval_loss"], evaluations[2]["eval_loss"]);

    let picture = || fs::read(bench.path("whole/loss.svg")).expect("the curves are there");
    let before = picture();
    let checkpoint = bench.path("whole/checkpoint-2").display().to_string();
    fs::remove_file(bench.path("whole/loss.svg")).expect("it is there");
    let resumed = bench.run("whole", &[&eval[..], &["--resume", &checkpoint]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(bench.metrics("whole"), metrics);
    assert!(picture() == before, "another picture after resuming");
    let refused =
        bench.refused(&[&three[..], &["--resume", &checkpoint, "--eval", "0.5"]].concat());
    assert!(
        refused.contains("the training had eval share = not set, and now it is 0.5"),
        "{refused}"
    );
}

/// With a checkpoint, and the curve up to there.
#[test]
fn a_signal_ends_training_after_its_step() {
    let bench = Bench::new(SAMPLES);
    let arguments = bench.arguments(
        "out",
        &["--steps", "2000", "--launch", "eager", "--eval", "0.5"],
    );
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = command(&arguments).spawn().expect("the program starts");
    let metrics = || fs::read_to_string(bench.path("out/metrics.jsonl")).unwrap_or_default();
    while metrics().lines().count() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(child.try_wait().expect("it runs"), None);
    }

    // Nobody else writes to its folder meanwhile, not even from a checkpoint.
    fs::create_dir(bench.path("checkpoint")).expect("a folder for a test");
    fs::write(bench.path("checkpoint/trainer_state.json"), "{}").expect("a file for a test");
    let checkpoint = bench.path("checkpoint").display().to_string();
    for more in [&[][..], &["--resume", &checkpoint]] {
        let end = bench.run("out", more);
        assert!(
            end.code == Some(2) && end.err.contains("another run is writing to it"),
            "{end:?}"
        );
    }

    signal(&child, "INT");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!(end.code, Some(130), "{end:?}");
    let steps = metrics().lines().count() - 1;
    let folder = bench.path(&format!("out/checkpoint-{steps}"));
    let said = format!(
        "stopped after step {steps} of 2000; continue with --resume {}\n",
        folder.display()
    );
    assert!(end.err.ends_with(&said) && folder.exists(), "{end:?}");
    assert_eq!(bench.curves("out"), [steps, 1]);
}

#[test]
fn shows_a_plan_without_training() {
    let bench = Bench::new(SAMPLES);
    let end = bench.run("plan", &["--dry-run", "--epochs", "5"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(
        end.out.contains("| samples                      | 3 ") && !end.out.contains("evaluation")
    );
    let end = bench.run("plan", &["--dry-run", "--eval", "0.4"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    for row in [
        "| samples                      | 2 ",
        "| evaluation samples           | 1 ",
        "| evaluation tokens ",
    ] {
        assert!(end.out.contains(row), "{}", end.out);
    }

    for row in [
        "| samples ",
        "| steps ",
        "| activations ",
        "| free on the device ",
    ] {
        assert!(end.out.contains(row), "{}", end.out);
    }

    assert!(!bench.path("plan").exists());
}

/// Of 16 GiB. Who names what is computed again gets that, and is told what would fit.
#[test]
fn what_is_computed_again_is_the_first_that_fits() {
    let bench = Bench {
        model: MODEL,
        ..Bench::new(SAMPLES)
    };
    let plan = |rows, more: &[&str]| {
        bench.run(
            "plan",
            &[&["--seq", "2048", "--batch", rows, "--insist"], more].concat(),
        )
    };
    for (rows, again) in [
        ("40", "nothing"),
        ("56", "norms and SwiGLU"),
        ("72", "layers"),
    ] {
        let end = plan(rows, &["--dry-run"]);
        let row = format!("| recomputed                   | {again} ");
        assert!(
            end.code == Some(0) && end.out.contains(&row),
            "{rows}: {end:?}"
        );
    }

    let end = plan("72", &["--recompute", "cheap"]);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.err
            .contains("16384.0 MiB are free; use --recompute layer, or a smaller --batch"),
        "{end:?}"
    );
    assert!(!bench.path("plan").exists());
}

#[test]
fn refuses_early_by_name() {
    let bench = Bench::new(SAMPLES);
    let cases: [(&[&str], &str); 21] = [
        (
            &["--absmax", "nested"],
            "--absmax nested has no effect, because the projections stay in Q4_K, Q6_K",
        ),
        (&["--targets", "lm_head"], "unknown projection: expected "),
        (&["--rank", "0"], "rank is 0, but must be at least 1"),
        (
            &["--dropout", "1"],
            "dropout is 1, but must be from 0 to below 1",
        ),
        (
            &["--seq", "4096"],
            "--seq 4096 is more than the 2048 positions",
        ),
        (&["--batch", "0"], "batch is 0, but must be from 1 to 2^24"),
        (
            &["--grad-accum", "4294967296"],
            "the number of micro-batches is 4294967296, but must be from 1 to 2^24",
        ),
        (
            &["--warmup", "nan"],
            "invalid --warmup NaN: expected a number of steps, or a share of all steps below 1",
        ),
        (
            &["--clip", "0"],
            "invalid --clip 0: the largest norm must be",
        ),
        (&["--save-every", "0"], "0 is not in 1.."),
        (
            &["--steps", "0"],
            "the number of steps is 0, but must be at least 1",
        ),
        (&["--lr", "-1"], "invalid --lr -1: a learning rate must be"),
        (
            &["--weight-decay", "-1"],
            "weight decay is -1, but must be 0 or more",
        ),
        (&["--alpha", "0"], "alpha is 0, but must be above 0"),
        (&["--alpha", "-8"], "alpha is -8, but must be above 0"),
        (
            &["--alpha", "1e-60"],
            "must be above 0, and finite in f32 by the rank",
        ),
        (
            &["--lr", "1e39"],
            ": a learning rate must be 0 or more, and finite in f32",
        ),
        (
            &["--weight-decay", "inf"],
            "weight decay is inf, but must be 0 or more, and finite in f32",
        ),
        (
            &["--seq", "1"],
            "--seq 1 is too short: a token is learned from the tokens before it",
        ),
        (
            &["--resume", "/nowhere/checkpoint-1"],
            "--resume /nowhere/checkpoint-1 is not a checkpoint, because it has no trainer_state.json",
        ),
        (
            &[
                "--steps",
                "100000",
                "--save-every",
                "1",
                "--rank",
                "4096",
                "--insist",
            ],
            "the adapter and 100000 checkpoints need",
        ),
    ];
    for (flags, wanted) in cases {
        let err = bench.refused(flags);
        assert!(err.contains(wanted), "{flags:?}: {err}");
    }
}

#[test]
fn refuses_evaluations_by_name() {
    let bench = Bench::new(SAMPLES);
    let files = [
        ("empty", "\n"),
        ("wrong", "{\"text\": \"fine\"}\n{}\n"),
        ("unlabelled", PROMPT),
    ]
    .map(|(name, text)| {
        fs::write(bench.path(name), text).expect("a file for a test");
        bench.path(name).display().to_string()
    });
    let [empty, wrong, unlabelled] = files;
    let share = "is not a share between 0 and 1";
    let cases: [(&[&str], &str); 10] = [
        (&["--eval", "0"], share),
        (&["--eval", "1"], share),
        (&["--eval", "nan"], share),
        (
            &["--eval", "1.5"],
            "1.5 is not a share between 0 and 1; for a file with this name, write ./1.5",
        ),
        (
            &["--eval", "/nowhere/eval.jsonl"],
            "cannot read /nowhere/eval.jsonl",
        ),
        (&["--eval", &empty], "empty: the file contains no samples"),
        (
            &["--eval", &unlabelled],
            "unlabelled: nothing to learn: 1 samples have nothing",
        ),
        (&["--eval", &wrong], "wrong, line 2: it has the keys []"),
        (&["--eval-every", "2"], "--eval <FILE.jsonl|SHARE>"),
        (&["--eval", "0.5", "--eval-every", "0"], "0 is not in 1.."),
    ];
    for (flags, wanted) in cases {
        let err = bench.refused(flags);
        assert!(err.contains(wanted), "{flags:?}: {err}");
    }

    let one = Bench::new("{\"text\": \"A slice borrows.\"}\n").refused(&["--eval", "0.5"]);
    assert!(
        one.contains("the number of samples is 1, but must be at least 2"),
        "{one}"
    );
}

/// Longer than a row.
const PROMPT: &str = r#"{"prompt": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen", "completion": "x"}"#;

#[test]
fn refuses_samples_by_their_line() {
    let cases = [
        (
            "{\"text\": \"fine\"}\n{\"text\": 3}\n",
            "line 2: it has a \"text\" that is not a string",
        ),
        (
            "\u{feff}{\"text\": \"fine\"}\n\n{\"text\": \n",
            "line 3: it is not valid JSON: EOF while parsing a value at column 9: a sample begins and ends on one line\n",
        ),
        (
            "[1]\n",
            "line 1: it is not a JSON object: write a sample as {\"text\": \"..\"}\n",
        ),
        (
            "{\"text\": \"fine\"}\r\n\r\n{\"text\": \"x\", \"text\": \"y\"}\r\n",
            "line 3: it has the key \"text\" twice in one object",
        ),
        ("{\"input\": \"x\"}\n", "line 1: it has the keys [input]"),
        (
            "{\"text\": \"x\"}\n{\"text\": \"x\", \"output\": \"y\"}\n",
            "line 2: it has the keys [text, output], but must have those of one form",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
            "line 1: it is a conversation",
        ),
        ("\n", "data.jsonl: the file contains no samples"),
        (
            PROMPT,
            "data.jsonl: nothing to learn: 1 samples have nothing to learn among their first 16 tokens",
        ),
    ];
    for (samples, wanted) in cases {
        let err = Bench::new(samples).refused(&["--steps", "1"]);
        assert!(err.contains(wanted), "{samples:?}: {err}");
    }
}

/// Runs the command of the guide with `--dry-run`.
#[test]
fn the_command_of_the_guide_is_right() {
    let page = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/guide/fine-tuning.md"
    ))
    .expect("the guide");
    let command = page
        .split("cargo run --release -- finetune ")
        .nth(1)
        .expect("the command");
    let command = command.replace("\\\n", " ");
    let flags: Vec<&str> = command
        .lines()
        .next()
        .expect("a line")
        .split_whitespace()
        .collect();
    let end = run(&[&["finetune"], &flags[..], &["--dry-run", "--device", "emu"]].concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    let table = page
        .split("| samples ")
        .nth(1)
        .expect("the table")
        .lines()
        .next()
        .expect("a row");
    assert!(
        end.out.contains(table),
        "the guide has {table}, this is {}",
        end.out
    );
}
