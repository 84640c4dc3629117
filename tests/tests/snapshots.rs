//! Snapshots of the PTX of all shipped kernels, for review.
//!
//! `snapshots/kernels.snap` has one line for each kernel: its name, the oldest target that it runs
//! on, and the number and the hash of its lines for that target. Comments, blank lines and the
//! kernel's name are not counted and not hashed, so the line changes only if the instructions or
//! declarations do. The hash is the first half of a SHA-256. `cargo xtask ptx --diff REV NAME`
//! prints the difference between two texts.
//!
//! The other files hold the text itself, each passage once:
//!
//! - A kernel with notes is divided into sections (see [`sections`]). A section is stored under the
//!   identifier of its note, as the first kernel that contains it prints it. The file of the
//!   section `batch/attention/scores` is `snapshots/batch/attention/scores.snap`. Rewording a note
//!   therefore renames no file.
//! - The instructions before the first note are stored for the first kernel of each family, in
//!   `FOLDER/start`.
//! - A kernel without notes is stored as a whole in `FOLDER/whole` if its name combines two words
//!   that no name before it combines. Each option is thus stored once, and not again for every
//!   size.
//!
//! `cargo xtask bless` accepts changes.

mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ptx_gen::{Note, Program, Target, print};
use sections::{Section, sections};
use sha2::{Digest, Sha256};
use warpwright_kernels::{ALL, Format};

/// The maximum number of lines of one snapshot. Divide a longer section with further notes.
const MOST_LINES: usize = 550;
/// The maximum number of lines of all snapshots together.
const MOST_LINES_IN_ALL: usize = 45_000;

/// The folder of the snapshots, relative to this file and to the package's folder `tests`.
const SNAPSHOTS: &str = "snapshots";

/// The folders of the kernel families: the start of a kernel's name, and the folder. The longest
/// start that fits decides.
const FOLDERS: [(&str, &str); 55] = [
    ("add_bias", "simple"),
    ("add_expert_bias", "simple"),
    ("add_experts", "simple"),
    ("add_gated", "simple"),
    ("add_normed", "pipeline"),
    ("advance", "pipeline"),
    ("allow_tokens", "sample"),
    ("argmax", "simple"),
    ("attention", "simple"),
    ("attention_pipelined", "pipeline"),
    ("batch_attention", "batch"),
    ("batch_lora", "batch"),
    ("choose_experts", "simple"),
    ("choose_token_experts", "matmul"),
    ("choose_tokens", "batch"),
    ("chunk_items", "prompt"),
    ("combine_experts", "simple"),
    ("combine_tokens", "matmul"),
    ("dequantize_tiles", "matmul"),
    ("embed", "simple"),
    ("embed_rows", "pipeline"),
    ("embed_tiled", "pipeline"),
    ("expert_down", "pipeline"),
    ("expert_gate_up", "pipeline"),
    ("expert_gemv", "simple"),
    ("expert_logits", "pipeline"),
    ("gate_tokens", "batch"),
    ("gate_up", "pipeline"),
    ("gather_rows", "batch"),
    ("gather_tokens", "matmul"),
    ("gemv", "simple"),
    ("head", "pipeline"),
    ("layer_norm", "simple"),
    ("log_likelihood", "simple"),
    ("lora_a", "pipeline"),
    ("matmul", "matmul"),
    ("multiply", "measure"),
    ("norm_tokens", "matmul"),
    ("pack", "pipeline"),
    ("place_drafts", "pipeline"),
    ("project", "pipeline"),
    ("prompt_attention", "prompt"),
    ("qkv", "pipeline"),
    ("read", "measure"),
    ("rms_norm", "simple"),
    ("rope", "simple"),
    ("rotate_tokens", "prompt"),
    ("router_logits", "matmul"),
    ("row_bounds", "matmul"),
    ("sample", "sample"),
    ("soft_cap", "simple"),
    ("sort_tokens", "matmul"),
    ("split_prompt", "pipeline"),
    ("swiglu", "simple"),
    ("train", "train"),
];

/// A kernel, printed for the oldest target that it runs on.
struct Printed {
    name: String,
    target: Target,
    text: String,
    /// The notes in the order of the text.
    notes: Vec<Note>,
}

impl Printed {
    fn new(program: &Program) -> Printed {
        let (target, text) = Target::ALL
            .into_iter()
            .find_map(|target| Some((target, print(program, target).ok()?)))
            .expect("the newest target has every row");
        Printed {
            name: program.name.clone(),
            target,
            text,
            notes: program.notes().into_iter().cloned().collect(),
        }
    }

    /// Returns the kernel's line in `kernels.snap`.
    fn line(&self) -> String {
        let code = self.code();
        let hash: String = Sha256::digest(&code)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let lines = code.lines().count();
        format!("{} {} {lines} {hash}\n", self.name, self.target)
    }

    /// Returns the text without comments and blank lines, and with a fixed name for the kernel.
    fn code(&self) -> String {
        let is_code = |line: &&str| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with("//")
        };
        let entry = format!(".entry {}(", self.name);
        self.text
            .lines()
            .filter(is_code)
            .map(|line| line.replace(&entry, ".entry kernel(") + "\n")
            .collect()
    }

    /// Returns the folder of the kernel's family.
    fn folder(&self) -> &'static str {
        FOLDERS
            .into_iter()
            .filter(|(start, _)| self.name.starts_with(start))
            .max_by_key(|(start, _)| start.len())
            .map(|(_, folder)| folder)
            .unwrap_or_else(|| panic!("{} belongs to none of FOLDERS", self.name))
    }

    /// Returns the first word of the kernel's name.
    fn family(&self) -> &str {
        self.name.split('_').next().unwrap_or(&self.name)
    }
}

/// Prints every shipped kernel, in the order of [`ALL`].
fn printed() -> Vec<Printed> {
    ALL.iter()
        .map(|variant| Printed::new(&variant.build().unwrap_or_else(|e| panic!("{e}"))))
        .collect()
}

/// Compares a text with the snapshot of this identifier.
fn assert_snapshot(id: &str, text: &str) {
    let path = Path::new(SNAPSHOTS).join(id);
    let name = path.file_name().expect("an identifier has a last word");
    let folder = path.parent().expect("the folder of the snapshots");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name.to_string_lossy().as_ref(), text));
}

#[test]
fn kernels() {
    let lines: String = printed().iter().map(Printed::line).collect();
    assert_snapshot("kernels", &lines);
}

#[test]
fn reviewed() {
    let texts = texts(&printed());
    let lines = |text: &String| text.lines().count();
    let long: Vec<_> = texts
        .iter()
        .filter(|(_, text)| lines(text) > MOST_LINES)
        .map(|(id, text)| format!("{id}: {} lines", lines(text)))
        .collect();
    assert!(
        long.is_empty(),
        "more than {MOST_LINES} lines, divide by notes:\n{}",
        long.join("\n")
    );
    for (id, text) in texts {
        assert_snapshot(&id, &text);
    }
}

/// A kernel differs between targets only in the lines that name the target, so one hash is enough.
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(SNAPSHOTS);
    let known: BTreeSet<PathBuf> = texts(&printed())
        .into_keys()
        .chain(["kernels".to_owned()])
        .map(|id| root.join(id + ".snap"))
        .collect();
    let mut total = 0;
    for path in files(&root) {
        if path.extension().is_none_or(|extension| extension != "snap") {
            continue;
        }
        assert!(
            known.contains(&path),
            "{} belongs to no snapshot: cargo xtask bless",
            path.display()
        );
        total += fs::read_to_string(&path)
            .expect("a snapshot")
            .lines()
            .count();
    }

    assert!(
        total <= MOST_LINES_IN_ALL,
        "the snapshots have {total} lines, at most {MOST_LINES_IN_ALL}"
    );
}

/// Returns the files of a folder and the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).expect("a folder of snapshots") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_note_of_a_shipped_kernel_has_an_identifier_of_one_text() {
    let mut texts = BTreeMap::new();
    for kernel in printed() {
        for Note { id, text } in kernel.notes {
            let id = id.unwrap_or_else(|| panic!("{}: {text:?} has no identifier", kernel.name));
            let known = texts.entry(id.clone()).or_insert_with(|| text.clone());
            assert_eq!(*known, text, "{id} in {}", kernel.name);
        }
    }
}

/// Returns the snapshots by their identifiers.
fn texts(kernels: &[Printed]) -> BTreeMap<String, String> {
    let (whole, divided): (Vec<_>, Vec<_>) =
        kernels.iter().partition(|kernel| kernel.notes.is_empty());
    let mut texts = BTreeMap::new();
    for kernel in new_words(&whole) {
        let id = format!("{}/whole/{}", kernel.folder(), kernel.name);
        texts.insert(id, kernel.text.clone());
    }

    for kernel in divided {
        for Section { note, text } in sections(&kernel.text) {
            let (id, heading) = match note {
                Some(index) => {
                    let Note { id, text } = &kernel.notes[index];
                    (id.clone().unwrap_or_default(), text.clone())
                }
                None => (
                    format!("{}/start/{}", kernel.folder(), kernel.family()),
                    format!("{}: start", kernel.family()),
                ),
            };
            let head = || format!("// {heading} (of {})\n{text}", kernel.name);
            texts.entry(id).or_insert_with(head);
        }
    }

    texts
}

/// Returns the kernels whose names combine two words that no name before them combines.
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

/// Returns the words of a name. A format is one word, and numbers are left out.
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
fn a_section_ends_with_its_block_and_numbers_its_own_registers() {
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
    let section = |note: Option<usize>, text: &str| Section {
        note,
        text: text.into(),
    };
    let inner = "mul.lo.u32 %r0, %r1, %r2;\n@!%p0 bra $end0;\n    st.global.u32 [%rd0+4], %r0;\n    trap;\n$end0:\n";
    let outer = "add.u32 %r0, %r1, %r1;\n@!%p0 bra $end0;\n    // inner\n$end0:\n";
    let expected = [
        section(Some(1), inner),
        section(Some(0), outer),
        section(Some(2), "mov.u64 %rd0, %clock64;\nret;\n"),
        section(None, "mov.u32 %r0, %tid.x;\n// outer\n// last\n"),
    ];
    assert_eq!(sections(ptx), expected);
}
