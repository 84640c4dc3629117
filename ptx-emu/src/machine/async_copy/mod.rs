//! Asynchronous copies between global and shared memory.

pub(crate) mod bulk_store;
pub(crate) mod copy;
pub(crate) mod copy_source;
pub(crate) mod tensor_box;
pub(crate) mod tensor_copy;
pub(crate) mod tensor_map_update;
pub(crate) mod unfinished;
