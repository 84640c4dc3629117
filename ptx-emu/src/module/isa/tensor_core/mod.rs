//! Matrix instructions.

pub(crate) mod mma;
pub(crate) mod wgmma;
pub(crate) mod wmma;
