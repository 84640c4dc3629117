//! Sampling: the parameters, and the kernels and buffers that apply them. See
//! `warpwright_kernels::sample` for the arithmetic.

pub(crate) mod allowed;
pub(crate) mod defaults;
pub(crate) mod device;
mod known;
pub(crate) mod options;
pub(crate) mod probabilities;
