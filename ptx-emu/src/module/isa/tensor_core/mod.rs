//! Matrix instructions.

pub(crate) mod fragment_registers;
pub(crate) mod mma;
pub(crate) mod wgmma;
pub(crate) mod wmma;
