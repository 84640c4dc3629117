//! The forward pass as a pipeline of overlapped kernels over packed weights: what it decides, loads and launches.

pub(crate) mod kernels;
mod product;
pub(crate) mod resolved;
pub(crate) mod step;
mod unsupported;
pub(crate) mod weights;
pub(crate) mod workspace;

pub use product::Product;
pub use unsupported::Unsupported;
