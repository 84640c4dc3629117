//! The program, run as a user runs it.

mod bench;
mod emulator;
mod input;
mod program;
mod usage;
