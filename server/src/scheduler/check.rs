//! The checks of a request before it takes a place in the queue.

use super::request::{GenerationRequest, SubmitError};
use crate::engine::EngineLimits;

/// Returns the number of positions that a sequence can have.
pub(super) fn usable_ctx(limits: &EngineLimits) -> u32 {
    limits.ctx.min(limits.pages.saturating_mul(limits.page_len))
}

/// Checks a request.
pub(super) fn check_request(
    request: &GenerationRequest,
    limits: &EngineLimits,
) -> Result<(), SubmitError> {
    check_tokens(&request.prompt, limits)?;
    let ctx = usable_ctx(limits);
    let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
    if prompt >= ctx {
        return Err(SubmitError::Context { prompt, ctx });
    }

    let checked = request.sampling.check(limits.vocab);
    checked.map_err(|error| SubmitError::Sampling(error.to_string()))?;
    check_logprobs("logprobs", request.sampling.logprobs, limits)?;
    check_logprobs(
        "prompt_logprobs",
        request.prompt_logprobs.unwrap_or(0),
        limits,
    )
}

/// Checks a text whose embedding is wanted.
pub(super) fn check_text(text: &[u32], limits: &EngineLimits) -> Result<(), SubmitError> {
    check_tokens(text, limits)?;
    let ctx = usable_ctx(limits);
    let prompt = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if prompt > ctx {
        return Err(SubmitError::Context { prompt, ctx });
    }
    Ok(())
}

fn check_tokens(tokens: &[u32], limits: &EngineLimits) -> Result<(), SubmitError> {
    if tokens.is_empty() {
        return Err(SubmitError::NoPrompt);
    }
    let vocab = limits.vocab;
    match tokens.iter().find(|token| **token >= vocab) {
        Some(&token) => Err(SubmitError::Token { token, vocab }),
        None => Ok(()),
    }
}

fn check_logprobs(name: &str, count: u32, limits: &EngineLimits) -> Result<(), SubmitError> {
    let most = limits.logprobs;
    if count > most {
        let reason = format!("{name} is {count}, and at most {most} are allowed");
        return Err(SubmitError::Sampling(reason));
    }
    Ok(())
}
