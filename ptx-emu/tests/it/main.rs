//! The emulator against the PTX manual: what each instruction gives, and what each mistake is called.

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
