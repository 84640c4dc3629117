//! The PTX of shipped kernels, read in review: a changed snapshot is a changed product.
//!
//! `kernels` has a line for every kernel: its name, the oldest target that it runs on, the lines of its text for that
//! target, and their SHA-256 (its first half). `cargo xtask ptx --diff REV NAME` prints the text behind a changed hash.
//!
//! Text stands once. Of kernels with headings (notes), each part is printed as the first kernel has it. A kernel without
//! is printed if the first word of its name meets another of its words for the first time: each option once, and no
//! second size.
//!
//! `cargo xtask bless` accepts changes.

#[path = "snapshots/sections.rs"]
mod sections;

use std::collections::{BTreeMap, BTreeSet};

use ptx_gen::{Program, Target, print};
use sections::{START, Section, sections};
use sha2::{Digest, Sha256};
use warpwright_kernels::{ALL, Format};

/// Lines that a snapshot may have. A longer part needs notes inside it.
const WHOLE: usize = 300;
/// Lines that all snapshots may have.
const TOTAL: usize = 38_000;

/// A kernel as it is printed for the oldest target that it runs on.
struct Printed {
    name: String,
    target: Target,
    text: String,
}

impl Printed {
    fn lines(&self) -> usize {
        self.text.lines().count()
    }

    fn line(&self) -> String {
        let hash: String = Sha256::digest(&self.text)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{} {} {} {hash}\n", self.name, self.target, self.lines())
    }
}

/// Every shipped kernel, in the order of their list.
fn printed() -> Vec<Printed> {
    let kernel = |program: Program| {
        let text = |target: Target| Some((target, print(&program, target).ok()?));
        let (target, text) = Target::ALL
            .into_iter()
            .find_map(text)
            .expect("the newest target has every row");
        Printed {
            name: program.name,
            target,
            text,
        }
    };
    ALL.iter()
        .map(|variant| kernel(variant.build().unwrap_or_else(|e| panic!("{e}"))))
        .collect()
}

#[test]
fn kernels() {
    let lines: String = printed().iter().map(Printed::line).collect();
    insta::assert_snapshot!("kernels", lines);
}

#[test]
fn reviewed() {
    let texts = texts(&printed());
    let lines = |text: &String| text.lines().count();
    let long: Vec<_> = texts
        .iter()
        .filter(|(_, text)| lines(text) > WHOLE)
        .collect();
    let long: Vec<_> = long
        .into_iter()
        .map(|(name, text)| format!("{name}: {} lines", lines(text)))
        .collect();
    assert!(
        long.is_empty(),
        "more than {WHOLE} lines, divide by notes:\n{}",
        long.join("\n")
    );
    for (name, text) in texts {
        insta::assert_snapshot!(name, text);
    }
}

/// A kernel differs between targets only in the lines that name the target, so that one hash is enough.
#[test]
fn only_the_head_of_a_kernel_depends_on_the_target() {
    let body = |text: &str| text.lines().skip(2).collect::<Vec<_>>().join("\n");
    for variant in ALL.iter() {
        let program = variant.build().unwrap_or_else(|e| panic!("{e}"));
        let bodies: BTreeSet<_> = Target::ALL
            .iter()
            .filter_map(|&target| Some(body(&print(&program, target).ok()?)))
            .collect();
        assert_eq!(bodies.len(), 1, "{}", program.name);
    }
}

#[test]
fn snapshots_are_few_and_none_is_left_over() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    let names: Vec<String> = texts(&printed())
        .into_keys()
        .chain(["kernels".to_owned()])
        .collect();
    let mut total = 0;
    for file in std::fs::read_dir(folder).expect("the folder of snapshots") {
        let path = file.expect("an entry").path();
        let file = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let Some(name) = file
            .strip_prefix("snapshots__")
            .and_then(|name| name.strip_suffix(".snap"))
        else {
            continue;
        };
        assert!(
            names.iter().any(|known| known == name),
            "{file} is no snapshot any more: cargo xtask bless"
        );
        total += std::fs::read_to_string(&path)
            .expect("a snapshot")
            .lines()
            .count();
    }
    assert!(
        total <= TOTAL,
        "the snapshots have {total} lines, at most {TOTAL}"
    );
}

/// What is printed, by the name of its snapshot.
fn texts(kernels: &[Printed]) -> BTreeMap<String, String> {
    let (whole, divided): (Vec<_>, Vec<_>) = kernels
        .iter()
        .partition(|kernel| !kernel.text.contains("// "));
    let mut texts = BTreeMap::new();
    for kernel in new_words(&whole) {
        texts.insert(kernel.name.clone(), kernel.text.clone());
    }
    for kernel in divided {
        for Section { heading, text } in sections(&kernel.text) {
            let heading = if heading == START {
                format!("{}: start", family(&kernel.name))
            } else {
                heading
            };
            let head = || format!("// {heading} (of {})\n{text}", kernel.name);
            texts
                .entry(format!("part_{}", slug(&heading)))
                .or_insert_with(head);
        }
    }
    texts
}

/// The first word of a name.
fn family(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// A heading as a file's name.
fn slug(heading: &str) -> String {
    let word = |word: &&str| !word.is_empty();
    let lower = heading.to_lowercase();
    lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(word)
        .collect::<Vec<_>>()
        .join("_")
}

/// The kernels with a pair of words that none before them has.
fn new_words<'a>(kernels: &[&'a Printed]) -> Vec<&'a Printed> {
    let mut seen = BTreeSet::new();
    let brings = |kernel: &&Printed| {
        let mut words = words(&kernel.name).into_iter();
        let first = words.next().expect("a kernel has a name");
        let pairs = std::iter::once(String::new())
            .chain(words)
            .map(|word| (first.clone(), word));
        // All pairs are entered, whether or not the first is new.
        pairs.filter(|pair| seen.insert(pair.clone())).count() > 0
    };
    kernels.iter().copied().filter(brings).collect()
}

/// The words of a name; a format is one, numbers are none.
fn words(name: &str) -> Vec<String> {
    let mut formats = Format::ALL.map(|format| format.name().to_lowercase());
    formats.sort_by_key(|suffix| std::cmp::Reverse(suffix.len()));
    let whole = formats.iter().fold(name.to_owned(), |name, suffix| {
        name.replace(
            &format!("_{suffix}"),
            &format!("_{}", suffix.replace('_', "-")),
        )
    });
    let word = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
    whole.split('_').filter(word).map(str::to_owned).collect()
}

#[test]
fn sizes_are_not_reviewed_again() {
    assert_eq!(
        words("gemv_bias_q4_0_block"),
        ["gemv", "bias", "q4-0", "block"]
    );
    assert_eq!(
        words("attention_pipelined_128_4_first_1500"),
        ["attention", "pipelined", "first"]
    );
    assert_eq!(
        words("qkv_q4_k_q4_k_q6_k_half_split_4x2_first"),
        ["qkv", "q4-k", "q4-k", "q6-k", "half", "split", "first"]
    );
}

#[test]
fn a_part_ends_with_its_block_and_numbers_its_own_registers() {
    let ptx = "{
    .reg .b32 %r<9>;
    mov.u32 %r7, %tid.x;

    // outer
    add.u32 %r8, %r7, %r7;
    @!%p3 bra $end2;

        // inner
        mul.lo.u32 %r5, %r8, %r7;
        @!%p4 bra $end3;
            st.global.u32 [%rd6+4], %r5;
            trap;
$end3:
$end2:

    // last
    mov.u64 %rd5, %clock64;
    ret;
}
";
    let section = |heading: &str, text: &str| Section {
        heading: heading.into(),
        text: text.into(),
    };
    let inner = "mul.lo.u32 %r0, %r1, %r2;\n@!%p0 bra $end0;\n    st.global.u32 [%rd0+4], %r0;\n    trap;\n$end0:\n";
    let outer = "add.u32 %r0, %r1, %r1;\n@!%p0 bra $end0;\n    // inner\n$end0:\n";
    let expected = [
        section("inner", inner),
        section("outer", outer),
        section("last", "mov.u64 %rd0, %clock64;\nret;\n"),
        section(START, "mov.u32 %r0, %tid.x;\n// outer\n// last\n"),
    ];
    assert_eq!(sections(ptx), expected);
}
