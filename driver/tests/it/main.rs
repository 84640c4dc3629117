//! The tests of this crate on the emulator and on a driver that only counts its calls.
//!
//! The tests of `sound` are a separate program, because they also run under Miri.

#![allow(unsafe_code)]

mod emulated;
mod emulator;
#[path = "../fake/mod.rs"]
mod fake;
mod faults;
mod features;
mod graphs;
#[path = "../fake/kernels.rs"]
mod kernels;
mod many_parameters;
mod nested_parameters;
mod overlap;
mod recorder;
mod refusals;
mod staging;
