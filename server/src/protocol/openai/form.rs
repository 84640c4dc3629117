//! The form of a response, and limits that both kinds of completions share.

use crate::error::RequestError;
use crate::protocol::shared::{Whole, random_salt, whole_in};

/// The maximum number of best log-probabilities per token.
pub(crate) const MAX_BEST: u32 = 20;

/// The maximum number of replies to a prompt.
pub(crate) const MAX_REPLIES: u32 = 128;

/// The form of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseForm {
    /// The way in which the response is sent.
    pub delivery: Delivery,
    /// Whether the last event of a stream contains the number of tokens.
    pub usage_event: bool,
    /// Whether choices contain log-probabilities.
    pub logprobs: bool,
    /// Whether a stream contains the progress of the prompt.
    pub progress: bool,
}

/// The way in which a response is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    /// One JSON object at the end.
    #[default]
    Whole,
    /// Server-sent events.
    Events,
}

impl Delivery {
    /// Returns the way that the field `stream` asks for.
    pub fn from_stream(stream: Option<bool>) -> Delivery {
        match stream {
            Some(true) => Delivery::Events,
            Some(false) | None => Delivery::Whole,
        }
    }
}

/// Returns the first limit that is set. All of them are checked, and -1 means no limit.
pub(crate) fn max_tokens(fields: &[(&str, Option<Whole>)]) -> Result<Option<u32>, RequestError> {
    let mut first = None;
    for (field, value) in fields {
        let limit = whole_in(field, *value, -1..=i64::from(u32::MAX))?;
        first = first.or(limit);
    }
    Ok(first.and_then(|limit| u32::try_from(limit).ok()))
}

/// Returns the salt of a request: a random one if it must not use cached prefixes.
pub(crate) fn salt_for(cache_prompt: Option<bool>, salt: u64) -> u64 {
    match cache_prompt {
        Some(false) => random_salt(),
        Some(true) | None => salt,
    }
}
