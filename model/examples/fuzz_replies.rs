//! Reads random replies in random divisions for some seconds.
//!
//! `fuzz_replies SECONDS [SEED]` chooses bytes at random for the functions in `tests/fuzz/targets.rs`. It
//! needs no nightly compiler, unlike the fuzzers in `fuzz/`, but it does not learn from coverage. A
//! finding ends it with a panic, after the bytes have been printed.

use std::time::{Duration, Instant};

#[path = "../../tests/support/splitmix.rs"]
#[allow(dead_code)] // The tests use the rest.
mod splitmix;
#[path = "../tests/fuzz/targets.rs"]
#[allow(dead_code)] // The tests use the rest.
mod targets;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let Some(seconds) = seconds else {
        eprintln!("fuzz_replies SECONDS [SEED]: expected a number of seconds");
        std::process::exit(2);
    };
    let seed = arguments.next().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(1);
    let mut random = splitmix::Random(seed);
    for (name, target) in [
        ("calls", targets::calls as fn(&[u8])),
        ("thoughts", targets::thoughts),
    ] {
        let start = Instant::now();
        let mut count = 0_u64;
        while start.elapsed() < Duration::from_secs(seconds) {
            let length = random.bits() % 60;
            let bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                panic!("{name}: input {count} of seed {seed} is a finding: {bytes:?}");
            }
            count += 1;
        }
        println!("{name}: {count} replies without a finding, seed {seed}");
    }
}
