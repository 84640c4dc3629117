//! Uninitialized values.
//!
//! The rules are those of Valgrind's memcheck (Seward and Nethercote, "Using Valgrind to Detect
//! Undefined Value Errors with Bit-Precision", USENIX ATC 2005), with one bit per lane of a
//! register instead of one per bit. The registers, the shadow of shared memory and the allocations
//! of global memory keep these bits, because they are read with the values.

pub(crate) mod propagation;
