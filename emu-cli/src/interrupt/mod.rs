//! Handling of SIGINT, SIGTERM and SIGHUP.
//!
//! A signal ends the program at once, after the functions passed to [`install`] have run, for
//! example to remove temporary files. While a [`PendingInterrupt`] lives, the first signal only
//! sets a flag, which [`check`] reports at the next safe point. So a text ends with its statistics
//! and a training run with a checkpoint. The second signal ends the program.

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::failure::Failure;
use crate::terminal::say;
#[cfg(not(unix))]
use other::{SIGINT, end, listen};
#[cfg(unix)]
use unix::{SIGINT, end, listen};

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

/// The functions to call before a signal ends the program.
static CLEAN_UP: OnceLock<&[fn()]> = OnceLock::new();

/// Installs the signal handlers. Before a signal ends the program, it calls the functions in
/// `clean_up`, because no destructor runs.
///
/// # Errors
/// Returns an error if the system refuses a handler.
pub fn install(clean_up: &'static [fn()]) -> Result<(), Failure> {
    // A second call would not change the list, and no program makes one.
    CLEAN_UP.get_or_init(|| clean_up);
    listen(handle).map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))
}

/// A guard that defers the first signal to the next [`check`].
pub struct PendingInterrupt;

impl PendingInterrupt {
    /// Begins work that a message names: `what` completes "stopping after".
    pub fn begin(what: &'static str) -> PendingInterrupt {
        *pending() = PendingWork::Named(what);
        PendingInterrupt
    }

    /// Begins work that ends so soon that no message is needed.
    pub fn short() -> PendingInterrupt {
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

/// Checks that no signal has arrived.
///
/// # Errors
/// Returns [`Failure::Interrupted`] if a signal has arrived.
pub fn check() -> Result<(), Failure> {
    match SIGNAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}

/// Clears a Ctrl-C, after the work that it interrupted has ended.
///
/// # Errors
/// Returns [`Failure::Interrupted`] for any other signal.
pub fn go_on() -> Result<(), Failure> {
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
            for clean_up in CLEAN_UP.get().copied().unwrap_or_default() {
                clean_up();
            }
            end(signal);
        }
    }
}
