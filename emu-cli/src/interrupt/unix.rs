//! Signals on Unix.

use std::io;

pub(super) use signal_hook::consts::SIGINT;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `handle` with the number of each signal, on a thread.
pub(super) fn listen(handle: fn(i32)) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }

    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                handle(signal);
            }
        })?;
    Ok(())
}

/// Returns true if the program was started with this signal ignored, as `nohup` does with
/// SIGHUP.
///
/// Only Linux reports that, in `/proc`. Elsewhere the result is false.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Exits without running the CUDA driver's exit handlers, because other threads may still be in
/// the driver.
pub(super) fn end(signal: i32) -> ! {
    signal_hook::low_level::exit(128 + signal)
}
