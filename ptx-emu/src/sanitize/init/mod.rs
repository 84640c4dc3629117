//! Uninitialized values.

pub(crate) mod propagation;
