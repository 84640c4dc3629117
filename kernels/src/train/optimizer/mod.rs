//! The end of a training step: clipping, AdamW, the learning rate, and the state of a run.

pub mod adamw;
pub mod clip;
pub mod micro_batch;
pub mod schedule;
pub mod state;
