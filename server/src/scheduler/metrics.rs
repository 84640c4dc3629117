//! The metrics of schedulers.
//!
//! Numbers that go up and down, such as the number of sequences, are not here: see
//! [`SchedulerStatus`](super::status::SchedulerStatus).

use std::sync::Once;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use super::request::EndReason;

/// The time from a request to its slot, in seconds.
pub const QUEUE_SECONDS: &str = "warpwright_queue_seconds";
/// The time from a request to its first token, in seconds.
pub const FIRST_TOKEN_SECONDS: &str = "warpwright_time_to_first_token_seconds";
/// The time between two tokens of a request, in seconds.
pub const BETWEEN_TOKENS_SECONDS: &str = "warpwright_time_between_tokens_seconds";
/// The number of prompt tokens of requests that have a slot.
pub const PROMPT_TOKENS: &str = "warpwright_prompt_tokens_total";
/// The number of these that were in the cache.
pub const CACHED_TOKENS: &str = "warpwright_cached_prompt_tokens_total";
/// The number of generated tokens.
pub const GENERATED_TOKENS: &str = "warpwright_generated_tokens_total";
/// The number of drafts that were verified.
pub const DRAFTED_TOKENS: &str = "warpwright_drafted_tokens_total";
/// The number of drafts that were right.
pub const ACCEPTED_TOKENS: &str = "warpwright_accepted_draft_tokens_total";
/// The number of requests that have ended, by reason.
pub const ENDED_REQUESTS: &str = "warpwright_ended_requests_total";
/// The number of evictions.
pub const EVICTIONS: &str = "warpwright_evictions_total";
/// The duration of the engine's calls, in seconds.
pub const STEP_SECONDS: &str = "warpwright_step_seconds";

/// Describes the metrics to the recorder of the process. Only the first call has an effect, so
/// call it after the recorder is installed.
pub fn describe() {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        describe_histogram!(
            QUEUE_SECONDS,
            Unit::Seconds,
            "Time from a request to its slot."
        );
        describe_histogram!(
            FIRST_TOKEN_SECONDS,
            Unit::Seconds,
            "Time from a request to its first token."
        );
        describe_histogram!(
            BETWEEN_TOKENS_SECONDS,
            Unit::Seconds,
            "Time between two tokens of a request."
        );
        describe_histogram!(
            STEP_SECONDS,
            Unit::Seconds,
            "Duration of a call of the engine."
        );
        describe_counter!(PROMPT_TOKENS, "Prompt tokens of requests that have a slot.");
        describe_counter!(CACHED_TOKENS, "Prompt tokens that were in the cache.");
        describe_counter!(GENERATED_TOKENS, "Generated tokens.");
        describe_counter!(DRAFTED_TOKENS, "Drafts that were verified.");
        describe_counter!(ACCEPTED_TOKENS, "Drafts that were right.");
        describe_counter!(ENDED_REQUESTS, "Requests that have ended, by reason.");
        describe_counter!(EVICTIONS, "Sequences evicted because pages ran out.");
    });
}

pub(super) fn queued(time: Duration) {
    histogram!(QUEUE_SECONDS).record(time);
}

/// The moments of the tokens that a sequence has got from a step.
#[derive(Default)]
pub(super) struct TokenTimes {
    /// The number of tokens.
    pub(super) tokens: u64,
    /// The time from the request to its first token, if that is one of these.
    pub(super) first: Option<Duration>,
    /// The time between two of the tokens, and the number of such times.
    pub(super) between: Option<(Duration, usize)>,
}

/// Records the tokens of all sequences of a step.
pub(super) fn tokens(times: &[TokenTimes]) {
    if times.is_empty() {
        return;
    }
    // Looking up a metric takes longer than adding to it.
    let between = histogram!(BETWEEN_TOKENS_SECONDS);
    let mut generated = 0;
    for sequence in times {
        generated += sequence.tokens;
        if let Some(time) = sequence.first {
            histogram!(FIRST_TOKEN_SECONDS).record(time);
        }
        if let Some((time, count)) = sequence.between {
            between.record_many(time, count);
        }
    }
    counter!(GENERATED_TOKENS).increment(generated);
}

pub(super) fn prompt(tokens: u64, cached: u64) {
    counter!(PROMPT_TOKENS).increment(tokens);
    counter!(CACHED_TOKENS).increment(cached);
}

pub(super) fn verified(drafted: u64, accepted: u64) {
    counter!(DRAFTED_TOKENS).increment(drafted);
    counter!(ACCEPTED_TOKENS).increment(accepted);
}

pub(super) fn ended(reason: EndReason) {
    let reason = match reason {
        EndReason::Stop => "stop",
        EndReason::Grammar => "grammar",
        EndReason::Length => "length",
        EndReason::Context => "context",
        EndReason::Shutdown => "shutdown",
    };
    counter!(ENDED_REQUESTS, "reason" => reason).increment(1);
}

pub(super) fn failed() {
    counter!(ENDED_REQUESTS, "reason" => "failed").increment(1);
}

pub(super) fn cancelled() {
    counter!(ENDED_REQUESTS, "reason" => "cancelled").increment(1);
}

pub(super) fn evicted() {
    counter!(EVICTIONS).increment(1);
}

pub(super) fn stepped(time: Duration) {
    histogram!(STEP_SECONDS).record(time);
}
