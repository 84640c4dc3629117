//! Products of weights with many tokens at once, on tensor cores.

mod dequantize;

pub use dequantize::DequantizeTiles;
