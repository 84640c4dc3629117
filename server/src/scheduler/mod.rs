//! The scheduler: continuous batching on one thread, which owns the engine.
//!
//! | file | contents |
//! |---|---|
//! | `thread` | the public handle, the thread, and what they share |
//! | `core` | the state without threads: admission, eviction, results, ends |
//! | `plan`, `execute` | the choice of a step's work, and its execution |
//! | `speculation` | the number of drafts of a sequence |
//! | `sequence`, `embedding`, `request` | requests, and the events sent back |
//! | `check`, `retry`, `status`, `metrics`, `options`, `outbox` | what their names say |

mod adapter;
mod check;
mod core;
mod embedding;
mod execute;
pub mod metrics;
mod options;
mod outbox;
mod plan;
mod request;
mod retry;
mod sequence;
mod speculation;
mod status;
mod thread;

pub use options::{DraftLengthRule, SchedulerOptions, SpeculationOptions};
pub use request::{
    AtEnd, EndReason, Generation, GenerationEnded, GenerationError, GenerationEvent,
    GenerationRequest, SubmitError,
};
pub use status::{SchedulerStatus, SequenceStatus};
pub use thread::Scheduler;
