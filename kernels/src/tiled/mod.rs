//! Kernels over weights packed into [`Tile`]s, and the kernels that pack them.

pub mod tile;

pub use tile::{Rows, Tile};
