//! The values of `--arg`, `--const` and `--expect`.

pub(crate) mod argument;
pub(crate) mod fill;
mod image;
pub(crate) mod npy;
pub(crate) mod value;
