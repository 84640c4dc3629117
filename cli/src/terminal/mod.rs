//! The terminal: its settings, and progress bars.

pub(crate) mod progress;
pub(crate) mod settings;
