//! The settings of the terminal, which a line editor changes.

#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Saves the settings of the terminal, before a line editor changes them.
#[cfg(unix)]
pub(crate) fn remember() {
    *state() = rustix::termios::tcgetattr(io::stdin()).ok();
}

/// Returns the saved settings.
#[cfg(unix)]
fn state() -> MutexGuard<'static, Option<rustix::termios::Termios>> {
    static STATE: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the saved settings of the terminal. Call this before the program exits.
#[cfg(unix)]
pub(crate) fn restore() {
    use rustix::termios::{OptionalActions, tcsetattr};
    if let Some(termios) = state().take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &termios);
        // The line editor also enables bracketed paste, which this sequence disables. It is written
        // without std's lock on stdout, because another thread may hold it.
        let _ = rustix::io::write(io::stdout(), b"\x1b[?2004l\n");
    }
}

#[cfg(not(unix))]
pub(crate) fn remember() {}

#[cfg(not(unix))]
pub(crate) fn restore() {}
