//! The JSON of completions.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::collect::Collected;
use super::request::PreparedCompletion;
use crate::models::ServedModel;
use crate::protocol::native::prompt::spelled_text;
use crate::reply::{FinishReason, ReplyEnded, TokenText};

/// Returns the response for a whole reply.
pub(super) fn complete(
    model: &ServedModel,
    prepared: &PreparedCompletion,
    reply: &Collected,
) -> Value {
    let mut json = last(model, prepared, reply);
    json["content"] = json!(reply.text);
    json["tokens"] = if prepared.return_tokens {
        ids(&reply.tokens)
    } else {
        json!([])
    };
    if prepared.settings.probabilities > 0 {
        json["completion_probabilities"] = probabilities(&reply.tokens);
    }
    json
}

/// Returns the last event of a stream, which has all facts but the text.
pub(super) fn last(model: &ServedModel, prepared: &PreparedCompletion, reply: &Collected) -> Value {
    let prompt = &prepared.prompts[reply.prompt];
    let ended = reply.ended.as_ref();
    let tokens = ended.map_or(0, |ended| ended.tokens);
    let (stop_type, word) = match ended.map(|ended| &ended.reason) {
        Some(FinishReason::Stop) => ("eos", ""),
        Some(FinishReason::StopString(word)) => ("word", &**word),
        Some(FinishReason::Length) => ("limit", ""),
        Some(FinishReason::Calls | FinishReason::Shutdown) | None => ("none", ""),
    };
    // A reply that ends before its limit ends because the context is full.
    let limit = prepared.settings.max_tokens;
    let truncated = stop_type == "limit" && limit.is_none_or(|limit| tokens < limit);
    let mut settings = prepared.settings.json(model);
    settings["n_ctx"] = json!(model.scheduler.limits().ctx);
    json!({
        "index": reply.index,
        "content": "",
        "tokens": [],
        "id_slot": 0,
        "stop": true,
        "model": model.name,
        "tokens_predicted": tokens,
        "tokens_evaluated": prompt.len(),
        "generation_settings": settings,
        "prompt": spelled_text(model, prompt),
        "has_new_line": reply.text.contains('\n'),
        "truncated": truncated,
        "stop_type": stop_type,
        "stopping_word": word,
        "tokens_cached": reply.cached,
        "timings": timings(prompt.len(), reply.cached, ended),
    })
}

/// Returns an event with a part of a reply.
pub(super) fn chunk(
    prepared: &PreparedCompletion,
    reply: &Collected,
    text: &str,
    tokens: &[TokenText],
) -> Value {
    let mut json = json!({
        "index": reply.index,
        "content": text,
        "tokens": ids(tokens),
        "stop": false,
        "id_slot": 0,
        "tokens_predicted": reply.tokens.len(),
        "tokens_evaluated": prepared.prompts[reply.prompt].len(),
    });
    if prepared.settings.probabilities > 0 {
        json["completion_probabilities"] = probabilities(tokens);
    }
    json
}

fn ids(tokens: &[TokenText]) -> Value {
    tokens.iter().map(|token| token.token).collect()
}

/// Returns the log-probabilities of tokens.
fn probabilities(tokens: &[TokenText]) -> Value {
    let of_token = |token: &TokenText| {
        let mut json = probability(token.token, &token.bytes, token.logprob.unwrap_or(0.0));
        let best = token
            .best
            .iter()
            .map(|(id, bytes, logprob)| probability(*id, bytes, *logprob));
        json["top_logprobs"] = best.collect();
        json
    };
    tokens.iter().map(of_token).collect()
}

fn probability(id: u32, bytes: &[u8], logprob: f64) -> Value {
    json!({
        "id": id,
        "token": String::from_utf8_lossy(bytes),
        "bytes": bytes,
        "logprob": logprob,
    })
}

fn timings(prompt: usize, cached: u32, ended: Option<&ReplyEnded>) -> Value {
    let times = ended.map(|ended| ended.times).unwrap_or_default();
    let processed = prompt.saturating_sub(cached as usize);
    let predicted = ended.map_or(0, |ended| ended.tokens as usize);
    let mut timings = json!({
        "cache_n": cached,
        "prompt_n": processed,
        "prompt_ms": milliseconds(times.prompt),
        "prompt_per_token_ms": per_token(times.prompt, processed),
        "prompt_per_second": per_second(times.prompt, processed),
        "predicted_n": predicted,
        "predicted_ms": milliseconds(times.decode),
        "predicted_per_token_ms": per_token(times.decode, predicted),
        "predicted_per_second": per_second(times.decode, predicted),
        "queued_ms": milliseconds(times.queued),
    });
    // llama-server leaves these out if it verified no drafts.
    if times.drafted > 0 {
        timings["draft_n"] = json!(times.drafted);
        timings["draft_n_accepted"] = json!(times.accepted);
    }
    timings
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Returns the time per token, or 0 without tokens, because JSON has no infinity.
fn per_token(time: Duration, tokens: usize) -> f64 {
    if tokens == 0 {
        0.0
    } else {
        milliseconds(time) / tokens as f64
    }
}

fn per_second(time: Duration, tokens: usize) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 {
        0.0
    } else {
        tokens as f64 / seconds
    }
}

/// Returns only the selected fields of a response, or all of them if none is selected. `a/b` selects
/// the field `b` of the object `a`. Fields that do not exist are left out.
pub(super) fn selected(response: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return response;
    }
    let mut selected = Map::new();
    for field in fields {
        let pointer = format!("/{}", field.replace('~', "~0"));
        if let Some(value) = response.pointer(&pointer) {
            selected.insert(field.clone(), value.clone());
        }
    }
    Value::Object(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_selected_by_path() {
        let response = json!({"content": "a", "settings": {"n": 5}, "x": 1});
        let fields = ["content", "settings/n", "missing", "settings/none"].map(str::to_owned);
        assert_eq!(
            selected(response.clone(), &fields),
            json!({"content": "a", "settings/n": 5})
        );
        assert_eq!(selected(response.clone(), &[]), response);
    }

    #[test]
    fn times_without_tokens_are_zero() {
        assert_eq!(per_token(Duration::from_secs(1), 0), 0.0);
        assert_eq!(per_second(Duration::ZERO, 5), 0.0);
        assert_eq!(per_second(Duration::from_secs(2), 5), 2.5);
        assert_eq!(per_token(Duration::from_secs(1), 4), 250.0);
    }
}
