//! Measurements: timed rounds, timestamps of kernels, and times of kernels in sequence and in
//! isolation.

pub(crate) mod ceiling;
pub(crate) mod chunk;
pub(crate) mod microbench;
pub(crate) mod profile;
pub(crate) mod round;
