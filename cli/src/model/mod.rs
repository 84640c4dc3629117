//! The model of a command: its options and its adapter.

pub(crate) mod adapter;
pub(crate) mod options;
