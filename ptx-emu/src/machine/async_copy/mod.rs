//! Asynchronous copies between global and shared memory.

pub(crate) mod bulk_store;
pub(crate) mod claimed_words;
pub(crate) mod copy;
pub(crate) mod tensor_copy;
pub(crate) mod tensor_map_update;
