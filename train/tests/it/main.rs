//! The reference of a training step, held to what an implementation in NumPy gave (`fixtures/oracle.py`), and the step on
//! a device, held to the reference.

mod base;
mod caught;
mod compare;
mod constants;
mod device;
mod device_faults;
mod differences;
mod evaluation;
mod faults;
mod faulty;
mod files;
mod fixtures;
mod gates;
mod generators;
mod half;
mod hooked;
mod invariants;
mod losses;
mod page;
mod planted;
mod refusals;
mod rounding;
mod setup;
