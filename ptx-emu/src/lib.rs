//! Reads PTX text and runs it on the CPU, refusing what a GPU lets pass.

#![forbid(unsafe_code)]
#![allow(clippy::precedence, reason = "shifts and masks read better without parentheses they do not need")]

mod accesses;
mod code;
mod decode;
mod exec;
mod fault;
mod features;
mod flow;
mod isa;
mod launch;
mod memory;
mod module;
mod parse;

pub use accesses::{Accesses, Conflict, ConflictKind};
pub use fault::{AllocationInfo, Class, Fault, OtherPlace, Place, RustPlace};
pub use launch::{Launch, Order, Schedule, Stats, Trace, run};
pub use memory::{HostBlock, Memory, MemoryError};
pub use module::{Kernel, Module, Param, ParseError, ParseErrors, Variable};
