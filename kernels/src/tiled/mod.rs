//! Kernels over weights packed into [`Tile`]s, and the kernels that pack them.

pub mod pack;
pub mod tile;

pub use pack::Pack;
pub use tile::{Rows, Tile};
