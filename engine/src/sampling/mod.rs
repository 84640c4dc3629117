//! Sampling: what tokens are drawn by, and the kernels and buffers that draw them. See `warpwright_kernels::sample`.

pub(crate) mod allowed;
pub(crate) mod defaults;
pub(crate) mod device;
mod known;
pub(crate) mod options;
pub(crate) mod probabilities;
