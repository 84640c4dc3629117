//! The terminal.

pub(crate) mod settings;
