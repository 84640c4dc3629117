//! Device, shared and local memory, and the accesses of warps to them.

pub(crate) mod address_pattern;
pub(crate) mod allocation;
pub(crate) mod device_heap;
pub(crate) mod device_memory;
pub(crate) mod global;
pub(crate) mod host_accesses;
pub(crate) mod host_block;
pub(crate) mod load_store;
pub(crate) mod local;
pub(crate) mod memory_error;
pub(crate) mod module_variables;
pub(crate) mod shared_warp_access;
pub(crate) mod store_buffer;
pub(crate) mod wide_atomics;
