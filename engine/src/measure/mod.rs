//! Measurements: timed rounds, the timestamps of kernels, and kernels alone.

pub(crate) mod microbench;
pub(crate) mod profile;
pub(crate) mod round;
