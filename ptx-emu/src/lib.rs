//! Reads PTX text and runs it on the CPU, refusing what a GPU lets pass.

#![forbid(unsafe_code)]

mod accesses;
mod fault;
mod launch;
mod memory;
mod module;

pub use accesses::{Accesses, Conflict, ConflictKind};
pub use fault::{AllocationInfo, Class, Fault, OtherPlace, Place, RustPlace};
pub use launch::{Launch, Order, Schedule, Stats, Trace, run};
pub use memory::{HostBlock, Memory, MemoryError};
pub use module::{Kernel, Module, Param, ParseError, ParseErrors};
