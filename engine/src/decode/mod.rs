//! Decoding: the decoder with its graphs and buffers, what it is made for, and the tokens that it gives.

pub(crate) mod cached;
pub(crate) mod decoder;
pub(crate) mod finite;
pub(crate) mod generation;
pub(crate) mod guided;
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
