//! LoRA adapters of a pass, of which each row has its own or none.
//!
//! All adapters of a matrix are in two buffers, with zeros where an adapter has a smaller rank or
//! does not change the matrix. A pass launches two more kernels per matrix: one computes `s A x`,
//! the other adds `B (s A x)` to the results. See `warpwright_kernels::batch::lora`. Passes of rows
//! without adapters launch the same kernels as without this module.

pub(crate) mod launch;
pub(crate) mod matrix;
pub(crate) mod pool;
