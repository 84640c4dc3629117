//! Asynchronous copies.

pub(crate) mod copy;
pub(crate) mod tensor;
