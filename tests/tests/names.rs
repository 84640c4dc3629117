//! Checks that the names of `ptx-gen` and `warpwright-driver` can be imported together, and that
//! neither hides a name of the standard prelude.

#![allow(unsafe_code)] // loading a kernel is unsafe

mod globs;
mod preludes;
