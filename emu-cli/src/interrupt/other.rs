//! Ctrl-C on systems without signals.

use std::io;

pub(super) const SIGINT: i32 = 2;

/// Calls `handle` with the number of SIGINT at each Ctrl-C.
pub(super) fn listen(handle: fn(i32)) -> io::Result<()> {
    ctrlc::set_handler(move || handle(SIGINT)).map_err(io::Error::other)
}

pub(super) fn end(signal: i32) -> ! {
    std::process::exit(128 + signal)
}
