//! Products of many tokens at once, on tensor cores.
//!
//! [`Matmul`] multiplies tiles of weights in any format with panels of activations ([`activations`]): what prompts are
//! made of, on sm_90a. [`MatmulSync`] does the same from sm_80 on. [`Dense`] multiplies two matrices of binary16 that tensor
//! maps bring, on sm_90a.

pub mod activations;
mod append;
mod bounds;
mod case;
mod dense;
mod dequantize;
mod epilogue;
mod form;
mod norm;
mod pair;
pub mod plan;
mod product;
mod ring;
mod split;
mod sync;

pub use append::{Append, AppendArgs};
pub use bounds::{RowBounds, RowBoundsArgs};
pub use dense::{Dense, DenseArgs};
pub use dequantize::DequantizeTiles;
pub use epilogue::Epilogue;
pub use form::Form;
pub use norm::{NormTokens, NormTokensArgs};
pub use pair::{MatmulPair, MatmulPairArgs};
pub use product::{Matmul, MatmulArgs};
pub use sync::MatmulSync;
