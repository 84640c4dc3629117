//! The program, run as a user runs it.

mod emulator;
mod input;
mod program;
mod usage;
