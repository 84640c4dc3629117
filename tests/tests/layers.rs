//! Checks which files of a crate may use each other, and which may read the environment.
//!
//! A file of a listed crate uses only files below it, so the graph of `crate::` and `super::` paths
//! has no cycle. Each file can therefore be read with the files that it uses, and without the files
//! that use it. The few remaining cycles are listed.

use std::path::Path;

use xtask::imports::{self, Sources};

/// The crates without cycles between their files, but for [`KNOTS`].
const LAYERED: &[&str] = &[
    "ptx-gen",
    "ptx-emu",
    "driver-sys",
    "driver",
    "cuda-emu",
    "model",
    "engine",
    "kernels",
    "train",
    "emu-cli",
    "cli",
    "xtask",
];

/// Files that all use each other, directly or indirectly:
///
/// - The comparisons of PTX forms, which share the assembler.
const KNOTS: &[(&str, &[&str])] = &[
    (
        "xtask",
        &["forms/mod.rs", "forms/operands.rs", "forms/page.rs"],
    ),
];

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
    for library in LAYERED {
        let sources = sources(library);
        assert!(sources.len() > 3, "{library}: the sources were not found");
        let graph = imports::file_graph(&sources);
        let known: Vec<&[&str]> = KNOTS
            .iter()
            .filter(|knot| knot.0 == *library)
            .map(|knot| knot.1)
            .collect();
        assert_eq!(
            imports::knots(&graph),
            known,
            "{library}: {}",
            imports::cycle(&graph).unwrap_or_default().join(" -> ")
        );
    }
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(library)
        .join("src");
    imports::read_sources(&folder).expect(library)
}
