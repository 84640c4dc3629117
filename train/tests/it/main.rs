//! The reference of a training step, held to what an implementation in NumPy gave (`fixtures/oracle.py`), and the step on
//! a device, held to the reference.

mod base;
mod constants;
mod device;
mod evaluation;
mod faults;
mod files;
mod fixtures;
mod generators;
mod half;
mod invariants;
mod planted;
mod refusals;
mod rounding;
mod setup;
