//! Measurements: timed rounds, the timestamps of kernels, kernels one after the other, and kernels alone.

pub(crate) mod ceiling;
pub(crate) mod chunk;
pub(crate) mod microbench;
pub(crate) mod profile;
pub(crate) mod round;
