//! The state that a scheduler shows.

use crate::engine::PageCounts;

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
    /// The number of drafts that were verified so far.
    pub drafted_tokens: u64,
    /// The number of drafts that were right so far.
    pub accepted_tokens: u64,
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
