//! The scheduler: continuous batching on one thread, which owns the engine.

mod handle;
mod request;

pub use handle::{Scheduler, SchedulerOptions, SchedulerStatus, SequenceStatus};
pub use request::{
    AtEnd, EndReason, Generation, GenerationEnded, GenerationError, GenerationEvent,
    GenerationRequest, SubmitError,
};
