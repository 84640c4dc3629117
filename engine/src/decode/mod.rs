//! Single-sequence decoding: the decoder with its graphs and buffers, its options, and its
//! generations.

pub(crate) mod cached;
pub(crate) mod constrained;
pub(crate) mod decoder;
pub(crate) mod finite;
pub(crate) mod generation;
pub(crate) mod in_flight;
pub(crate) mod loading;
pub(crate) mod memory;
pub(crate) mod needs;
pub(crate) mod options;
mod planned;
pub(crate) mod prefill;
pub(crate) mod row_kernels;
pub(crate) mod rows;
pub(crate) mod scores;
pub(crate) mod sequence;
mod verify;
