//! The forward pass with one kernel per operation, over the file's rows, for every model and device.

pub(crate) mod kernels;
pub(crate) mod products;
pub(crate) mod step;
