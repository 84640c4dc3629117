//! The lines on stderr about the server itself.

use warpwright_emu::terminal::say;

use super::args::LogArg;

/// Prints lines on stderr in the form of the log, so that a reader of JSON finds nothing else.
#[derive(Clone, Copy)]
pub(super) struct Notices {
    log: LogArg,
}

impl Notices {
    pub(super) fn new(log: LogArg) -> Notices {
        Notices { log }
    }

    /// Prints a line.
    pub(super) fn say(self, text: &str) {
        match self.log {
            LogArg::Text => say(text),
            LogArg::Json => tracing::info!("{text}"),
        }
    }

    /// Prints a warning.
    pub(super) fn warn(self, text: &str) {
        match self.log {
            LogArg::Text => say(format!("warning: {text}")),
            LogArg::Json => tracing::warn!("{text}"),
        }
    }
}
