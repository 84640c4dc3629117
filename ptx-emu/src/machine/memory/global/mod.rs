//! Accesses of warps to global memory.
pub(crate) mod address_pattern;
pub(crate) mod global_access;
pub(crate) mod global_checks;
pub(crate) mod global_record;
pub(crate) mod global_warp_record;
pub(crate) mod store_buffer;
pub(crate) mod wide_atomics;
