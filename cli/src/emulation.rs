//! Work that would take the emulator hours, or more memory than this machine has, is refused with the reason.

use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use warpwright_driver::Context;
use warpwright_engine::info::token_bytes;
use warpwright_engine::{MemoryNeeds, Outline};

use crate::device;
use crate::failure::Failure;

/// Bytes of weights that a core multiplies per second, attention included: 16 MB for 40 tokens of
/// `rustdoc-7m-Q4_K_M` by CPU time on a shared x86-64 machine, 2026-11-22.
const RATE: f64 = 16e6;
/// What is worth waiting for.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// What is to be done on a device.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Tokens to prefill or to make.
    pub(crate) tokens: u64,
    /// Positions to keep room for.
    pub(crate) ctx: u32,
}

/// Refuses what the emulator cannot end soon. A GPU may do anything.
pub(crate) fn check(context: &Context, outline: &Outline, work: Work) -> Result<(), Failure> {
    if !device::is_emulator(context) {
        return Ok(());
    }
    // Of the cache, no more than is used takes memory.
    let needs = MemoryNeeds::for_model(outline, work.ctx, true);
    let needed = needs.weights + needs.work;
    let cores = available_parallelism().map_or(1, usize::from);
    match memory(needed, available()).or_else(|| time(token_bytes(outline), work.tokens, cores)) {
        None => Ok(()),
        Some(reason) => Err(Failure::Input(format!(
            "{reason}; use a GPU (--device cuda:0), a smaller model or fewer tokens, or insist with --insist"
        ))),
    }
}

/// Weights that a core trains on per second, forward and backward: 32 tokens of `rustdoc-7m-Q4_K_M` on a shared x86-64
/// machine, 2026-11-23.
const TRAINING_RATE: f64 = 80e6;
/// The same for the first launch of a graph, which one core runs, and of which each access to memory is checked.
const FIRST_RATE: f64 = 14e6;

/// Refuses a training of so many tokens, and an evaluation of so many, each of which goes through so many weights. A graph
/// has `first` of the tokens.
pub(crate) fn training(
    weights: u64,
    [trained, evaluated]: [u64; 2],
    first: u64,
) -> Result<(), Failure> {
    let cores = available_parallelism().map_or(1, usize::from) as f64;
    // A forward alone has half of the products.
    let both = |trained: u64, evaluated: u64| trained as f64 + evaluated as f64 / 2.0;
    let (all, once) = (
        both(trained, evaluated),
        both(first.min(trained), first.min(evaluated)),
    );
    let seconds = weights as f64 * (all / (TRAINING_RATE * cores) + once / FIRST_RATE);
    let tokens = trained + evaluated;
    if seconds <= PATIENCE.as_secs_f64() {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "the emulator would need about {} for {tokens} tokens; use a GPU (--device cuda:0), fewer --steps, a smaller \
         --seq, or insist with --insist",
        rough(seconds)
    )))
}

/// Why this machine has no room for so many bytes of buffers.
pub(crate) fn room(bytes: u64) -> Option<String> {
    memory(bytes, available())
}

fn memory(needed: u64, available: Option<u64>) -> Option<String> {
    let available = available.filter(|&available| available < needed)?;
    let [needed, available] = [needed, available].map(|bytes| bytes as f64 / f64::from(1 << 30));
    Some(format!(
        "the emulator would need {needed:.1} GiB of this machine's memory, of which {available:.1} GiB are available"
    ))
}

fn time(bytes: u64, tokens: u64, cores: usize) -> Option<String> {
    let rate = RATE * cores as f64;
    let seconds = tokens as f64 * bytes as f64 / rate;
    (seconds > PATIENCE.as_secs_f64()).then(|| {
        let (bytes, rate) = (bytes as f64 / 1e9, rate / 1e6);
        format!(
            "the emulator would need about {}: {tokens} tokens, each {bytes:.2} GB of weights at {rate:.0} MB/s",
            rough(seconds)
        )
    })
}

/// A time in the largest unit of which there is more than one.
fn rough(seconds: f64) -> String {
    let units = [
        (365.0 * 86400.0, "years"),
        (86400.0, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
    ];
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| seconds >= 2.0 * unit)
        .unwrap_or((1.0, "seconds"));
    format!("{:.0} {name}", seconds / unit)
}

/// Bytes of memory that this machine can give, where the system says so.
fn available() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_refused_and_minutes_are_not() {
        let most = (PATIENCE.as_secs_f64() * RATE) as u64;
        assert_eq!(time(most, 1, 1), None);
        assert_eq!(time(most, 2, 2), None);
        let reason = time(most, 100, 1).unwrap();
        assert!(
            reason.starts_with("the emulator would need about 2 days: 100 tokens, each "),
            "{reason}"
        );
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        assert_eq!(memory(3 << 30, None), None);
        assert_eq!(memory(3 << 30, Some(3 << 30)), None);
        assert_eq!(
            memory(3 << 30, Some(1 << 30)).unwrap(),
            "the emulator would need 3.0 GiB of this machine's memory, of which 1.0 GiB are available"
        );
    }

    #[test]
    fn times_are_rough() {
        let cases = [
            (90.0, "90 seconds"),
            (7200.0, "2 hours"),
            (7000.0, "117 minutes"),
            (1e9, "32 years"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rough(seconds), text);
        }
    }
}
