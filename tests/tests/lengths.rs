//! How long functions and files are: short ones are read, long ones are searched.
//!
//! A function's length is its lines from the signature to the closing brace, without documentation and attributes.
//! Functions inside functions count for themselves as well, and so do those in the text of a macro; closures do not.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The middle function, and the one that nine in ten do not exceed, over the sources of all crates.
const MEDIAN: usize = 7;
const NINE_IN_TEN: usize = 20;

/// The longest function.
const FUNCTION: usize = 50;

/// The longest file, tests and examples among them.
const FILE: usize = 600;

const CRATES: &[&str] = &[
    "ptx-gen",
    "ptx-emu",
    "driver-sys",
    "driver",
    "driver-derive",
    "cuda-emu",
    "kernels",
    "engine",
    "train",
    "cli",
    "xtask",
    "tests",
];

#[test]
fn functions_are_short() {
    let functions: Vec<Function> = CRATES.iter().flat_map(|name| functions_of(name)).collect();
    assert!(functions.len() > 3000, "only {} functions were found", functions.len());
    let mut lengths: Vec<usize> = functions.iter().map(|function| function.lines).collect();
    lengths.sort_unstable();
    let long = functions.iter().filter(|function| function.lines > FUNCTION);
    let long: Vec<String> = long.map(|f| format!("{}: {}, {} lines", f.file, f.name, f.lines)).collect();
    assert!(long.is_empty(), "functions of more than {FUNCTION} lines:\n{}", long.join("\n"));
    let (median, nine_in_ten) = (lengths[lengths.len() / 2], lengths[lengths.len() * 9 / 10]);
    println!("{} functions, median {median}, nine in ten at most {nine_in_ten}", lengths.len());
    assert!(
        median <= MEDIAN && nine_in_ten <= NINE_IN_TEN,
        "median {median}, nine in ten at most {nine_in_ten}"
    );
}

#[test]
fn files_are_short() {
    let files: Vec<PathBuf> = CRATES.iter().flat_map(|name| files(&root().join(name))).collect();
    assert!(files.len() > 300, "only {} files were found", files.len());
    let lines = |path: &PathBuf| (path.clone(), fs::read_to_string(path).unwrap().lines().count());
    let long: Vec<_> = files.iter().map(lines).filter(|(_, lines)| *lines > FILE).collect();
    assert!(long.is_empty(), "files of more than {FILE} lines: {long:?}");
}

#[test]
fn lines_are_counted_from_signature_to_brace() {
    let text = "/// Doc.\n#[inline]\nfn a() {}\nimpl B {\n    const fn c(\n        x: u8,\n    ) -> u8 {\n        x\n    }\n}\n\
                trait D {\n    fn e();\n    fn f() {\n        fn g() {}\n    }\n}\n\
                fn h(f: fn(u8), text: &str) {\n    // fn i() {}\n    f(\"fn j() {}\");\n}\nm! { fn $k() {\n} }\n";
    let found: Vec<_> = functions("x.rs", text).into_iter().map(|f| (f.name, f.lines)).collect();
    let expected = [("a", 1), ("c", 5), ("f", 3), ("g", 1), ("h", 4), ("$k", 2)]
        .map(|(name, lines)| (name.to_owned(), lines));
    assert_eq!(found, expected);
}

struct Function {
    file: String,
    name: String,
    lines: usize,
}

/// The functions of a crate's sources.
fn functions_of(name: &str) -> Vec<Function> {
    let read = |path: PathBuf| {
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        functions(&file, &fs::read_to_string(&path).unwrap())
    };
    files(&root().join(name).join("src")).into_iter().flat_map(read).collect()
}

fn functions(file: &str, text: &str) -> Vec<Function> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut found = vec![];
    collect(file, tokens, &mut found);
    found
}

/// The functions among these tokens and inside of them: `fn`, a name, and the first braces before a semicolon.
fn collect(file: &str, tokens: TokenStream, found: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            collect(file, group.stream(), found);
        }
        if let (TokenTree::Ident(word), Some(name)) = (token, name(&tokens[i + 1..]))
            && word == "fn"
            && let Some(body) = body(&tokens[i..])
        {
            let lines = body.span_close().end().line + 1 - word.span().start().line;
            found.push(Function { file: file.into(), name, lines });
        }
    }
}

/// The name that begins these tokens, `$name` in a macro; the type `fn(u32)` has none.
fn name(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [TokenTree::Ident(name), ..] => Some(name.to_string()),
        [TokenTree::Punct(mark), TokenTree::Ident(name), ..] if mark.as_char() == '$' => {
            Some(format!("${name}"))
        }
        _ => None,
    }
}

/// The body that follows a signature.
fn body(tokens: &[TokenTree]) -> Option<&Group> {
    let ends = |token: &&TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';'),
    };
    match tokens.iter().find(ends) {
        Some(TokenTree::Group(body)) => Some(body),
        _ => None,
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    rust.chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}
