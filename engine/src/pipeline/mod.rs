//! The forward pass as a pipeline of overlapped kernels over packed weights: what it decides, loads and launches.

pub(crate) mod adapter;
pub(crate) mod kernels;
pub mod path;
mod product;
pub(crate) mod resolved;
pub(crate) mod step;
mod target;
pub mod tuning;
pub(crate) mod unsupported;
pub(crate) mod workspace;

pub use product::Product;
pub use unsupported::Unsupported;
