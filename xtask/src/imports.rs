//! Which files of a crate import from which other files of the crate.
//!
//! The graph is read from the text of the files: every path that begins with `crate`, with `super`
//! or with a declared submodule is an import. A path to an item that a module re-exports counts as
//! an import from the file that defines the item. Comments and unit tests are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The text of each file of a crate, by path below `src`, such as `graph/edge.rs`.
pub type Sources = BTreeMap<String, String>;

/// For each file or folder, the other ones from which it imports.
pub type ImportGraph = BTreeMap<String, BTreeSet<String>>;

/// Returns the folders of the workspace's crates, from the manifest in `root`.
pub fn workspace_members(root: &Path) -> io::Result<Vec<String>> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let members = manifest
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .ok_or_else(|| io::Error::other("Cargo.toml has no list of members"))?
        .0;
    Ok(members
        .split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .filter(|member| !member.is_empty())
        .collect())
}

/// Reads the Rust files below a folder, which is usually the `src` of a crate.
pub fn read_sources(folder: &Path) -> io::Result<Sources> {
    let mut found = vec![];
    collect_rust_files(folder, &mut found)?;
    let mut sources = Sources::new();
    for path in found {
        let name = path
            .strip_prefix(folder)
            .expect("the file is below the folder")
            .to_string_lossy()
            .replace('\\', "/");
        sources.insert(name, fs::read_to_string(&path)?);
    }

    Ok(sources)
}

fn collect_rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the imports of each file.
pub fn file_graph(sources: &Sources) -> ImportGraph {
    let paths: PathsByFile = sources
        .iter()
        .map(|(file, text)| (file.as_str(), named_paths(&code(text), &module(file))))
        .collect();
    paths
        .iter()
        .map(|(file, named)| {
            let used = named
                .iter()
                .map(|path| file_of(sources, &paths, path))
                .filter(|used| used != file)
                .collect();
            (file.to_string(), used)
        })
        .collect()
}

/// Returns the imports between the folders and loose files directly below `inside`, which is a
/// folder such as `machine`, or empty for the whole crate.
///
/// The root of the crate and the `mod.rs` of `inside` are left out, because they only declare the
/// others.
pub fn folder_graph(files: &ImportGraph, inside: &str) -> ImportGraph {
    let mut folders = ImportGraph::new();
    for (file, used) in files {
        let Some(folder) = entry_below(file, inside) else {
            continue;
        };
        let others = used
            .iter()
            .filter_map(|used| entry_below(used, inside))
            .filter(|other| *other != folder)
            .map(str::to_owned)
            .collect::<Vec<_>>();
        folders.entry(folder.to_owned()).or_default().extend(others);
    }
    folders
}

/// Returns the folder or the loose file, without `.rs`, that contains `file` directly below
/// `inside`.
fn entry_below<'a>(file: &'a str, inside: &str) -> Option<&'a str> {
    let below = if inside.is_empty() {
        file
    } else {
        file.strip_prefix(inside)?.strip_prefix('/')?
    };
    match below.split_once('/') {
        Some((folder, _)) => Some(folder),
        None => match below.strip_suffix(".rs")? {
            "lib" | "main" | "mod" => None,
            name => Some(name),
        },
    }
}

/// Returns the sets of files or folders that all import each other, directly or not.
pub fn knots(graph: &ImportGraph) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|node| (node.as_str(), reachable_from(node, graph)))
        .collect();
    let knot_of = |node: &String| -> Vec<String> {
        reachable[node.as_str()]
            .iter()
            .filter(|other| reachable[**other].contains(node.as_str()))
            .map(|other| other.to_string())
            .collect()
    };
    let knots: BTreeSet<Vec<String>> = graph
        .keys()
        .map(knot_of)
        .filter(|knot| !knot.is_empty())
        .collect();
    knots.into_iter().collect()
}

/// Returns the nodes that `node` imports, directly or not. A node of a cycle imports itself.
pub fn reachable_from<'a>(node: &str, graph: &'a ImportGraph) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![node];
    while let Some(next) = open.pop() {
        for used in &graph[next] {
            if found.insert(used.as_str()) {
                open.push(used);
            }
        }
    }

    found
}

/// Returns a cycle, if there is one: its files, with the first one again at the end.
pub fn cycle(graph: &ImportGraph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|file| cycle_from(file, graph, &mut vec![], &mut done))
}

/// Searches depth first from `file`. `path` leads to it, and nothing in `done` leads to a cycle.
fn cycle_from(
    file: &str,
    graph: &ImportGraph,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|seen| seen == file) {
        let mut cycle = path[start..].to_vec();
        cycle.push(file.to_owned());
        return Some(cycle);
    }

    if done.contains(file) {
        return None;
    }

    path.push(file.to_owned());
    let found = graph[file]
        .iter()
        .find_map(|used| cycle_from(used, graph, path, done));
    path.pop();
    done.insert(file.to_owned());
    found
}

/// The paths from the root of the crate that each file names.
type PathsByFile<'a> = BTreeMap<&'a str, Vec<Vec<String>>>;

/// Returns the module path of a file: `b/c.rs` is `[b, c]`, `b/mod.rs` is `[b]`, `lib.rs` is `[]`.
fn module(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    path.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    path
}

/// Returns the text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths from the root of the crate that the code of a module names, with groups
/// written out. They begin with `crate`, with `super` or with a module that it declares.
fn named_paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = vec![];
    let children = code
        .split("mod ")
        .skip(1)
        .filter_map(|rest| Some(format!("{}::", rest.split_once(';')?.0)));
    let starts: Vec<String> = ["crate::".to_owned(), "super::".to_owned()]
        .into_iter()
        .chain(children)
        .collect();
    let matches = starts
        .iter()
        .flat_map(|start| code.match_indices(start.as_str()));
    for (at, start) in matches {
        let before = code[..at].chars().next_back();

        // The crate in `$crate` is the one that defines the macro, so such a path is skipped.
        if before.is_some_and(|c| c.is_alphanumeric() || ['_', ':', '$'].contains(&c)) {
            continue;
        }

        let mut rest = &code[at..];
        let mut base = if start == "crate::" {
            vec![]
        } else {
            module.to_vec()
        };
        rest = rest.strip_prefix("crate::").unwrap_or(rest);
        while let Some(above) = rest.strip_prefix("super::") {
            base.pop();
            rest = above;
        }

        read_tree(rest, &base, &mut found);
    }

    found
}

/// Reads a path or a group of paths at the start of `text`, and returns the rest of the text.
fn read_tree<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = read_tree(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                next => {
                    return next.unwrap_or(rest).trim_start().trim_start_matches('}');
                }
            }
        }
    }

    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let mut path = base.to_vec();
    if !word.is_empty() && word != "self" {
        path.push(word.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return read_tree(rest, &path, found);
    }

    found.push(path);
    rest.strip_prefix(" as ").map_or(rest, |alias| {
        alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
    })
}

/// Returns the file of the item that a path names. It is the file of the longest module in the
/// path, or the file from which that module re-exports the item.
fn file_of(sources: &Sources, paths: &PathsByFile<'_>, path: &[String]) -> String {
    let longest = (1..=path.len())
        .rev()
        .find_map(|len| Some((len, file_of_module(sources, &path[..len])?)));
    let root = if sources.contains_key("lib.rs") {
        "lib.rs"
    } else {
        "main.rs"
    };
    let (len, file) = longest.unwrap_or((0, root.to_owned()));
    let Some(item) = path.get(len) else {
        return file;
    };

    let reexports_item = |named: &&Vec<String>| {
        named.len() > len + 1 && named[..len] == path[..len] && named.last() == Some(item)
    };
    let reexport = paths
        .get(file.as_str())
        .into_iter()
        .flatten()
        .find(reexports_item);
    match reexport {
        Some(named) => file_of_module(sources, &named[..named.len() - 1]).unwrap_or(file),
        None => file,
    }
}

fn file_of_module(sources: &Sources, path: &[String]) -> Option<String> {
    let stem = path.join("/");
    [format!("{stem}.rs"), format!("{stem}/mod.rs")]
        .into_iter()
        .find(|file| sources.contains_key(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        files
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect()
    }

    #[test]
    fn a_cycle_is_found() {
        let graph = file_graph(&sources(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use crate::b::{self, c::C, B};"),
            ("b/mod.rs", "pub(crate) mod c;"),
            (
                "b/c.rs",
                "use super::super::a;\n#[cfg(test)]\nmod tests { use super::*; }",
            ),
        ]));
        let used = |name: &str| graph[name].iter().cloned().collect::<Vec<_>>();
        assert_eq!(used("a.rs"), ["b/c.rs", "b/mod.rs"]);
        assert_eq!(used("b/c.rs"), ["a.rs"]);
        assert_eq!(cycle(&graph).unwrap(), ["a.rs", "b/c.rs", "a.rs"]);
        assert_eq!(knots(&graph), [["a.rs", "b/c.rs"]]);
    }

    #[test]
    fn layers_have_no_cycle() {
        let graph = file_graph(&sources(&[
            ("lib.rs", "use crate::a::A;"),
            (
                "a.rs",
                "// crate::lib is named in a comment\nfn f() { crate::b::c::g() }",
            ),
            ("b/mod.rs", "use crate::b::c::C;"),
            ("b/c.rs", ""),
        ]));
        assert_eq!(cycle(&graph), None);
        assert!(knots(&graph).is_empty());
    }

    #[test]
    fn an_alias_does_not_end_a_group() {
        let graph = file_graph(&sources(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::{b::B as with_b, c::C};"),
            ("b.rs", ""),
            ("c.rs", ""),
        ]));
        assert_eq!(graph["a.rs"], ["b.rs", "c.rs"].map(str::to_owned).into());
    }

    #[test]
    fn a_reexported_item_belongs_to_the_file_that_defines_it() {
        let graph = file_graph(&sources(&[
            (
                "lib.rs",
                "mod a; mod b; pub use a::A; pub use b::{B, Other};",
            ),
            ("a.rs", "use crate::B;"),
            ("b.rs", "fn f(_: crate::A) {}"),
        ]));
        assert_eq!(cycle(&graph).unwrap(), ["a.rs", "b.rs", "a.rs"]);
    }

    #[test]
    fn folders_are_found_at_each_depth() {
        let files = file_graph(&sources(&[
            ("lib.rs", "mod machine; mod words;"),
            ("machine/mod.rs", "mod interp; mod warp;"),
            ("machine/interp/step.rs", "use crate::machine::warp::Warp;"),
            ("machine/warp.rs", "use crate::words::Word;"),
            ("words.rs", ""),
        ]));
        let expected = |nodes: &[(&str, &[&str])]| -> ImportGraph {
            nodes
                .iter()
                .map(|(node, used)| {
                    let used = used.iter().map(|name| name.to_string()).collect();
                    (node.to_string(), used)
                })
                .collect()
        };
        assert_eq!(
            folder_graph(&files, ""),
            expected(&[("machine", &["words"]), ("words", &[])])
        );
        assert_eq!(
            folder_graph(&files, "machine"),
            expected(&[("interp", &["warp"]), ("warp", &[])])
        );
    }
}
