//! Tests that cross crates. What is here is documentation: the tests are in `tests/`, and in the examples below.

pub mod refused;

#[cfg(doctest)]
mod book;
