//! Folders whose projections are in NF4 as bitsandbytes writes them, as a user has them.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::Value;
use tempfile::TempDir;
use warpwright_kernels::Format;
use warpwright_kernels::train::nested::{self, Nested};
use warpwright_kernels::train::nf4::{self, Nf4, VALUES};

use crate::folder::hugging_face;
use crate::program::{End, run};

#[path = "../../../tests/support/four_bit.rs"]
mod support;

use support::{Absmax, Packed, Tensor};

/// The folder of the small model in 16 bits, `wide`, and one with its projections in nested NF4, `nf4`.
fn folders() -> TempDir {
    let bench = tempfile::tempdir().expect("a folder for a test");
    let [wide, nf4] = ["wide", "nf4"].map(|name| bench.path().join(name));
    for folder in [&wide, &nf4] {
        fs::create_dir(folder).expect("a folder for a test");
    }

    hugging_face::write(&wide);
    for name in ["config.json", "tokenizer.json"] {
        fs::copy(wide.join(name), nf4.join(name)).expect("a file for a test");
    }

    let text = fs::read_to_string(nf4.join("config.json")).expect("the configuration");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["quantization_config"] = support::quantization_config();
    fs::write(nf4.join("config.json"), config.to_string()).expect("a file for a test");
    let tensors = support::read(&wide.join("model.safetensors"));
    let tensors: Vec<Tensor> = tensors.into_iter().flat_map(quantized).collect();
    support::write(&nf4.join("model.safetensors"), &tensors);
    fs::write(
        bench.path().join("data.jsonl"),
        "{\"text\": \"Iterators are lazy.\"}\n",
    )
    .expect("a file for a test");
    bench
}

/// The tensors of a projection in NF4; what is none stays as it is.
fn quantized(tensor: Tensor) -> Vec<Tensor> {
    let Some(name) = tensor.name.strip_suffix("_proj.weight") else {
        return vec![tensor];
    };

    assert_eq!(tensor.dtype, Dtype::F16);
    let Nf4 {
        packed: codes,
        absmax,
    } = nf4::quantize(&Format::F16.dequantize(&tensor.bytes));
    let Nested {
        codes: absmax,
        scales,
        offset,
    } = nested::quantize(&absmax);
    let absmax = Absmax::Nested {
        codes: absmax,
        scales,
        map: nested::dynamic_map().into(),
        offset,
    };
    let shape = [tensor.shape[0], tensor.shape[1]];
    Packed {
        shape,
        dtype: "float16",
        codes,
        absmax,
    }
    .tensors(&format!("{name}_proj"), &VALUES)
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

struct Bench(TempDir);

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn finetune(&self, model: &str, out: &str, more: &[&str]) -> End {
        let [model, data, out] = [model, "data.jsonl", out].map(|name| text(&self.path(name)));
        let few = [
            "--seq", "8", "--batch", "1", "--rank", "4", "--steps", "2", "--lr", "1e-2",
        ];
        let rest = [
            "--launch",
            "eager",
            "--warmup",
            "0",
            "--targets",
            "q_proj,down_proj",
            "--device",
            "emu",
        ];
        let start = ["finetune", &model, "--data", &data, "--out", &out];
        run(&[&start[..], &few, &rest, more].concat())
    }

    fn trained(&self, model: &str, out: &str, more: &[&str]) -> Vec<u8> {
        let end = self.finetune(model, out, more);
        assert_eq!(end.code, Some(0), "{end:?}");
        fs::read(self.path(out).join("adapter_model.safetensors")).expect("the adapter is there")
    }
}

/// What is quantized here and what another program quantized are the same numbers, and so give the same adapter. Decoding
/// reads the same numbers too, so that it has nothing to warn of.
#[test]
fn a_folder_in_nf4_is_trained_and_decoded_with_its_codes() {
    let bench = Bench(folders());
    let nested = bench.trained(
        "wide",
        "nested",
        &["--absmax", "nested", "--save-every", "1"],
    );
    assert!(
        nested == bench.trained("nf4", "own", &[]),
        "other bits with the file's codes"
    );
    assert!(
        nested != bench.trained("wide", "plain", &[]),
        "nested absmax changes nothing"
    );
    let notes =
        |out: &str| fs::read_to_string(bench.path(out).join("warpwright.json")).expect("notes");
    assert!(
        notes("nested").contains("\"nested NF4\": 56"),
        "{}",
        notes("nested")
    );
    assert!(notes("own").contains("\"NF4\": 56"), "{}", notes("own"));

    let checkpoint = text(&bench.path("nested/checkpoint-1"));
    let end = bench.finetune("wide", "again", &["--resume", &checkpoint]);
    let sentence = "the training had absmax = nested, and now it is not set";
    assert!(end.code == Some(2) && end.err.contains(sentence), "{end:?}");

    let [model, adapter] = ["nf4", "own"].map(|name| text(&bench.path(name)));
    let device = ["--adapter", &adapter, "--device", "emu"];
    let end = run(&[
        &[
            "run",
            &model,
            "--prompt-ids",
            "1,5",
            "-n",
            "1",
            "--print",
            "ids",
        ],
        &device[..],
    ]
    .concat());
    assert!(
        end.code == Some(0) && !end.err.contains("warning"),
        "{end:?}"
    );
    let end = run(&[&["info", &model], &device[..]].concat());
    assert!(
        end.out.contains("8 x F16 of NF4") && end.out.contains("on projections in 56 x NF4"),
        "{}",
        end.out
    );

    let out = text(&bench.path("merged"));
    let end = run(&["merge", &model, &adapter, "--out", &out]);
    let sentence = "tensor \"model.layers.0.self_attn.q_proj.weight\" is NF4: the adapter could be lost when the sum is rounded to NF4";
    assert!(end.code == Some(2) && end.err.contains(sentence), "{end:?}");
    assert!(!bench.path("merged").exists());
}
