//! Requests of random bytes and of changed seeds get a response of their protocol.

use std::path::Path;

#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/targets.rs"]
mod targets;

use mutate::{Random, mutated};

/// Returns the requests that fuzzing began with, and those that it found.
fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/request");
    let files = std::fs::read_dir(folder).expect("the seeds are there");
    let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    paths.sort();
    let seeds = paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file"));
    seeds.collect()
}

#[test]
fn seeds_of_the_fuzzer_of_requests_are_answered() {
    let seeds = seeds();
    for (byte, path) in targets::ENDPOINTS {
        let mut seeds = seeds.iter().filter(|seed| seed.first() == Some(&byte));
        assert!(seeds.next().is_some(), "no seed of {path}");
    }
    for seed in &seeds {
        targets::request(seed);
    }
}

#[test]
fn changed_requests_are_answered_or_refused() {
    let seeds = seeds();
    let mut random = Random(5);
    for _ in 0..3000 {
        let input = mutated(&seeds, &mut random);
        let result = std::panic::catch_unwind(|| targets::request(&input));
        let shown = String::from_utf8_lossy(&input);
        assert!(result.is_ok(), "this request is a finding: {shown}");
    }
}

#[test]
fn requests_of_random_bytes_are_refused() {
    let mut random = Random(11);
    for _ in 0..500 {
        let length = random.below(200);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        targets::request(&bytes);
    }
}
