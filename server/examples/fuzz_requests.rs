//! Sends random requests to a server in this process for some seconds.
//!
//! `fuzz_requests SECONDS [SEED]` changes the seeds under `tests/fuzz/seeds`, as the test `fuzz` does. It
//! needs no nightly compiler, unlike the fuzzer in `fuzz/`, but it does not learn from coverage. A
//! finding ends it with a panic, after the request has been written to `finding` in the folder of
//! temporary files.

use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../tests/fuzz/targets.rs"]
mod targets;

use mutate::{Random, mutated};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let Some(seconds) = seconds else {
        eprintln!("fuzz_requests SECONDS [SEED]: expected a number of seconds");
        std::process::exit(2);
    };
    let seed = arguments.next().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(1).max(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/request");
    let files = std::fs::read_dir(folder).expect("the seeds are there");
    let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect();

    let mut random = Random(seed);
    let start = Instant::now();
    let mut count = 0_u64;
    let mut longest = Duration::ZERO;
    let found = std::env::temp_dir().join("finding");
    while start.elapsed() < Duration::from_secs(seconds) {
        let input = mutated(&seeds, &mut random);
        let begun = Instant::now();
        let result = std::panic::catch_unwind(|| targets::request(&input));
        if result.is_err() {
            std::fs::write(&found, &input).expect("the finding is written");
            panic!(
                "request {count} of seed {seed} is a finding: {}",
                found.display()
            );
        }
        if begun.elapsed() > longest {
            longest = begun.elapsed();
            if longest > Duration::from_secs(2) {
                println!("{longest:?}: {}", String::from_utf8_lossy(&input));
            }
        }
        count += 1;
    }
    println!("{count} requests without a finding, the longest in {longest:?}, seed {seed}");
}
