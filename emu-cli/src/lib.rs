//! `warpwright emu`, the checker for CUDA kernels, as a program and as a library.
//!
//! The program `warpwright-emu` contains only the checker, so it builds with a third of the dependencies. The
//! program `warpwright` has the same command as `warpwright emu`. Both use [`run`].
//!
//! The other modules are shared by the commands of `warpwright`: they print to the terminal, write
//! output files, and handle signals and errors. They have no stable interface.

mod command;
pub mod failure;
pub mod host_memory;
pub mod interrupt;
pub mod misspelling;
pub mod output;
pub mod shell;
pub mod terminal;

pub use command::{Args, Invocation, run};
pub use failure::Failure;

/// The version, followed by the commit it was built from in parentheses if git was available.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("WARPWRIGHT_COMMIT"));
