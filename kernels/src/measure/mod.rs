//! Measurements of the memory and the tensor cores, as upper bounds for the other kernels.

pub mod multiply;
pub mod read;
pub(crate) mod variants;

pub use multiply::Multiply;
pub use read::Read;
