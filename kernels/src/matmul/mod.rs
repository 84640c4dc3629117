//! Products of many tokens at once, on the tensor cores of sm_90a.
//!
//! [`Matmul`] multiplies tiles of weights in any format with panels of activations ([`activations`]): what prompts are
//! made of. [`Dense`] multiplies two matrices of binary16 that tensor maps bring.

pub mod activations;
mod bounds;
mod case;
mod dense;
mod dequantize;
mod epilogue;
mod norm;
mod product;

pub use bounds::{RowBounds, RowBoundsArgs};
pub use dense::{Dense, DenseArgs};
pub use dequantize::DequantizeTiles;
pub use epilogue::Epilogue;
pub use norm::{NormTokens, NormTokensArgs};
pub use product::{Matmul, MatmulArgs};
