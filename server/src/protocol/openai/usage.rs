//! The numbers of tokens of a response, and its times.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::reply::ReplyEnded;

/// The numbers of tokens of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// The number of tokens of all prompts.
    pub prompt_tokens: u32,
    /// The number of generated tokens of all choices.
    pub completion_tokens: u32,
    /// The sum of both.
    pub total_tokens: u32,
    /// The kinds of prompt tokens.
    pub prompt_tokens_details: PromptTokens,
    /// The kinds of generated tokens.
    pub completion_tokens_details: CompletionTokens,
}

/// The kinds of prompt tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokens {
    /// The number of tokens that were in the cache.
    pub cached_tokens: u32,
}

/// The kinds of generated tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokens {
    /// The number of tokens of the reasoning.
    pub reasoning_tokens: u32,
}

/// The times of a response, with the names of llama.cpp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, ToSchema)]
pub struct Timings {
    /// The number of prompt tokens that were in the cache.
    pub cache_n: u32,
    /// The number of prompt tokens that were processed.
    pub prompt_n: u32,
    /// The time to process them, in milliseconds.
    pub prompt_ms: f64,
    /// The time per processed prompt token, in milliseconds.
    pub prompt_per_token_ms: f64,
    /// The number of prompt tokens per second.
    pub prompt_per_second: f64,
    /// The number of generated tokens.
    pub predicted_n: u32,
    /// The time to generate them, in milliseconds.
    pub predicted_ms: f64,
    /// The time per generated token, in milliseconds.
    pub predicted_per_token_ms: f64,
    /// The number of generated tokens per second.
    pub predicted_per_second: f64,
    /// The number of drafts that were verified, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n: Option<u32>,
    /// The number of drafts that were right, if there were any drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n_accepted: Option<u32>,
}

/// Adds up the tokens and times of the choices of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct UsageMeter {
    usage: Usage,
    prompt: Duration,
    decode: Duration,
    drafted: u32,
    accepted: u32,
}

/// Tells whether a choice has a prompt of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptShare {
    /// It is the first choice of its prompt.
    First,
    /// Another choice has the same prompt, which counts only once.
    Again,
}

impl UsageMeter {
    /// Counts the prompt of a choice.
    pub(super) fn started(&mut self, share: PromptShare, prompt_tokens: u32, cached_tokens: u32) {
        match share {
            PromptShare::First => {
                self.usage.prompt_tokens += prompt_tokens;
                self.usage.prompt_tokens_details.cached_tokens += cached_tokens;
            }
            PromptShare::Again => {}
        }
    }

    /// Counts the tokens of a choice that has ended. Choices are generated at the same time, so the
    /// time of the response is that of the longest.
    pub(super) fn ended(&mut self, end: &ReplyEnded) {
        self.usage.completion_tokens += end.tokens;
        self.usage.completion_tokens_details.reasoning_tokens += end.reasoning_tokens;
        self.prompt = self.prompt.max(end.times.prompt);
        self.decode = self.decode.max(end.times.decode);
        self.drafted += end.times.drafted;
        self.accepted += end.times.accepted;
    }

    /// Returns the numbers of tokens.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            total_tokens: self.usage.prompt_tokens + self.usage.completion_tokens,
            ..self.usage
        }
    }

    /// Returns the times.
    pub(super) fn timings(&self) -> Timings {
        let cached = self.usage.prompt_tokens_details.cached_tokens;
        let prompt_n = self.usage.prompt_tokens.saturating_sub(cached);
        let predicted_n = self.usage.completion_tokens;
        let prompt_ms = self.prompt.as_secs_f64() * 1e3;
        let predicted_ms = self.decode.as_secs_f64() * 1e3;
        Timings {
            cache_n: cached,
            prompt_n,
            prompt_ms,
            prompt_per_token_ms: ratio(prompt_ms, prompt_n.into()),
            prompt_per_second: ratio(1e3 * f64::from(prompt_n), prompt_ms),
            predicted_n,
            predicted_ms,
            predicted_per_token_ms: ratio(predicted_ms, predicted_n.into()),
            predicted_per_second: ratio(1e3 * f64::from(predicted_n), predicted_ms),
            draft_n: (self.drafted > 0).then_some(self.drafted),
            draft_n_accepted: (self.drafted > 0).then_some(self.accepted),
        }
    }
}

/// Returns a quotient, or 0 without a divisor, because JSON has no infinity.
fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 {
        dividend / divisor
    } else {
        0.0
    }
}
