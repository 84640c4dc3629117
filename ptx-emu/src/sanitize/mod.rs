//! The sanitizers of a launch.
//!
//! A sanitizer knows no machine. The machine notifies it of accesses, synchronization and executed
//! instructions, and the sanitizer answers whether a rule is broken. What it must know about the
//! instruction, it asks an [`ExecutionContext`](execution_context::ExecutionContext). Each folder
//! has the state and the algorithm of one sanitizer:
//!
//! - [`race`]: unordered accesses of threads to shared and global memory.
//! - [`init`]: uninitialized values.
//! - [`arithmetic`]: divisions by zero, NaN and infinity, and conversions that saturate.
//! - [`provenance`]: pointers that stray from the object from which they were derived.
//! - [`profile`]: counts of instructions, and the record of one thread.
//!
//! Races and uninitialized values are always checked, because their verdict decides whether an
//! access is executed. The others observe a launch [on request](observers). The rules of barriers
//! and clusters are not here: they are preconditions without a state of their own, so the functions
//! that execute these instructions check them.

pub(crate) mod arithmetic;
pub(crate) mod execution_context;
pub(crate) mod init;
pub(crate) mod observer;
pub(crate) mod observers;
pub(crate) mod profile;
pub(crate) mod provenance;
pub(crate) mod race;
