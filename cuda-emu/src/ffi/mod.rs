//! The FFI boundary: what a caller in C passes becomes values that safe code can check and use.
//!
//! [`pointer::CArgument`] wraps every raw pointer once, in the exported function. Only that conversion relies on the
//! caller keeping the contract of the driver API: a pointer is NULL or valid for what the call's documentation says.
//! Everything after it is checked and safe.

#![allow(unsafe_code, non_snake_case)]

pub(crate) mod host;
pub(crate) mod jit;
pub(crate) mod kernel_node;
pub(crate) mod params;
pub(crate) mod pointer;
