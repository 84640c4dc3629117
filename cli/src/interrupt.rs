//! Handling of SIGINT, SIGTERM and SIGHUP.
//!
//! A signal ends the program at once, after temporary files and the progress bar are removed. While
//! a [`PendingInterrupt`] lives, the first signal only sets a flag, which [`check`] reports at the
//! next safe point. So a text ends with its statistics and a training run with a checkpoint. The
//! second signal ends the program.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;
use crate::terminal::say;
use crate::{output, progress, terminal};

/// The number of the last signal that arrived, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The work that the first signal waits for.
static PENDING: Mutex<PendingWork> = Mutex::new(PendingWork::None);

#[derive(Clone, Copy)]
enum PendingWork {
    None,
    /// Work with a name that completes "stopping after".
    Named(&'static str),
    /// Work that ends so soon that a message would not be read.
    Short,
}

/// Installs the signal handlers.
///
/// # Errors
/// Returns an error if the system refuses a handler.
pub(crate) fn install() -> Result<(), Failure> {
    listen().map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))
}

/// A guard that defers the first signal to the next [`check`].
pub(crate) struct PendingInterrupt;

impl PendingInterrupt {
    /// Begins work that a message names: `what` completes "stopping after".
    pub(crate) fn begin(what: &'static str) -> PendingInterrupt {
        *pending() = PendingWork::Named(what);
        PendingInterrupt
    }

    /// Begins work that ends so soon that no message is needed.
    pub(crate) fn short() -> PendingInterrupt {
        *pending() = PendingWork::Short;
        PendingInterrupt
    }
}

impl Drop for PendingInterrupt {
    fn drop(&mut self) {
        *pending() = PendingWork::None;
    }
}

fn pending() -> MutexGuard<'static, PendingWork> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an error if a signal has arrived.
pub(crate) fn check() -> Result<(), Failure> {
    match SIGNAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// Clears a Ctrl-C, after the work that it interrupted has ended. Returns an error for any other
/// signal.
pub(crate) fn go_on() -> Result<(), Failure> {
    match SIGNAL.swap(0, Ordering::SeqCst) {
        0 | SIGINT => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// Handles a signal, on the thread that waits for signals.
fn handle(signal: i32) {
    let first = SIGNAL.swap(signal, Ordering::SeqCst) == 0;
    match *pending() {
        PendingWork::Named(what) if first => {
            say(format!(
                "stopping after {what}; a second signal (Ctrl-C) ends at once"
            ));
        }
        PendingWork::Short if first => {}
        PendingWork::None | PendingWork::Named(_) | PendingWork::Short => {
            // No destructor runs after `end`, so everything that must not stay behind is removed
            // here.
            output::forget_all();
            progress::wipe();
            terminal::restore();
            end(signal);
        }
    }
}

#[cfg(unix)]
mod platform {
    use super::*;
    pub(super) use signal_hook::consts::SIGINT;
    use signal_hook::consts::{SIGHUP, SIGTERM};
    use signal_hook::iterator::Signals;

    pub(super) fn listen() -> io::Result<()> {
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
}

#[cfg(not(unix))]
mod platform {
    use super::*;

    pub(super) const SIGINT: i32 = 2;

    pub(super) fn listen() -> io::Result<()> {
        ctrlc::set_handler(|| handle(SIGINT)).map_err(io::Error::other)
    }

    pub(super) fn end(signal: i32) -> ! {
        std::process::exit(128 + signal)
    }
}

use platform::{SIGINT, end, listen};
