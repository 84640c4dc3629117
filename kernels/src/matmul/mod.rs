//! Products of weights with many tokens at once, on tensor cores.

pub mod activations;
mod bounds;
mod case;
mod dequantize;
mod epilogue;
mod norm;
mod product;

pub use bounds::{RowBounds, RowBoundsArgs};
pub use dequantize::DequantizeTiles;
pub use epilogue::Epilogue;
pub use norm::{NormTokens, NormTokensArgs};
pub use product::{Matmul, MatmulArgs};
