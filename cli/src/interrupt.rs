//! Ctrl-C ends the work between two tokens, so that nothing half done is left behind; a second one ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static PRESSED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C is heeded by [`check`].
pub(crate) fn install() -> Result<(), Failure> {
    let press = || {
        if PRESSED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(press).map_err(|error| Failure::Runtime(format!("cannot heed Ctrl-C: {error}")))
}

/// Whether to go on.
pub(crate) fn check() -> Result<(), Failure> {
    if PRESSED.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}
