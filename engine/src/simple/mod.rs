//! The simple forward pass: one kernel per operation, over weights as the file stores them, for
//! every model and device.

pub(crate) mod added_bias;
pub(crate) mod experts;
pub(crate) mod gate;
pub(crate) mod kernels;
pub(crate) mod matrix;
pub(crate) mod norm;
pub(crate) mod products;
pub(crate) mod step;
