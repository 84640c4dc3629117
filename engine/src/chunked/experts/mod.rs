//! Mixtures of experts in chunked passes.
//!
//! The rows of a pass are sorted by expert on the device, and each expert's matrix is multiplied by
//! the rows that chose it: see `warpwright_kernels::matmul::experts`. The host knows only the number
//! of tokens. It launches the kernels for the worst case, and they read the number of sorted rows
//! from device memory. A graph is therefore valid for every choice of experts.

pub(crate) mod buffers;
pub(crate) mod kernels;
pub(crate) mod sorted_rows;
