//! Estimates of the emulator's time and memory, to refuse work that would take hours or exhaust the
//! memory.

use std::thread::available_parallelism;
use std::time::Duration;

use warpwright_driver::Context;
use warpwright_emu::host_memory;
use warpwright_engine::MemoryNeeds;
use warpwright_engine::info::token_bytes;
use warpwright_model::Outline;

use crate::device;
use crate::failure::Failure;

/// Bytes of weights that a core processes per second while decoding, attention included.
///
/// Measured as CPU time of 40 tokens of `rustdoc-7m-Q4_K_M` on a shared x86-64 machine, 2026-11-22.
const RATE: f64 = 16e6;
/// The longest estimated time that is accepted without `--insist`.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// The amount of work for a device.
#[derive(Clone, Copy)]
pub(crate) struct EmulationWork {
    /// The number of tokens to prefill and to generate.
    pub(crate) tokens: u64,
    /// The number of positions in the context.
    pub(crate) ctx: u32,
}

/// Checks that the emulator has enough memory for the work and finishes within half an hour.
///
/// On a GPU, this always succeeds.
///
/// # Errors
/// Returns an error with the estimate.
pub(crate) fn check(
    context: &Context,
    outline: &Outline,
    work: EmulationWork,
) -> Result<(), Failure> {
    if !device::is_emulator(context) {
        return Ok(());
    }

    // The KV cache is left out, because the system provides its pages only when they are written.
    let needs = MemoryNeeds::for_model(outline, work.ctx, true);
    let needed = needs.weights + needs.work;
    let cores = available_parallelism().map_or(1, usize::from);
    match host_memory::shortage(needed).or_else(|| time(token_bytes(outline), work.tokens, cores)) {
        None => Ok(()),
        Some(reason) => Err(Failure::Input(format!(
            "{reason}; use a GPU (--device cuda:0), a smaller model or fewer tokens, or insist with --insist"
        ))),
    }
}

/// The number of weights times tokens that a core trains on per second, forward and backward.
///
/// Measured with 32 tokens of `rustdoc-7m-Q4_K_M` on a shared x86-64 machine, 2026-11-23.
const TRAINING_RATE: f64 = 80e6;
/// The rate of the first launch of a graph. A single core runs it, and every access to memory is
/// traced.
const FIRST_RATE: f64 = 14e6;

/// The amount of work of a training run, in tokens.
pub(crate) struct TrainingTokens {
    pub(crate) trained: u64,
    pub(crate) evaluated: u64,
    /// The number of tokens in a launch of the graph.
    pub(crate) per_launch: u64,
}

/// Checks that the emulator finishes a training run of a model with `weights` weights within half
/// an hour.
///
/// # Errors
/// Returns an error with the estimate.
pub(crate) fn training(weights: u64, tokens: TrainingTokens) -> Result<(), Failure> {
    let TrainingTokens {
        trained,
        evaluated,
        per_launch,
    } = tokens;
    let cores = available_parallelism().map_or(1, usize::from) as f64;

    // An evaluation runs only the forward pass, which is about half as much work here as forward
    // and backward.
    let work = |trained: u64, evaluated: u64| trained as f64 + evaluated as f64 / 2.0;
    let all = work(trained, evaluated);
    let first = work(per_launch.min(trained), per_launch.min(evaluated));
    let seconds = weights as f64 * (all / (TRAINING_RATE * cores) + first / FIRST_RATE);
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

/// Returns a reason if `tokens` tokens that each read `bytes` bytes of weights would take too long.
fn time(bytes: u64, tokens: u64, cores: usize) -> Option<String> {
    let rate = RATE * cores as f64;
    let seconds = tokens as f64 * bytes as f64 / rate;
    if seconds <= PATIENCE.as_secs_f64() {
        return None;
    }

    let gigabytes = bytes as f64 / 1e9;
    let rate = rate / 1e6;
    Some(format!(
        "the emulator would need about {}: {tokens} tokens, each {gigabytes:.2} GB of weights at {rate:.0} MB/s",
        rough(seconds)
    ))
}

/// Formats a time as a whole number of the largest unit that fits at least twice.
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
