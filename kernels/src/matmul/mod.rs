//! Products of many tokens at once on the tensor cores of sm_90a.

mod dense;

pub use dense::{Dense, DenseArgs};
