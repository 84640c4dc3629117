//! Weights on their way to a device: what each buffer holds, and who fills it.

pub mod info;
pub(crate) mod packed;
pub(crate) mod random;
pub(crate) mod stored;
pub(crate) mod upload;
