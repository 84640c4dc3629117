//! Executes a launch: blocks on host threads, the warps of a block in turn, 32 lanes at once.
//!
//! The folders are layers, from the bottom up:
//!
//! - [`device`]: memory that outlives a launch, and the images in it.
//! - [`state`]: the state of a launch while it runs. The layers above are functions that change it.
//! - [`memory`]: loads, stores and atomics of warps.
//! - [`sync`], [`async_copy`], [`tensor_core`], [`image`]: the other units of a multiprocessor.
//! - [`interp`]: dispatches the instructions of a warp, and lets lanes diverge and meet.
//! - [`scheduler`]: chooses the next warp and block, and notices launches that stand still.

pub(crate) mod async_copy;
pub(crate) mod device;
pub(crate) mod image;
pub(crate) mod interp;
pub(crate) mod memory;
pub(crate) mod observation;
pub(crate) mod predicates;
pub(crate) mod scheduler;
pub(crate) mod seeded_choice;
pub(crate) mod state;
pub(crate) mod sync;
pub(crate) mod tensor_core;
