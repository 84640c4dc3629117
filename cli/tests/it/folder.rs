//! Hugging Face folders and chat data, as a user has them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{End, run};

#[path = "../../../tests/support/hugging_face.rs"]
pub(crate) mod hugging_face;

const GGUF: &str = "tests/data/rustdoc-7m-F16.gguf";

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct Bench(TempDir);

impl Bench {
    fn new() -> Bench {
        let bench = Bench(tempfile::tempdir().expect("a folder for a test"));
        fs::create_dir(bench.path("model")).expect("a folder for a test");
        hugging_face::write(&bench.path("model"));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file for a test");
    }

    fn finetune(&self, model: &Path, out: &str, more: &[&str]) -> End {
        let [model, data, out] = [model.to_owned(), self.path("data.jsonl"), self.path(out)]
            .map(|path| path.to_str().expect("UTF-8").to_owned());
        let arguments = [
            "finetune", &model, "--data", &data, "--out", &out, "--device", "emu", "--batch", "1",
        ];
        run(&[&arguments[..], more].concat())
    }

    /// The end of a dry run on the folder, with these samples.
    fn dry(&self, samples: &str, more: &[&str]) -> End {
        self.write("data.jsonl", samples);
        self.finetune(
            &self.path("model"),
            "adapter",
            &[&["--dry-run", "--seq", "64"][..], more].concat(),
        )
    }

    fn losses(&self, out: &str) -> Vec<f64> {
        let text =
            fs::read_to_string(self.path(out).join("metrics.jsonl")).expect("metrics are there");
        let row = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["loss"].as_f64();
        text.lines()
            .map(|line| row(line).expect("a loss"))
            .collect()
    }
}

/// Rotary pairs are other elements of a head, so that scores are summed in another order.
#[test]
fn a_folder_is_trained_as_its_gguf_file() {
    let bench = Bench::new();
    hugging_face::begin_with_bos(&bench.path("model"));
    bench.write(
        "data.jsonl",
        "{\"text\": \"The borrow checker makes sure of it.\"}\n",
    );
    let mut few = vec![
        "--seq", "16", "--rank", "4", "--steps", "2", "--warmup", "0", "--lr", "1e-2",
    ];
    few.extend(["--launch", "eager", "--save-every", "1"]);
    let models = [
        ("gguf", PathBuf::from(GGUF)),
        ("folder", bench.path("model")),
    ];
    for (out, model) in &models {
        let end = bench.finetune(model, out, &few);
        assert_eq!(end.code, Some(0), "{end:?}");
    }

    let [gguf, folder] = ["gguf", "folder"].map(|out| bench.losses(out));
    assert_eq!(gguf.len(), 2);
    assert!(gguf[1] < gguf[0] - 0.1, "{gguf:?}");
    assert!(
        gguf.iter().zip(&folder).all(|(a, b)| (a - b).abs() < 1e-4),
        "{gguf:?} {folder:?}"
    );

    // The rows of B are in the order of the original model in both.
    let [gguf, folder] = ["gguf", "folder"].map(|out| {
        let bytes = fs::read(bench.path(out).join("adapter_model.safetensors"))
            .expect("the adapter is there");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
        let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
        let data = tensors.tensor(name).expect("a tensor").data().to_vec();
        data.chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect::<Vec<_>>()
    });
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    let far =
        norm(&mut gguf.iter().zip(&folder).map(|(a, b)| a - b)) / norm(&mut gguf.iter().copied());
    assert!(far < 0.05, "{far}");

    // A checkpoint is of all files of the folder.
    bench.write("model/generation_config.json", "{}");
    let checkpoint = bench.path("folder/checkpoint-1");
    few.extend(["--resume", checkpoint.to_str().expect("UTF-8")]);
    let end = bench.finetune(&bench.path("model"), "again", &few);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.err
            .contains("the training had model generation_config.json = 195 bytes"),
        "{}",
        end.err
    );
}

const TALK: &str = r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}]}"#;

#[test]
fn conversations_are_learned_where_the_assistant_speaks() {
    let bench = Bench::new();
    bench.write("model/chat_template.jinja", CHATML);
    let row = |end: &End, name: &str| {
        let line = end
            .out
            .lines()
            .find(|line| line.starts_with(&format!("| {name} ")));
        line.unwrap_or_else(|| panic!("{end:?}"))
            .split('|')
            .nth(2)
            .expect("a cell")
            .trim()
            .to_owned()
    };
    let end = bench.dry(&format!("{TALK}\n"), &[]);
    let some = row(&end, "tokens");
    let all = row(
        &bench.dry(&format!("{TALK}\n"), &["--train-on-prompt"]),
        "tokens",
    );
    assert_eq!(some.split(',').next(), all.split(',').next());
    assert!(
        all.ends_with("% of them learned") && all != some,
        "{some}, {all}"
    );
    let share = r#"{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes."}]}"#;
    assert_eq!(row(&bench.dry(share, &[]), "tokens"), some);

    // Another way to say the same.
    bench.write("model/chat_template.jinja", &CHATML.replace("{{ m.content }}<|im_end|>\n", "{% if m.role == 'assistant' %}\
         {% generation %}{{ m.content }}<|im_end|>{{ '\n' }}{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{{ '\n' }}{% endif %}"));
    assert_eq!(row(&bench.dry(TALK, &[]), "tokens"), some);
}

#[test]
fn refuses_conversations_with_file_and_line() {
    let bench = Bench::new();
    let refused = |samples: &str, more: &[&str]| {
        let end = bench.dry(samples, more);
        assert_eq!((end.code, end.out.as_str()), (Some(2), ""), "{end:?}");
        end.err.replace(&bench.path("").display().to_string(), "")
    };
    let begins =
        |error: String, wanted: &str| assert!(error.starts_with(wanted), "{error}, not {wanted}");
    begins(
        refused(&format!("\n{TALK}"), &[]),
        "error: data.jsonl, line 2: it is a conversation, and the model has no chat template",
    );
    bench.write("model/chat_template.jinja", "{% for m in %}");
    begins(
        refused(TALK, &[]),
        "error: model/chat_template.jinja: the chat template fails in line 1: syntax error",
    );
    bench.write(
        "model/chat_template.jinja",
        "{{ raise_exception('Say less!') }}",
    );
    begins(
        refused(TALK, &[]),
        "error: data.jsonl, line 1: it cannot be rendered: the chat template refuses the conversation in line 1: Say less!",
    );
    bench.write("model/chat_template.jinja", CHATML);
    begins(
        refused(r#"{"messages": [{"role": "user", "content": "Hi"}]}"#, &[]),
        "error: data.jsonl, line 1: it has no message of the assistant",
    );
    begins(
        refused(r#"{"messages": [{"role": "user"}]}"#, &[]),
        "error: data.jsonl, line 1: it has a message 1 without a \"content\" that is a string",
    );
    begins(
        refused(TALK, &["--date", "today"]),
        "error: invalid value 'today' for '--date <DATE>': expected a date, such as",
    );
    fs::remove_file(bench.path("model/tokenizer.json")).expect("a file to remove");
    begins(
        refused(TALK, &[]),
        "error: model: the folder has no tokenizer.json",
    );
}

#[test]
fn a_file_of_the_folder_is_not_written_over() {
    let bench = Bench::new();
    let [model, out] = [bench.path("model"), bench.path("model/config.json")];
    let end = run(&[
        "logits",
        model.to_str().expect("UTF-8"),
        "--ids",
        "1",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.err
            .ends_with("is the model that the command reads; name another file\n"),
        "{}",
        end.err
    );
    let end = run(&["info", model.to_str().expect("UTF-8"), "--device", "emu"]);
    assert!(
        end.out
            .contains("| self_attn.q_proj.weight         | 256 x 256  | 8 x F16 |"),
        "{}",
        end.out
    );
}

/// Keys of `generation_config.json` that change texts and are not read are named, and `info` shows those that are.
#[test]
fn what_is_not_followed_of_generation_config_is_named() {
    let bench = Bench::new();
    let model = bench.path("model").to_str().expect("UTF-8").to_owned();
    let config = r#"{"num_beams": 4, "temperature": 0.6, "top_k": 20, "no_repeat_ngram_size": 0, "max_length": 99,
                     "eta_cutoff": 0.002, "chat_format": "chatml"}"#;
    bench.write("model/generation_config.json", config);
    let warning = "warning: generation_config.json has settings that are not supported and are ignored: num_beams (4), \
                   eta_cutoff (0.002), chat_format (\"chatml\")\n";
    let end = run(&["run", &model, "--device", "emu", "--prompt-ids", "5000"]);
    let error = "error: token 0 of the prompt is 5000, but the vocabulary has 4096 tokens\n";
    assert_eq!((end.code, end.err), (Some(2), format!("{warning}{error}")));
    let end = run(&["info", &model, "--device", "emu"]);
    let row = |line: &str| end.out.contains(line);
    assert!(
        row("temperature 0.6, top_k 20 (generation_config.json)"),
        "{}",
        end.out
    );
    assert!(row(warning.trim_end()), "{}", end.out);
    bench.write("model/generation_config.json", r#"{"top_p": 1.5}"#);
    let end = run(&["run", &model, "--device", "emu", "--prompt-ids", "1"]);
    let sentence = "generation_config.json: key \"top_p\" is 1.5; expected 0.000001 to 1\n";
    assert!(
        end.code == Some(2) && end.err.ends_with(sentence),
        "{end:?}"
    );
}
