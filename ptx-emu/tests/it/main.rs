//! The emulator against the PTX manual: what each instruction gives, and what each mistake is called.
//!
//! Every kernel here that ends without a fault also ran on an H200 (driver 580.159) and left the same bytes there,
//! save `tanh.approx` and what prints addresses. To see one fail is to see the emulator change.

mod compare;
mod control;
mod convert;
mod faults;
mod float;
mod fuzz;
mod halves;
mod integer;
mod logic;
mod machine;
mod memory;
mod nvrtc;
mod parse;
mod saxpy;
mod schedule;
mod warp;
