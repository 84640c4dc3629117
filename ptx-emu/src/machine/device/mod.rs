//! Devices and the host: allocations, the heap, and the variables of modules.
pub(crate) mod allocation;
pub(crate) mod allocation_words;
pub(crate) mod device_heap;
pub(crate) mod device_memory;
pub(crate) mod host_accesses;
pub(crate) mod host_block;
pub(crate) mod images;
pub(crate) mod memory_error;
pub(crate) mod module_variables;
