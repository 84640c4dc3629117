//! The formats of weights: the meaning of a file's bytes, the way the simple kernels read them, and
//! their layout in tiles.
//!
//! Each format is one file with all the knowledge that kernels have of it, and one row of the table
//! in `table.rs`. As data, it states which bits of a block belong to which field
//! (`BlockFormat::in_block`), and where the field is in a tile (`TileFormat::in_tile`). All CPU
//! code follows from these two: [`Format::dequantize`], which is the specification of the kernels,
//! [`tile::pack`] and [`tile::dequantize`]. The programs of a format load and unpack the same bits:
//!
//! - a fragment of a row (`lanes/fragment.rs`),
//! - a row into a tile (`lanes/pack.rs`),
//! - a tile times activations (`lanes/multiply.rs`),
//! - a row of a tile (`lanes/row.rs`).
//!
//! A row of a matrix is a whole number of blocks. Names, type numbers and layouts are ggml's:
//! `ggml.h`, `block_q4_0` and its like in `ggml-common.h`, and `dequantize_row_q4_0` and its like
//! in `ggml-quants.c`.

pub mod activations;
pub mod dequantize;
pub(crate) mod fields;
pub(crate) mod lanes;
mod table;
pub mod tile;
pub(crate) mod traits;

// The formats. `legacy` is the common part of those with blocks of 32.
mod f32;
mod half;
mod iq4_nl;
mod iq4_xs;
mod legacy;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

pub use table::Format;
