//! The PTX of shipped kernels, read in review: a changed snapshot is a changed product.
//!
//! Not of all variants, which nobody would read. One is here if the first word of its name meets another of its words
//! for the first time: each format once with each kind of product, each option once, and no second size. Of the
//! others, `kernels/PTXAS.md` shows that they changed. Each is printed for the oldest target that it runs on.
//!
//! `cargo xtask bless` accepts changes.

use std::collections::BTreeSet;

use ptx_gen::{Program, Target, print};
use warpwright_kernels::{ALL, Format, Variant};

#[test]
fn reviewed_kernels() {
    for kernel in reviewed() {
        let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
        insta::assert_snapshot!(kernel.name(), oldest(&program));
    }
}

#[test]
fn no_snapshot_is_left_of_a_kernel_that_is_gone() {
    let names: Vec<String> =
        reviewed().iter().map(|kernel| format!("snapshots__{}.snap", kernel.name())).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    for file in std::fs::read_dir(folder).expect("the folder of snapshots") {
        let file = file.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(names.contains(&file), "{file} belongs to no kernel that is reviewed: delete it");
    }
}

fn oldest(program: &Program) -> String {
    let texts = Target::ALL.into_iter().find_map(|target| print(program, target).ok());
    texts.unwrap_or_else(|| panic!("no target has every row of {}", program.name))
}

/// The variants with a pair of words that none before them has.
fn reviewed() -> Vec<&'static dyn Variant> {
    let mut seen = BTreeSet::new();
    let brings = |kernel: &&&dyn Variant| {
        let mut words = words(&kernel.name()).into_iter();
        let first = words.next().expect("a kernel has a name");
        let pairs = std::iter::once(String::new()).chain(words).map(|word| (first.clone(), word));
        // All pairs are entered, whether or not the first is new.
        pairs.filter(|pair| seen.insert(pair.clone())).count() > 0
    };
    ALL.iter().filter(brings).copied().collect()
}

/// The words of a name; a format is one, numbers are none.
fn words(name: &str) -> Vec<String> {
    let mut formats = Format::ALL.map(|format| format.name().to_lowercase());
    formats.sort_by_key(|suffix| std::cmp::Reverse(suffix.len()));
    let whole = formats.iter().fold(name.to_owned(), |name, suffix| {
        name.replace(&format!("_{suffix}"), &format!("_{}", suffix.replace('_', "-")))
    });
    let word = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
    whole.split('_').filter(word).map(str::to_owned).collect()
}

#[test]
fn sizes_are_not_reviewed_again() {
    assert_eq!(words("gemv_bias_q4_0_block"), ["gemv", "bias", "q4-0", "block"]);
    assert_eq!(words("attention_chained_128_4_first_1500"), ["attention", "chained", "first"]);
    assert_eq!(
        words("qkv_q4_k_q4_k_q6_k_half_split_4x2_first"),
        ["qkv", "q4-k", "q4-k", "q6-k", "half", "split", "first"]
    );
}
