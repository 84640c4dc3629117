//! Products of weights with many tokens at once, on tensor cores.

pub mod activations;
mod dequantize;
mod norm;

pub use dequantize::DequantizeTiles;
pub use norm::{NormTokens, NormTokensArgs};
