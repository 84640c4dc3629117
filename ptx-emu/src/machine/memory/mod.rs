//! Device, shared and local memory, and the accesses of warps to them.

pub(crate) mod address_pattern;
pub(crate) mod allocation;
pub(crate) mod allocation_words;
pub(crate) mod cluster_window;
pub(crate) mod device_heap;
pub(crate) mod device_memory;
pub(crate) mod global;
pub(crate) mod global_checks;
pub(crate) mod global_record;
pub(crate) mod global_warp_record;
pub(crate) mod host_accesses;
pub(crate) mod host_block;
pub(crate) mod lane_access;
pub(crate) mod load_store;
pub(crate) mod local;
pub(crate) mod lockstep_loads;
pub(crate) mod memory_error;
pub(crate) mod module_variables;
pub(crate) mod same_address;
pub(crate) mod shared;
pub(crate) mod shared_checks;
pub(crate) mod shared_warp_access;
pub(crate) mod store_buffer;
pub(crate) mod tolerance;
pub(crate) mod wide_atomics;
