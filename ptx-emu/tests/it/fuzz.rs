//! No text, however mangled, makes the parser or the machine panic or run for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ptx_emu::Module;

#[path = "../fuzz/targets.rs"]
mod targets;

const SEEDS: [&str; 3] = [
    include_str!("../../benches/gemv.ptx"),
    include_str!("../../benches/ring.ptx"),
    include_str!("mixed.ptx"),
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Changes bytes, drops, doubles and swaps words and lines.
fn mutate(text: &str, random: &mut Random) -> String {
    let mut words: Vec<&str> = text.split_inclusive([' ', '\n', ',', '.']).collect();
    for _ in 0..=random.below(4) {
        let (i, j) = (random.below(words.len()), random.below(words.len()));
        match random.below(4) {
            0 => words.swap(i, j),
            1 => words[i] = words[j],
            2 => _ = words.remove(i),
            _ => words.insert(i, words[j]),
        }
    }

    let mut bytes = words.concat().into_bytes();
    for _ in 0..random.below(3) {
        let i = random.below(bytes.len());
        bytes[i] = random.below(128) as u8;
    }

    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mangled_texts_are_refused_or_run() {
    for text in &SEEDS {
        _ = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut random = Random(7);
    for _ in 0..3000 {
        let text = mutate(SEEDS[random.below(SEEDS.len())], &mut random);
        let result = catch_unwind(AssertUnwindSafe(|| targets::execute(&text)));
        assert!(result.is_ok(), "this text makes it panic:\n{text}");
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(11);
    for _ in 0..2000 {
        let length = random.below(200);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        assert!(Module::parse(&String::from_utf8_lossy(&bytes)).is_err());
    }
}

/// Texts that try to cost time, depth or memory.
#[test]
fn greedy_texts_are_refused() {
    let head = ".version 8.0\n.target sm_90\n";
    let texts = [
        format!("{head}.entry k() {{ {} }}", "{".repeat(100_000)),
        format!("{head}.entry k() {{ .reg .b32 %r<4000000000>; }}"),
        format!("{head}.entry k() {{ .shared .b64 s[1099511627776][1099511627776]; }}"),
        format!("{head}.entry k() {{ .local .b8 l[9999999999]; }}"),
        format!("{head}.global .b64 g[1099511627776];"),
        format!(
            "{head}.entry k() {{ mov.b64 %r, {{{}1}}; }}",
            "1,".repeat(100_000)
        ),
        format!("{head}.entry k(.param .b8 p[99999999]) {{ }}"),
        format!("{head}{}", "(".repeat(1_000_000)),
    ];
    for text in texts {
        assert!(
            Module::parse(&text).and_then(Module::complete).is_err(),
            "{}",
            &text[..80]
        );
    }

    let long = format!(
        "{head}.entry k() {{\n.reg .pred %p; .reg .b32 %r;\n{}ret;\n}}",
        "L: setp.eq.u32 %p, 1, 1;\n"
            .replace("L: ", "")
            .repeat(50_000)
    );
    assert!(Module::parse(&long).and_then(Module::complete).is_ok());
}

/// Every instruction of the fuzzer's table is one, with any operands that it may get.
#[test]
fn the_fuzzers_instructions_decode() {
    for choice in 0..240 {
        for operand in [0, 1, 2, 7, 60, 255] {
            let mut bytes = vec![0, choice];
            bytes.resize(40, operand);
            let text = targets::assembled(&bytes[..20]);
            let module = Module::parse(&text).and_then(Module::complete);
            if let Err(errors) = module {
                let of_operand = [
                    "elements",
                    "at most",
                    "multiple of",
                    "was expected",
                    "bytes at offset",
                    "an element of d",
                ];
                let said = errors.to_string();
                assert!(
                    of_operand.iter().any(|part| said.contains(part)),
                    "{text}{said}"
                );
            }
        }
    }
}

/// What fuzzing began with, and what it found: no panic, and an end in time.
#[test]
fn seeds_of_the_fuzzers_are_survived() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    for (name, target) in [
        ("parse", targets::parse as fn(&[u8])),
        ("decode", targets::decode),
        ("program", targets::program),
    ] {
        let files =
            std::fs::read_dir(seeds.join(name)).unwrap_or_else(|e| panic!("seeds of {name}: {e}"));
        let mut some = false;
        for file in files {
            let path = file.expect("the folder is read").path();
            target(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
            some = true;
        }
        assert!(some, "no seeds of {name}");
    }
}
