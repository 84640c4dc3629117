//! The FFI boundary: converts arguments of a C caller to values that safe code can check and use.
//!
//! [`pointer::CArgument`] wraps every raw pointer once, in the exported function. Only this
//! conversion relies on the contract of the driver API, by which a pointer is NULL or valid for the
//! accesses that the call's documentation describes. All later code is checked and safe.

#![allow(unsafe_code, non_snake_case)]

pub(crate) mod host;
pub(crate) mod jit;
pub(crate) mod kernel_node;
pub(crate) mod params;
pub(crate) mod pointer;
