//! Weights: the contents of each device buffer, and the upload.

pub mod info;
pub(crate) mod lora_tiles;
pub(crate) mod packed;
pub(crate) mod padding;
pub(crate) mod random;
pub(crate) mod stored;
pub(crate) mod upload;
