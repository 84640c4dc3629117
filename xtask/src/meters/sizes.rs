//! `cargo xtask sizes`: reports the largest functions, files and folders, in tokens.
//!
//! Tokens are counted because formatting cannot change them. Nothing asserts a size: read the largest units and decide
//! whether they do two things.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::is_program_code;
use crate::git;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of functions, files and folders to list
    #[arg(long, short = 'n', default_value_t = 15, value_name = "COUNT")]
    top: usize,

    /// Checkout or folder to measure [default: this repository]
    root: Option<PathBuf>,
}

/// A function with a body, outside of tests.
struct Function {
    name: String,
    file: PathBuf,
    line: usize,
    tokens: usize,
    lines: usize,
    commented: bool,
}

/// Functions of at least this size should hold a comment that gives a reason.
const LARGE: usize = 200;

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = args.root.as_deref().unwrap_or(crate::paths::root());
    let mut functions = Vec::new();
    let mut files: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut folders: BTreeMap<PathBuf, (usize, usize)> = BTreeMap::new();
    for file in git::tracked_files(root)? {
        if !is_program_code(&file) {
            continue;
        }
        let Ok(source) = fs::read_to_string(root.join(&file)) else {
            continue;
        };

        let syntax =
            syn::parse_file(&source).with_context(|| format!("cannot parse {}", file.display()))?;
        let tokens = count(syntax.to_token_stream());
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        let (files_inside, tokens_inside) = folders.entry(folder).or_default();
        *files_inside += 1;
        *tokens_inside += tokens;
        files.insert(file.clone(), tokens);
        let mut collector = FunctionCollector {
            file: &file,
            source: source.lines().collect(),
            functions: &mut functions,
        };
        collector.visit_file(&syntax);
    }

    print_functions(&mut functions, args.top);
    print_files(files, args.top);
    print_folders(folders, args.top);
    Ok(())
}

fn print_functions(functions: &mut [Function], top: usize) {
    functions.sort_by_key(|function| function.tokens);
    let quantile = |share: usize| {
        functions
            .get(functions.len() * share / 100)
            .map_or(0, |function| function.tokens)
    };
    let tokens: usize = functions.iter().map(|function| function.tokens).sum();
    let lines: usize = functions.iter().map(|function| function.lines).sum();
    let large: Vec<&Function> = functions
        .iter()
        .filter(|function| function.tokens >= LARGE)
        .collect();
    let commented = large.iter().filter(|function| function.commented).count();
    println!(
        "{} functions: median {} tokens, 90 % below {}, {:.1} tokens a line",
        functions.len(),
        quantile(50),
        quantile(90),
        tokens as f64 / lines.max(1) as f64
    );
    println!(
        "{} have {LARGE} tokens or more, {commented} of these ({} %) have a comment inside\n",
        large.len(),
        100 * commented / large.len().max(1)
    );
    println!("largest functions (tokens, comment inside)");
    for function in functions.iter().rev().take(top) {
        let mark = if function.commented { "yes" } else { "no" };
        println!(
            "  {:>6}  {mark:3}  {} ({}:{})",
            function.tokens,
            function.name,
            function.file.display(),
            function.line
        );
    }
}

fn print_files(files: BTreeMap<PathBuf, usize>, top: usize) {
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    println!("\nlargest files (tokens)");
    for (file, tokens) in files.iter().take(top) {
        println!("  {tokens:>6}  {}", file.display());
    }
}

fn print_folders(folders: BTreeMap<PathBuf, (usize, usize)>, top: usize) {
    let mut folders: Vec<_> = folders.into_iter().collect();
    folders.sort_by_key(|(_, (_, tokens))| std::cmp::Reverse(*tokens));
    println!("\nlargest folders (tokens, files)");
    for (folder, (files, tokens)) in folders.iter().take(top) {
        println!("  {tokens:>6}  {files:>3}  {}", folder.display());
    }
}

/// Returns the number of tokens: a pair of brackets is two, and an operator such as `->` is one.
fn count(stream: TokenStream) -> usize {
    let mut tokens = 0;
    let mut joined = false;
    for tree in stream {
        let continues = matches!(
            &tree,
            TokenTree::Punct(punct) if punct.spacing() == proc_macro2::Spacing::Joint
        );
        tokens += match tree {
            TokenTree::Group(group) => 2 + count(group.stream()),
            TokenTree::Punct(_) if joined => 0,
            TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => 1,
        };
        joined = continues;
    }

    tokens
}

/// Collects the functions of a file, without those of tests.
struct FunctionCollector<'a> {
    file: &'a Path,
    source: Vec<&'a str>,
    functions: &'a mut Vec<Function>,
}

impl FunctionCollector<'_> {
    fn add(&mut self, name: &syn::Ident, whole: &dyn ToTokens, block: &syn::Block) {
        let first = name.span().start().line;
        let last = block.span().end().line;
        let opening = block.span().start().line;

        // Line numbers start at 1. The line of the opening brace belongs to the signature.
        let body = &self.source[opening.min(last - 1)..last];
        self.functions.push(Function {
            name: name.to_string(),
            file: self.file.to_owned(),
            line: first,
            tokens: count(whole.to_token_stream()),
            lines: last - first + 1,
            commented: body.iter().any(|line| is_comment(line)),
        });
    }
}

/// Returns true for a line that is, or ends with, a comment that is not documentation.
fn is_comment(line: &str) -> bool {
    let line = line.trim();
    let alone = line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
    // A URL in a string also holds `//`, but no blank before it.
    alone || (line.contains(" // ") && !line.starts_with("//"))
}

impl<'a> Visit<'a> for FunctionCollector<'_> {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.add(&function.sig.ident, function, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            self.add(&function.sig.ident, function, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig.ident, function, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Returns true for items under `#[test]` or `#[cfg(test)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = attribute.path().is_ident("cfg")
            && attribute
                .meta
                .to_token_stream()
                .to_string()
                .contains("test");
        attribute.path().is_ident("test") || is_cfg_test
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(source: &str) -> Vec<Function> {
        let mut functions = Vec::new();
        let mut collector = FunctionCollector {
            file: Path::new("a.rs"),
            source: source.lines().collect(),
            functions: &mut functions,
        };
        collector.visit_file(&syn::parse_file(source).expect("valid Rust"));
        functions
    }

    #[test]
    fn format_does_not_change_the_count() {
        let one = functions("fn f(a: u8) -> u8 { a + 1 }");
        let two = functions("fn f(\n    a: u8,\n) -> u8 {\n    // Why.\n    a + 1\n}");
        // The trailing comma is a token.
        assert_eq!(one[0].tokens + 1, two[0].tokens);
        assert!(!one[0].commented);
        assert!(two[0].commented);
    }

    #[test]
    fn tests_are_left_out() {
        let source =
            "#[cfg(test)]\nmod tests {\n    fn helper() {}\n}\n#[test]\nfn t() {}\nfn kept() {}\n";
        let names: Vec<_> = functions(source)
            .into_iter()
            .map(|function| function.name)
            .collect();
        assert_eq!(names, ["kept"]);
    }

    #[test]
    fn operators_are_one_token() {
        let count = |text: &str| count(text.parse().expect("tokens"));
        assert_eq!(count("a -> b"), 3);
        assert_eq!(count("f(x)"), 4);
    }
}
