//! Tests of the engine: the forward pass on the emulator, and files that its kernels read.

mod adapter;
mod adapter_files;
mod batch;
mod batch_adapters;
mod batch_drafts;
mod batch_embed;
mod batch_grammar;
mod batch_items;
mod batch_lone;
mod batch_rounding;
mod changes;
mod chunk_experts;
mod decode;
mod experts;
mod folder_families;
mod gpt_oss;
mod grammar;
mod info;
mod lora_gguf;
mod measured;
mod merge;
mod not_finite;
mod operations;
mod oracle;
mod outliers;
mod pipeline;
mod pipeline_experts;
mod prefill;
mod prefix_cache;
mod quantize;
mod random;
mod rope;
mod rounding;
mod sampling;
mod scores;
mod sizes;
mod speculative;
mod synth;
mod transformers;

use std::path::{Path, PathBuf};

#[expect(dead_code, reason = "the program prints, the test follows")]
#[path = "../../../model/examples/masks.rs"]
mod masks;

#[path = "../../../tests/support/families.rs"]
mod families;
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../../tests/support/folders.rs"]
mod folders;
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../../tests/support/hugging_face.rs"]
mod hugging_face;
#[path = "../../../tests/support/splitmix.rs"]
mod splitmix;
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../../tests/support/write.rs"]
mod write;

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The small model that the repository carries.
fn asset() -> PathBuf {
    repository("assets/rustdoc-7m-Q4_K_M.gguf")
}

/// What an independent float64 implementation says of the small model: for each quantization and prompt the
/// tokens, the greedy continuation and the eight largest logits of each step.
fn reference() -> serde_json::Value {
    let text = std::fs::read_to_string(repository("tests/data/reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The small model in each quantization, by the reference's names.
fn models() -> [(&'static str, PathBuf); 4] {
    [
        ("F16", repository("tests/data/rustdoc-7m-F16.gguf")),
        ("Q8_0", quantize::q8_0()),
        ("Q4_0", quantize::q4_0()),
        ("Q4_K_M", asset()),
    ]
}

fn ids(list: &serde_json::Value) -> Vec<u32> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap() as u32)
        .collect()
}

/// A path of this name in a folder of the running test: tests run beside others, and may choose the same name.
fn scratch(name: &str) -> PathBuf {
    let thread = std::thread::current();
    let test = thread
        .name()
        .expect("a test's thread has its name")
        .replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

impl write::File {
    /// Writes the file into the test's own folder.
    pub(crate) fn save(&self, name: &str) -> PathBuf {
        let path = scratch(name);
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}
