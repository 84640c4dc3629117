//! Checks which files of a crate may use each other, and which may read the environment.
//!
//! A file of a listed crate uses only files below it, so the graph of `crate::` and `super::` paths
//! has no cycle. Each file can therefore be read with the files that it uses, and without the files
//! that use it. The few remaining cycles are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates without cycles between their files, but for [`KNOTS`].
const LAYERED: &[&str] = &[
    "ptx-gen",
    "driver-sys",
    "driver",
    "cuda-emu",
    "model",
    "engine",
    "train",
    "xtask",
];

/// Files that all use each other, directly or indirectly:
///
/// - A graph, its nodes and its edges, because a node may contain graphs. A module and the images
///   from which it is made.
/// - The comparisons of PTX forms, which share the assembler.
const KNOTS: &[(&str, &[&str])] = &[
    (
        "driver",
        &[
            "graph/coherence.rs",
            "graph/conditional.rs",
            "graph/edge.rs",
            "graph/memory.rs",
            "graph/mod.rs",
            "graph/node.rs",
            "graph/parts.rs",
            "graph/words.rs",
        ],
    ),
    ("driver", &["image.rs", "module.rs"]),
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
        let graph = graph(&sources);
        let known: Vec<&[&str]> = KNOTS
            .iter()
            .filter(|knot| knot.0 == *library)
            .map(|knot| knot.1)
            .collect();
        assert_eq!(
            knots(&graph),
            known,
            "{library}: {}",
            cycle(&graph).unwrap_or_default().join(" -> ")
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

#[test]
fn a_cycle_is_found() {
    let file = |name: &str, text: &str| (name.to_string(), text.to_string());
    let sources = BTreeMap::from([
        file("lib.rs", "mod a; mod b; pub use a::A;"),
        file("a.rs", "use crate::b::{self, c::C, B};"),
        file("b/mod.rs", "pub(crate) mod c;"),
        file(
            "b/c.rs",
            "use super::super::a;\n#[cfg(test)]\nmod tests { use super::*; }",
        ),
    ]);
    let uses = |name: &str| graph(&sources)[name].iter().cloned().collect::<Vec<_>>();
    assert_eq!(uses("a.rs"), ["b/c.rs", "b/mod.rs"]);
    assert_eq!(uses("b/c.rs"), ["a.rs"]);
    assert_eq!(cycle(&graph(&sources)).unwrap(), ["a.rs", "b/c.rs", "a.rs"]);
    assert_eq!(knots(&graph(&sources)), [["a.rs", "b/c.rs"]]);

    let apart = BTreeMap::from([
        file("lib.rs", "use crate::a::A;"),
        file(
            "a.rs",
            "// crate::lib is named in a comment\nfn f() { crate::b::c::g() }",
        ),
        file("b/mod.rs", "use crate::b::c::C;"),
        file("b/c.rs", ""),
    ]);
    assert_eq!(cycle(&graph(&apart)), None);
    assert!(knots(&graph(&apart)).is_empty());

    let named_again = BTreeMap::from([
        file(
            "lib.rs",
            "mod a; mod b; pub use a::A; pub use b::{B, Other};",
        ),
        file("a.rs", "use crate::B;"),
        file("b.rs", "fn f(_: crate::A) {}"),
    ]);
    assert_eq!(
        cycle(&graph(&named_again)).unwrap(),
        ["a.rs", "b.rs", "a.rs"]
    );
}

/// The files of a crate and their text, by path below `src`.
fn sources(library: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(library)
        .join("src");
    let name = |path: &Path| {
        path.strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .replace('\\', "/")
    };
    let read = |path: PathBuf| (name(&path), std::fs::read_to_string(&path).unwrap());
    files(&root).into_iter().map(read).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"));
    rust.chain(folders.iter().flat_map(|folder| self::files(folder)))
        .collect()
}

/// For each file the files that it uses.
fn graph(sources: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let paths: BTreeMap<&String, Vec<Vec<String>>> = sources
        .iter()
        .map(|(file, text)| (file, paths(&code(text), &module(file))))
        .collect();
    let uses = |(file, named): (&&String, &Vec<Vec<String>>)| {
        let found = named
            .iter()
            .map(|path| file_of(sources, &paths, path))
            .filter(|used| used != *file);
        ((*file).clone(), found.collect())
    };
    paths.iter().map(uses).collect()
}

/// The module path of a file: `b/c.rs` is `[b, c]`, `b/mod.rs` is `[b]`, `lib.rs` is `[]`.
fn module(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_string)
        .collect();
    path.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    path
}

/// The text without comments and without the tests in it.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path from the root of the crate that the code of a module names, groups written out: those
/// that begin with `crate`, with `super` or with a module that it declares.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let children = code
        .split("mod ")
        .skip(1)
        .filter_map(|rest| Some(format!("{}::", rest.split_once(';')?.0)));
    let words: Vec<String> = ["crate::".into(), "super::".into()]
        .into_iter()
        .chain(children)
        .collect();
    for (start, word) in words
        .iter()
        .flat_map(|word| code.match_indices(word.as_str()))
    {
        let before = code[..start].chars().next_back();
        // The crate in `$crate` is the one that defines the macro, so such a path is skipped.
        if before.is_some_and(|c| c.is_alphanumeric() || ['_', ':', '$'].contains(&c)) {
            continue;
        }
        let mut rest = &code[start..];
        let mut base = if word == "crate::" {
            Vec::new()
        } else {
            module.to_vec()
        };
        rest = rest.strip_prefix("crate::").unwrap_or(rest);
        while let Some(above) = rest.strip_prefix("super::") {
            base.pop();
            rest = above;
        }
        tree(rest, &base, &mut found);
    }
    found
}

/// Reads a path or a group of paths at the start of `text`, and returns the rest of the text.
fn tree<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                next => return next.unwrap_or(rest).trim_start().trim_start_matches('}'),
            }
        }
    }
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let mut path = base.to_vec();
    path.extend((!word.is_empty() && word != "self").then(|| word.to_string()));
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest, &path, found),
        None => {
            found.push(path);
            rest.strip_prefix(" as ").map_or(rest, |alias| {
                alias.trim_start_matches(char::is_alphanumeric)
            })
        }
    }
}

/// Returns the file of the item that a path names. It is the file of the longest module in the
/// path, or the file from which that module re-exports the item.
fn file_of(
    sources: &BTreeMap<String, String>,
    paths: &BTreeMap<&String, Vec<Vec<String>>>,
    path: &[String],
) -> String {
    let found = (1..=path.len())
        .rev()
        .find_map(|len| Some((len, file_of_module(sources, &path[..len])?)));
    let root = if sources.contains_key("lib.rs") {
        "lib.rs"
    } else {
        "main.rs"
    };
    let (len, file) = found.unwrap_or((0, root.to_string()));
    let Some(item) = path.get(len) else {
        return file;
    };
    let again = |named: &&Vec<String>| {
        named.len() > len + 1 && named[..len] == path[..len] && named.last() == Some(item)
    };
    match paths.get(&file).into_iter().flatten().find(again) {
        Some(named) => file_of_module(sources, &named[..named.len() - 1]).unwrap_or(file),
        None => file,
    }
}

fn file_of_module(sources: &BTreeMap<String, String>, path: &[String]) -> Option<String> {
    let stem = path.join("/");
    [format!("{stem}.rs"), format!("{stem}/mod.rs")]
        .into_iter()
        .find(|file| sources.contains_key(file))
}

/// The sets of files that all use each other, directly or not.
fn knots(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let used: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|file| (file, used_by(file, graph)))
        .collect();
    let knot = |file: &String| -> Vec<String> {
        used[file]
            .iter()
            .filter(|other| used[**other].contains(file))
            .map(|other| (*other).clone())
            .collect()
    };
    let found: BTreeSet<Vec<String>> = graph
        .keys()
        .map(knot)
        .filter(|knot| !knot.is_empty())
        .collect();
    found.into_iter().collect()
}

/// Returns the files that a file uses, directly or indirectly.
fn used_by<'a>(
    file: &'a String,
    graph: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(next) = open.pop() {
        open.extend(graph[next].iter().filter(|used| found.insert(*used)));
    }
    found
}

/// A cycle of the graph, if there is one: its files, the first once more at the end.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|file| cycle_from(file, graph, &mut Vec::new(), &mut done))
}

fn cycle_from(
    file: &str,
    graph: &BTreeMap<String, BTreeSet<String>>,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|seen| seen == file) {
        return Some(
            path[start..]
                .iter()
                .cloned()
                .chain([file.to_string()])
                .collect(),
        );
    }
    if done.contains(file) {
        return None;
    }
    path.push(file.to_string());
    let found = graph[file]
        .iter()
        .find_map(|used| cycle_from(used, graph, path, done));
    path.pop();
    done.insert(file.to_string());
    found
}
