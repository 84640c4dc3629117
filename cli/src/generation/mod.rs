//! The text that a model generates: options, constraints, printing and statistics.

pub(crate) mod grammar;
pub(crate) mod options;
pub(crate) mod reply;
pub(crate) mod sampling;
pub(crate) mod speculative;
pub(crate) mod times;
