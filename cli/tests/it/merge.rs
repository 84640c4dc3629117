//! `warpwright merge` as a user runs it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tempfile::TempDir;
use warpwright_model::Model;
use warpwright_model::adapter::names;
use warpwright_model::gguf::Gguf;

use crate::folder::hugging_face;
use crate::program::{End, MODEL, command, run};
use crate::signals::signal;

const GGUF: &str = "tests/data/rustdoc-7m-F16.gguf";

/// A folder with the small model as a folder, `model`, and an adapter of it, `adapter`.
struct Bench(TempDir);

impl Bench {
    fn new() -> Bench {
        let bench = Bench(tempfile::tempdir().expect("a folder for a test"));
        fs::create_dir(bench.0.path().join("model")).expect("a folder for a test");
        hugging_face::write(&bench.0.path().join("model"));
        write_adapter(&bench.0.path().join("adapter"));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file for a test");
    }

    /// Merges, with paths of this folder but for the model, and says of each path how it stands there.
    fn merge(&self, model: &str, out: &str, more: &[&str]) -> End {
        let model = if Path::new(model).is_relative() {
            model.to_owned()
        } else {
            self.text(&model[1..])
        };
        let [adapter, out] = [self.text("adapter"), self.text(out)];
        let end = run(&[&["merge", &model, &adapter, "--out", &out], more].concat());
        End {
            err: end.err.replace(&self.text(""), "/"),
            ..end
        }
    }

    fn logits(&self, model: &str, more: &[&str]) -> Vec<f64> {
        let out = self.text("logits");
        let end = run(&[
            &[
                "logits", model, "--ids", "1,500", "--device", "emu", "--out", &out,
            ],
            more,
        ]
        .concat());
        assert_eq!(end.code, Some(0), "{end:?}");
        let bytes = fs::read(&out).expect("the logits are there");
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into())
            .collect()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("the folder is there");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
        let mut names: Vec<String> = entries
            .map(|entry| name(entry.expect("an entry")))
            .collect();
        names.sort_unstable();
        names
    }
}

/// An adapter of rank 2 of two projections of all layers.
fn write_adapter(folder: &Path) {
    let model =
        Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(GGUF)).expect("a model");
    let mut tensors = vec![];
    for (l, block) in model.outline.weights.blocks.iter().enumerate() {
        for (p, weight) in [(0, &block.q), (6, block.down.as_ref().unwrap())] {
            let [n, rows] = [weight.row_len(), weight.rows()].map(|n| n as usize);
            for (factor, shape) in [("A", [2, n]), ("B", [rows, 2])] {
                let number = |i: usize| ((i * 7 + l) as f32).sin() / (n as f32).sqrt();
                let bytes: Vec<u8> = (0..shape[0] * shape[1])
                    .flat_map(|i| number(i).to_le_bytes())
                    .collect();
                tensors.push((names::tensor(l, p, factor), shape, bytes));
            }
        }
    }

    let views = tensors.iter().map(|(name, shape, bytes)| {
        (
            name,
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("a tensor"),
        )
    });
    fs::create_dir(folder).expect("a folder for a test");
    let bytes = safetensors::serialize(views, None).expect("an adapter");
    fs::write(folder.join("adapter_model.safetensors"), bytes).expect("a file for a test");
    let settings = json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"],
    });
    fs::write(folder.join("adapter_config.json"), settings.to_string()).expect("a file for a test");
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

#[test]
fn merged_models_decode_as_the_adapter_beside_its_base() {
    let bench = Bench::new();
    bench.write("model/chat_template.jinja", "{{ messages }}");
    fs::create_dir(bench.path("folder")).expect("an empty folder");
    for (model, out) in [(GGUF, "merged.gguf"), ("/model", "folder")] {
        let end = bench.merge(model, out, &[]);
        assert_eq!((end.code, end.out.as_str()), (Some(0), ""), "{end:?}");
        let lines: Vec<&str> = end.err.lines().collect();
        let took = "merged 16 projections, adapter of rank 2, alpha 16; 0.";
        assert!(
            lines[0].starts_with(took)
                && lines[0].ends_with(" % of the change was lost to rounding"),
            "{end:?}"
        );
        assert_eq!(lines[1..], [format!("the merged model is in /{out}")]);
    }

    let adapter = bench.text("adapter");
    let base = bench.logits(GGUF, &[]);
    let wanted = bench.logits(GGUF, &["--adapter", &adapter]);
    for merged in ["merged.gguf", "folder"] {
        let found = bench.logits(&bench.text(merged), &[]);
        let (near, far) = (distance(&found, &wanted), distance(&base, &wanted));
        assert!(near < 2e-4 && far > 0.01, "{merged}: {near:e} and {far:e}");
    }

    assert_eq!(bench.names("folder"), bench.names("model"));
    for name in bench
        .names("folder")
        .iter()
        .filter(|name| *name != "model.safetensors")
    {
        let read =
            |folder: &str| fs::read(bench.path(folder).join(name)).expect("the file is there");
        assert!(read("folder") == read("model"), "{name}");
    }

    assert_eq!(
        bench.names(""),
        ["adapter", "folder", "logits", "merged.gguf", "model"]
    );
}

/// As a download has it: links into a store. What else is there would be weights without the adapter.
#[test]
fn links_are_followed_and_old_weights_are_left() {
    let bench = Bench::new();
    fs::rename(bench.path("model"), bench.path("blobs")).expect("a folder that moves");
    fs::create_dir(bench.path("model")).expect("a folder for a test");
    for name in bench.names("blobs") {
        symlink(
            bench.path("blobs").join(&name),
            bench.path("model").join(&name),
        )
        .expect("a link");
    }

    bench.write("model/pytorch_model.bin", "old");
    bench.write("model/.gitattributes", "");
    bench.write("model/LICENSE", "MIT");
    fs::create_dir(bench.path("model/original")).expect("a folder for a test");
    let before = fs::read(bench.path("blobs/model.safetensors")).expect("the weights");
    let end = bench.merge("/model", "out", &[]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let note = "note: not copied, because the merged model does not need them: original, pytorch_model.bin\n";
    assert!(end.err.starts_with(note), "{}", end.err);
    let names = [
        "LICENSE",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ];
    assert_eq!(bench.names("out"), names);
    assert!(
        names
            .iter()
            .all(|name| !bench.path("out").join(name).is_symlink())
    );
    assert!(fs::read(bench.path("blobs/model.safetensors")).expect("the weights") == before);
    fs::remove_file(bench.path("blobs/generation_config.json")).expect("a file to remove");
    let end = bench.merge("/model", "again", &[]);
    let err = "error: cannot open /model/generation_config.json: No such file or directory (os error 2)\n";
    assert_eq!((end.code, end.err.as_str()), (Some(2), err));
    assert_eq!(bench.names(""), ["adapter", "blobs", "model", "out"]);
}

#[test]
fn llama_cpp_gets_an_adapter_of_its_own() {
    let bench = Bench::new();
    bench.write(
        "adapter/warpwright.json",
        &json!({"base_formats": {"NF4": 56}}).to_string(),
    );
    let warning = |has: &str| {
        format!(
            "warning: the adapter was trained on projections in 56 x NF4, and this model has {has}: the adapter may \
             compensate for rounding that does not occur here\n"
        )
    };
    let files = [
        (MODEL, "a.gguf", "48 x Q4_K, 8 x Q6_K"),
        ("/model", "b.gguf", "56 x F16"),
    ];
    for (model, out, has) in files {
        let end = bench.merge(model, out, &["--as", "lora-gguf"]);
        assert_eq!(
            (end.code, end.err),
            (
                Some(0),
                warning(has) + &format!("the adapter is in /{out}\n")
            )
        );
    }

    let [a, b] =
        ["a.gguf", "b.gguf"].map(|name| fs::read(bench.path(name)).expect("the file is there"));
    assert!(a == b);
    let file = Gguf::open(&bench.path("a.gguf")).expect("a GGUF file");
    assert_eq!(file.directory.tensors.len(), 32);
    assert_eq!(
        file.directory.tensors["blk.7.ffn_down.weight.lora_b"].dims,
        [2, 256]
    );
    let end = bench.merge(GGUF, "m.gguf", &[]);
    assert!(end.err.starts_with(&warning("56 x F16")), "{end:?}");
}

/// Model, output, what more, exit code and sentence.
type Refusal = (
    &'static str,
    &'static str,
    &'static [&'static str],
    i32,
    &'static str,
);

const LORA: &[&str] = &["--as", "lora-gguf"];

#[rustfmt::skip] // one case a line
const REFUSALS: [Refusal; 12] = [
    (GGUF, "out", &[], 2, "--out /out must be a GGUF file like the model: choose a name that ends in .gguf"),
    ("/model", "out.gguf", &[], 2, "--out /out.gguf must be a folder like the model: choose a name that does not end in .gguf, and convert the folder with llama.cpp's convert_hf_to_gguf.py"),
    ("/model", "out", LORA, 2, "--out /out must be a GGUF file, because llama.cpp reads adapters from GGUF files: choose a name that ends in .gguf"),
    (MODEL, "out.gguf", &[], 2, "assets/rustdoc-7m-Q4_K_M.gguf: tensor \"blk.0.attn_q.weight\" is Q4_K: the adapter could be lost when the sum is rounded to Q4_K. Decode with `run --adapter`, or merge into the model in F32, F16 or BF16"),
    ("/model", "used", &[], 2, "--out /used is not empty; name an empty or a new folder"),
    ("/model", "model", &[], 2, "--out /model is not empty; name an empty or a new folder"),
    ("/model", "file", &[], 2, "--out /file cannot be used: Not a directory (os error 20); name a new or an empty folder"),
    ("/model", "no/out", &[], 1, "cannot write /no/out: No such file or directory (os error 2)"),
    (GGUF, "no/out.gguf", &[], 1, "cannot write /no/out.gguf: No such file or directory (os error 2)"),
    (GGUF, "full.gguf", &[], 1, "cannot write /full.gguf: No space left on device (os error 28)"),
    (GGUF, "link.gguf", LORA, 2, "--out /link.gguf is the adapter that the command reads; name another file"),
    ("/none", "out", &[], 2, "cannot open /none: No such file or directory (os error 2)"),
];

#[test]
fn refuses_in_one_sentence_and_leaves_nothing() {
    let bench = Bench::new();
    fs::create_dir(bench.path("used")).expect("a folder for a test");
    bench.write("used/file", "");
    bench.write("file", "");
    symlink("/dev/full", bench.path("full.gguf")).expect("a link");
    fs::hard_link(
        bench.path("adapter/adapter_model.safetensors"),
        bench.path("link.gguf"),
    )
    .expect("a link");
    let before = bench.names("");
    for (model, out, more, code, sentence) in REFUSALS {
        let wanted = End {
            code: Some(code),
            out: String::new(),
            err: format!("error: {sentence}\n"),
        };
        assert_eq!(bench.merge(model, out, more), wanted);
        assert_eq!(bench.names(""), before, "{out}");
    }

    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(GGUF);
    fs::copy(model, bench.path("m.gguf")).expect("a copy");
    let sentence = "error: --out /m.gguf is the model that the command reads; name another file\n";
    assert_eq!(bench.merge("/m.gguf", "m.gguf", &[]).err, sentence);
    bench.write(
        "adapter/adapter_config.json",
        "{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1}",
    );
    let sentence = "error: /adapter/adapter_config.json: \"r\" is 0, but must be a whole number from 1 to 256\n";
    assert_eq!(bench.merge("/model", "out", &[]).err, sentence);
}

/// The logits of a command with an adapter are not written over it.
#[test]
fn an_adapter_is_no_output() {
    let bench = Bench::new();
    let [adapter, out] = [
        bench.text("adapter"),
        bench.text("adapter/adapter_config.json"),
    ];
    let end = run(&[
        "logits",
        GGUF,
        "--adapter",
        &adapter,
        "--ids",
        "1",
        "--out",
        &out,
        "--device",
        "emu",
    ]);
    let err =
        format!("error: --out {out} is the adapter that the command reads; name another file\n");
    assert_eq!((end.code, end.err), (Some(2), err));
}

#[test]
fn a_signal_leaves_no_half_folder() {
    let bench = Bench::new();

    // A hole that takes long to copy.
    let hole = fs::File::create(bench.path("model/notes.txt")).expect("a file for a test");
    hole.set_len(1 << 33).expect("a sparse file");
    let [model, adapter, out] = ["model", "adapter", "out"].map(|name| bench.text(name));
    let mut child = command(&["merge", &model, &adapter, "--out", &out])
        .spawn()
        .expect("the program starts");
    let copies = || {
        let hidden = bench
            .names("")
            .into_iter()
            .find(|name| name.starts_with(".warpwright-"));
        hidden.is_some_and(|name| bench.path(&name).join("notes.txt").exists())
    };
    while !copies() {
        assert_eq!(child.try_wait().expect("it runs"), None);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }

    signal(&child, "TERM");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!((end.code, end.err.as_str()), (Some(143), ""));
    assert_eq!(bench.names(""), ["adapter", "model"]);
}

#[test]
fn a_file_that_exists_is_not_replaced() {
    let bench = Bench::new();
    let [adapter, out] = [bench.text("adapter"), bench.text("kept.gguf")];
    fs::write(&out, "kept").expect("a file for a test");
    let end = run(&["merge", GGUF, &adapter, "--out", &out]);
    let err = format!("error: --out {out} exists; name another file, or remove it first\n");
    assert_eq!((end.code, end.err), (Some(2), err));
    assert_eq!(fs::read_to_string(&out).expect("it is there"), "kept");
}
