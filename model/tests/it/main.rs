//! Tests of models without a device: files, tokens, templates and grammars.

mod chat;
mod config;
mod divisions;
mod experts;
mod folder;
mod folder_families;
mod four_bit;
mod gguf;
mod info;
mod jinja;
mod keys;
mod schemas;
mod sentencepiece;
mod split;
mod stop;
mod strings;
mod tekken;
mod templates;
mod tokenizer;
mod tokenizer_json;

use std::path::{Path, PathBuf};

#[allow(dead_code)] // The tests of the engine use the rest.
#[path = "../../../tests/support/families.rs"]
mod families;
#[allow(dead_code)] // The tests of the engine use the rest.
#[path = "../../../tests/support/folders.rs"]
mod folders;
#[allow(dead_code)] // The tests of the engine use the rest.
#[path = "../../../tests/support/hugging_face.rs"]
mod hugging_face;
#[path = "../../../tests/support/splitmix.rs"]
mod splitmix;
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
