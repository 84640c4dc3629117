//! The handle by which other threads use a scheduler.

use std::future::Future;
use std::time::Duration;

use super::request::{Generation, GenerationError, GenerationRequest, SubmitError};
use crate::engine::{Engine, EngineLimits, PageCounts};

/// The options of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// The maximum number of requests that wait for a slot.
    pub queue: usize,
    /// The maximum number of tokens per step, over all sequences.
    pub tokens_per_step: u32,
    /// The maximum number of decode steps per launch while no request waits.
    pub steps_per_launch: u32,
}

/// The state of a scheduler at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStatus {
    /// The sequences in the engine.
    pub sequences: Vec<SequenceStatus>,
    /// The number of requests that wait for a slot.
    pub waiting: usize,
    /// The pages of the cache.
    pub pages: PageCounts,
    /// The number of prompt tokens processed so far.
    pub prompt_tokens: u64,
    /// The number of prompt tokens found in the cache so far.
    pub cached_tokens: u64,
    /// The number of tokens generated so far.
    pub generated_tokens: u64,
    /// The number of requests that ended so far, for any reason.
    pub ended: u64,
    /// The number of times that a sequence was evicted because pages ran out.
    pub evicted: u64,
    /// The error of a device that is lost.
    pub lost: Option<String>,
}

/// The state of a sequence at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceStatus {
    /// The id of its HTTP request.
    pub request_id: String,
    /// The number of tokens of the prompt, and how many of them are processed.
    pub prompt: u32,
    /// The number of prompt tokens that are in the cache.
    pub processed: u32,
    /// The number of generated tokens.
    pub generated: u32,
}

/// A scheduler, which runs on its own thread. Clones share it.
#[derive(Clone, Debug)]
pub struct Scheduler {}

impl Scheduler {
    /// Starts the thread of a scheduler.
    pub fn start(engine: Box<dyn Engine>, options: SchedulerOptions) -> Scheduler {
        let _ = (engine, options);
        unreachable!("not written yet")
    }

    /// Returns the sizes of the engine.
    pub fn limits(&self) -> EngineLimits {
        unreachable!("not written yet")
    }

    /// Checks a request and puts it into the queue. It never blocks.
    ///
    /// # Errors
    /// Returns the reason if the request is refused.
    pub fn submit(&self, request: GenerationRequest) -> Result<Generation, SubmitError> {
        let _ = request;
        unreachable!("not written yet")
    }

    /// Computes the embeddings of texts between two steps.
    pub fn embed(
        &self,
        texts: Vec<Vec<u32>>,
    ) -> impl Future<Output = Result<Vec<Vec<f32>>, GenerationError>> + Send + use<> {
        let _ = texts;
        async { unreachable!("not written yet") }
    }

    /// Returns the state of the scheduler.
    pub fn status(&self) -> SchedulerStatus {
        unreachable!("not written yet")
    }

    /// Refuses new requests, lets running ones end for at most `grace`, ends the rest with
    /// [`EndReason::Shutdown`](super::EndReason::Shutdown), and stops the thread.
    pub fn shut_down(&self, grace: Duration) -> impl Future<Output = ()> + Send + use<> {
        let _ = grace;
        async { unreachable!("not written yet") }
    }
}
