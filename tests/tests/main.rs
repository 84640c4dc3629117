//! The tests that cross crates, as one program.

mod coherence;
mod errors;
mod identities;
mod language;
mod layers;
mod names;
mod planted;
mod snapshots;
mod table;
