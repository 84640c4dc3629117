//! `warpwright finetune` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::program::{End, MODEL, run};

const SAMPLES: &str = r#"{"text": "The borrow checker makes sure that references are valid."}
{"prompt": "A vector", "completion": " is a growable array."}

{"text": "Iterators are lazy.", "source": "left alone"}
"#;

struct Bench(TempDir);

impl Bench {
    fn new(samples: &str) -> Bench {
        let folder = tempfile::tempdir().expect("a folder for a test");
        fs::write(folder.path().join("data.jsonl"), samples).expect("a file for a test");
        Bench(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, out: &str, more: &[&str]) -> End {
        let [data, out] = [self.path("data.jsonl"), self.path(out)].map(|path| path.display().to_string());
        let arguments = ["finetune", MODEL, "--data", &data, "--out", &out, "--device", "emu"];
        let small = [["--seq", "16"], ["--batch", "1"], ["--rank", "4"], ["--targets", "q_proj,v_proj"]];
        let small = small.into_iter().filter(|[flag, _]| !more.contains(flag)).flatten();
        run(&arguments.into_iter().chain(small).chain(more.iter().copied()).collect::<Vec<_>>())
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
    let three = ["--steps", "3", "--launch", "eager", "--dropout", "0.1", "--warmup", "1"];
    let whole = bench.run("whole", &[&three[..], &["--save-every", "2"]].concat());
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(whole.out.contains("| samples "), "{}", whole.out);
    assert!(whole.out.contains("3 steps in "), "{}", whole.out);
    let metrics = fs::read_to_string(bench.path("whole/metrics.jsonl")).expect("metrics are there");
    assert_eq!(metrics.lines().count(), 3);
    let config = fs::read_to_string(bench.path("whole/adapter_config.json")).expect("the config is there");
    for key in [r#""peft_type": "LORA""#, r#""r": 4"#, r#""q_proj""#, r#""lora_dropout": 0.1"#] {
        assert!(config.contains(key), "{config}");
    }

    let checkpoint = bench.path("whole/checkpoint-2").display().to_string();
    let resumed = bench.run("resumed", &[&three[..], &["--resume", &checkpoint]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(bytes(&bench.path("whole")) == bytes(&bench.path("resumed")), "other bits after resuming");

    let last = ["--save-every", "1", "--resume", &checkpoint];
    let end = bench.run("last", &[&three[..], &last].concat());
    assert!(end.out.contains("1 steps in "), "{}", end.out);
    let checkpoint_of_all = bench.path("last/checkpoint-3").display().to_string();
    let end = bench.run("nothing", &[&three[..], &["--resume", &checkpoint_of_all]].concat());
    assert!(end.out.contains("no step was left to be trained"), "{}", end.out);
    assert!(bytes(&bench.path("whole")) == bytes(&bench.path("nothing")));

    let refused = bench.refused(&[&three[..], &["--resume", &checkpoint, "--lr", "1e-3"]].concat());
    assert!(refused.contains("the training had lr = 0.0002, and now it is 0.001"), "{refused}");
    let state = bench.path("whole/checkpoint-2/trainer_state.json");
    let text = fs::read_to_string(&state).expect("the state is there");
    fs::write(&state, text.replace("\"step\": 2", "\"step\": 9")).expect("the state can be changed");
    let refused = bench.refused(&[&three[..], &["--resume", &checkpoint]].concat());
    assert!(refused.contains("the checkpoint is of step 9, and the training has 3"), "{refused}");
    let end = bench.run("whole", &three);
    assert_eq!(end.code, Some(2));
    assert!(end.err.contains("is in use"), "{}", end.err);
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

#[test]
fn shows_a_plan_without_training() {
    let bench = Bench::new(SAMPLES);
    let end = bench.run("plan", &["--dry-run", "--epochs", "5"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    for row in ["| samples ", "| steps ", "| activations ", "| free on the device "] {
        assert!(end.out.contains(row), "{}", end.out);
    }
    assert!(!bench.path("plan").exists());
}

#[test]
fn refuses_early_by_name() {
    let bench = Bench::new(SAMPLES);
    let cases: [(&[&str], &str); 12] = [
        (&["--targets", "lm_head"], "no projection of that name"),
        (&["--rank", "0"], "rank is 0, must be at least 1"),
        (&["--dropout", "1"], "dropout is 1, must be from 0 to below 1"),
        (&["--seq", "4096"], "--seq 4096 is above the 2048 positions"),
        (&["--batch", "0"], "batch is 0, must be from 1 to 2^24"),
        (
            &["--grad-accum", "4294967296"],
            "the number of micro-batches is 4294967296, must be from 1 to 2^24",
        ),
        (&["--warmup", "nan"], "--warmup NaN is no number of steps"),
        (&["--clip", "0"], "--clip 0 is no norm"),
        (&["--save-every", "0"], "0 is not in 1.."),
        (&["--steps", "0"], "the number of steps is 0, must be at least 1"),
        (&["--lr=-1"], "--lr -1 is no learning rate"),
        (&["--resume", "/nowhere/checkpoint-1"], "cannot read /nowhere/checkpoint-1/trainer_state.json"),
    ];
    for (flags, wanted) in cases {
        let err = bench.refused(flags);
        assert!(err.contains(wanted), "{flags:?}: {err}");
    }
}

#[test]
fn refuses_samples_by_their_line() {
    let cases = [
        ("{\"text\": \"fine\"}\n{\"text\": 3}\n", "line 2: it has a \"text\" that is no string"),
        ("{\"text\": \"fine\"}\n\n{\"text\": \n", "line 3: it is no JSON"),
        ("[1]\n", "line 1: it is no JSON object"),
        ("{\"input\": \"x\"}\n", "line 1: it has the keys [input]"),
        ("{\"messages\": []}\n", "line 1: it is a conversation"),
        ("\n", "nothing is to be learned"),
    ];
    for (samples, wanted) in cases {
        let err = Bench::new(samples).refused(&["--steps", "1"]);
        assert!(err.contains(wanted), "{samples:?}: {err}");
    }
}

/// The command of the README, as far as that costs no time.
#[test]
fn the_command_of_the_readme_is_right() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).expect("README.md");
    let command = page.split("cargo run --release -- finetune ").nth(1).expect("the command");
    let command = command.replace("\\\n", " ");
    let flags: Vec<&str> = command.lines().next().expect("a line").split_whitespace().collect();
    let end = run(&[&["finetune"], &flags[..], &["--dry-run", "--device", "emu"]].concat());
    assert_eq!(end.code, Some(0), "{end:?}");
    let table = page.split("| samples ").nth(1).expect("the table").lines().next().expect("a row");
    assert!(end.out.contains(table), "README.md has {table}, this is {}", end.out);
}
