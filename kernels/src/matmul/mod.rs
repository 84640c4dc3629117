//! Matmuls of many tokens on tensor cores.
//!
//! [`Matmul`] multiplies tiles of weights in any format by panels of activations ([`activations`]),
//! for prompts and batches, on sm_90a. [`MatmulSync`] does the same on sm_80 and newer. [`Dense`]
//! multiplies two `f16` matrices that are copied through tensor maps, on sm_90a. [`experts`] are the
//! kernels of a mixture of experts.

pub mod activations;
mod append;
mod bounds;
mod case;
mod definition;
mod dense;
mod dequantize;
mod epilogue;
mod expert_table;
pub mod experts;
mod lane_sums;
mod load_tile;
mod norm;
pub mod plan;
mod sync;
pub(crate) mod variants;
mod wgmma;

pub use bounds::{RowBounds, RowBoundsArgs};
pub use definition::{Append, AppendArgs, Epilogue, Matmul, MatmulArgs};
pub use dense::{Dense, DenseArgs};
pub use dequantize::DequantizeTiles;
pub use norm::{NormTokens, NormTokensArgs};
pub use sync::MatmulSync;
pub use wgmma::{MatmulPair, MatmulPairArgs, SmShare};
