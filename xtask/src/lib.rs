//! The parts of the repository's commands that tests of other crates use.

pub mod imports;
