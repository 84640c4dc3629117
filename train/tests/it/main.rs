//! The reference of a training step, held to what an implementation in NumPy gave (`fixtures/oracle.py`).

mod constants;
mod faults;
mod fixtures;
mod generators;
mod invariants;
mod planted;
mod refusals;
mod rounding;
mod setup;
