//! Signals end the program at once, and neither a temporary file nor a bar stays behind. Only while tokens are printed,
//! or steps are trained, does the first one wait for the piece of work under way, so that a text ends with its statistics
//! and a training with a checkpoint.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;
use crate::terminal::say;
use crate::{output, progress, terminal};

/// The signal that was heeded, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What the first signal waits for.
static PENDING: Mutex<Work> = Mutex::new(Work::None);

#[derive(Clone, Copy)]
enum Work {
    /// Nothing.
    None,
    /// This, which completes "stopping after".
    Named(&'static str),
    /// What ends too soon to speak of it.
    Short,
}

/// From here on, signals that end programs are heeded.
pub(crate) fn install() -> Result<(), Failure> {
    listen().map_err(|error| Failure::Runtime(format!("cannot heed signals: {error}")))
}

/// While it lives, the first signal is heeded by [`check`].
pub(crate) struct Pending;

impl Pending {
    /// `what` completes "stopping after".
    pub(crate) fn begin(what: &'static str) -> Pending {
        *pending() = Work::Named(what);
        Pending
    }

    /// The same without a word.
    pub(crate) fn short() -> Pending {
        *pending() = Work::Short;
        Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        *pending() = Work::None;
    }
}

fn pending() -> MutexGuard<'static, Work> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether to go on.
pub(crate) fn check() -> Result<(), Failure> {
    match SIGNAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// Goes on after Ctrl-C, which has ended what was under way; other signals end the program.
pub(crate) fn go_on() -> Result<(), Failure> {
    match SIGNAL.swap(0, Ordering::SeqCst) {
        0 | SIGINT => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// What a signal does.
fn heed(signal: i32) {
    let first = SIGNAL.swap(signal, Ordering::SeqCst) == 0;
    match *pending() {
        Work::Named(what) if first => {
            say(format!(
                "stopping after {what}; a second signal (Ctrl-C) ends at once"
            ));
        }
        Work::Short if first => {}
        _ => {
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
            .spawn(move || signals.forever().for_each(heed))?;
        Ok(())
    }

    /// Whether whoever started the program has it ignore a signal, as `nohup` does. Not where the system does not say.
    fn is_ignored(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    }

    /// Ends without the driver's own clean-up, which other threads may still be using.
    pub(super) fn end(signal: i32) -> ! {
        signal_hook::low_level::exit(128 + signal)
    }
}

#[cfg(not(unix))]
mod platform {
    use super::*;

    pub(super) const SIGINT: i32 = 2;

    pub(super) fn listen() -> io::Result<()> {
        ctrlc::set_handler(|| heed(SIGINT)).map_err(io::Error::other)
    }

    pub(super) fn end(signal: i32) -> ! {
        std::process::exit(128 + signal)
    }
}

use platform::{SIGINT, end, listen};
