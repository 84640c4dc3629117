//! A reply is read in the same way however it is divided, in every format of calls and thoughts.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRng, TestRunner};

use crate::splitmix::Random;

#[allow(dead_code)] // The examples use the rest.
#[path = "../fuzz/targets.rs"]
mod targets;

use targets::{FORMATS, Format, THOUGHTS, check};

/// The number of replies of each format.
const CASES: u32 = 60;

fn format(name: &str) -> &'static Format {
    let found = FORMATS.iter().find(|format| format.name == name);
    found.unwrap_or_else(|| panic!("no format {name}"))
}

/// Every format of `syntax.rs` is among those that the tests here read.
#[test]
fn the_divisions_cover_every_format() {
    let source = include_str!("../../src/chat/calls/syntax.rs");
    let names = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","));
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    assert!(names.len() >= 29, "{names:?}");
    let found: BTreeSet<&str> = FORMATS
        .iter()
        .flat_map(|format| format.template.call_formats())
        .collect();
    assert_eq!(found, names);
}

/// The result of reading is the same for the whole reply, for its letters and for random pieces.
#[test]
fn replies_of_every_format_do_not_depend_on_their_division() {
    let mut failures = vec![];
    for format in FORMATS.iter() {
        let fragments = prop::sample::select(format.fragments.clone());
        let replies = prop::collection::vec(fragments, 0..12);
        let lengths = prop::collection::vec(1..40_usize, 1..6);
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        let outcome = TestRunner::new_with_rng(config, rng).run(
            &(replies, lengths),
            |(fragments, lengths)| {
                check(&format.template, &fragments.concat(), &lengths, &THOUGHTS)
                    .map_err(TestCaseError::fail)
            },
        );
        if let Err(error) = outcome {
            failures.push(format!("{}: {error}", format.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Replies that were read differently by their division once.
#[test]
fn replies_that_once_depended_on_their_division_do_not() {
    let header = format!("<|start|>{}", "12345678 ".repeat(50));
    let late = format!("<|channel|>final{}<|message|>a", "12345678 ".repeat(50));
    let cases = [
        // A name after the fault: a list that is not a call, and a text about a call.
        ("llama32-pythonic", "[1, run(command='a')]"),
        ("pythonic", "[a b](run())"),
        ("vllm-tool_chat_template_xlam_qwen", "[1] \"run\""),
        ("vllm-tool_chat_template_phi4_mini", "{} \"run\""),
        // White space in front of a thought that does not end.
        ("Qwen-Qwen3-0.6B", "\n<think>"),
        ("gemma4", " <|channel>thought"),
        // A header that is too long, with and without its end, and one that begins again.
        ("openai-gpt-oss-120b", header.as_str()),
        ("openai-gpt-oss-120b", late.as_str()),
    ];
    for (name, reply) in cases {
        let outcome = check(&format(name).template, reply, &[3, 7], &THOUGHTS);
        assert_eq!(outcome, Ok(()), "{name}");
    }
}

/// Random bytes, which choose formats, divisions and fragments.
#[test]
fn random_replies_do_not_depend_on_their_division() {
    let mut random = Random(17);
    for _ in 0..500 {
        let length = random.bits() % 60;
        let bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
        for target in [targets::calls as fn(&[u8]), targets::thoughts] {
            let result = catch_unwind(AssertUnwindSafe(|| target(&bytes)));
            assert!(result.is_ok(), "these bytes are a finding: {bytes:?}");
        }
    }
}

/// The inputs that fuzzing began with, and those that it found.
#[test]
fn seeds_of_the_fuzzers_of_replies_are_read() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    for (name, target) in [
        ("calls", targets::calls as fn(&[u8])),
        ("thoughts", targets::thoughts),
    ] {
        let files = std::fs::read_dir(seeds.join(name)).expect("the seeds are there");
        let mut some = false;
        for file in files {
            target(&std::fs::read(file.unwrap().path()).unwrap());
            some = true;
        }
        assert!(some, "no seeds of {name}");
    }
}
