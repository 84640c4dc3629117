//! Tests that need several crates. They are in `tests/`, and in the documentation of [`refused`].

pub mod refused;

#[cfg(doctest)]
mod book;
