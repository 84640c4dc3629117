//! The pipeline: a forward pass of overlapped kernels over packed weights. Its modules select, load
//! and launch the kernels.

pub(crate) mod adapter;
mod biased;
pub(crate) mod cache;
pub(crate) mod cache_layout;
mod gemv_kind;
pub(crate) mod kernels;
pub(crate) mod kinds;
pub(crate) mod pass;
pub mod path;
pub(crate) mod resolved;
pub(crate) mod step;
mod target;
pub mod tuning;
pub(crate) mod unsupported;
pub(crate) mod workspace;

pub use gemv_kind::GemvKind;
pub use unsupported::Unsupported;
