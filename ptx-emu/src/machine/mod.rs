//! Executes a launch: blocks on worker threads, the warps of a block in turn, 32 lanes at once.

pub(crate) mod async_copy;
pub(crate) mod image;
pub(crate) mod interp;
pub(crate) mod memory;
pub(crate) mod observation;
pub(crate) mod scheduler;
pub(crate) mod seeded_choice;
pub(crate) mod sync;
pub(crate) mod tensor_core;
