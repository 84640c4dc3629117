//! Matrix instructions.

pub(crate) mod dot_product;
pub(crate) mod mma;
pub(crate) mod sparse;
pub(crate) mod warpgroup;
pub(crate) mod wgmma;
pub(crate) mod wmma;
