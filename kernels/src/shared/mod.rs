//! Helpers that several families of kernels share.

pub(crate) mod attend;
pub mod cache;
pub mod constant;
mod contract;
pub(crate) mod divided;
mod overlap;
pub mod philox;
mod random;
pub mod reduce;
pub(crate) mod shared_rows;
pub mod state;
pub(crate) mod tiled;

pub(crate) use contract::{Contract, check_lengths};
pub use overlap::Overlap;
pub use random::Random;
pub use tiled::ProductTile;
