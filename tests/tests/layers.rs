//! Checks which files of a crate may use each other, and which may read the environment.
//!
//! In every crate, a file uses only files below it, so the graph of `crate::` and `super::` paths
//! has no cycle. Each file can therefore be read with the files that it uses, and without the files
//! that use it.

use std::path::{Path, PathBuf};

use xtask::imports::{self, Sources};

/// The libraries, and the files that may read the environment.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("ptx-gen", &[]),
    ("ptx-emu", &[]),
    ("driver-sys", &["library.rs"]),
    // By the shared library only, never by a program that links the emulator.
    ("cuda-emu", &["environment.rs"]),
    ("driver", &[]),
    ("driver-derive", &[]),
    ("kernels", &[]),
    ("model", &[]),
    ("engine", &[]),
    ("train", &[]),
];

#[test]
fn files_form_layers() {
    let crates = imports::workspace_members(&root()).expect("the workspace has a list of crates");
    assert!(crates.len() > 12, "{crates:?}");
    for library in crates {
        let sources = sources(&library);
        assert!(!sources.is_empty(), "{library}: the sources were not found");
        let graph = imports::file_graph(&sources);
        assert_eq!(
            imports::knots(&graph),
            Vec::<Vec<String>>::new(),
            "{library}: {}",
            imports::cycle(&graph).unwrap_or_default().join(" -> ")
        );
    }
}

/// docs.rs shows the modules of the driver as an outline, in the order in which they use each other.
#[test]
fn modules_of_the_driver_form_layers() {
    let files = imports::file_graph(&sources("driver"));
    let modules = imports::folder_graph(&files, "");
    assert!(modules.contains_key("graph"), "{modules:?}");
    assert_eq!(imports::knots(&modules), Vec::<Vec<String>>::new());
}

#[test]
fn libraries_read_no_environment() {
    for (library, readers) in LIBRARIES {
        let reads = |text: &str| {
            ["env::var", "env::vars", "getenv"]
                .iter()
                .any(|read| text.contains(read))
        };
        let found: Vec<String> = sources(library)
            .into_iter()
            .filter(|(_, text)| reads(text))
            .map(|(file, _)| file)
            .collect();
        assert_eq!(
            found, *readers,
            "{library}: files that read the environment"
        );
    }
}

/// Returns the files of a crate and their text, by path below `src`.
fn sources(library: &str) -> Sources {
    imports::read_sources(&root().join(library).join("src")).expect(library)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
