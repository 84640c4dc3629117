//! The body of `POST /completion`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::models::ServedModel;
use crate::protocol::native::prompt::{Prompts, SpecialTokens, TextPrompt};
use crate::protocol::native::settings::Settings;
use crate::protocol::shared::{
    Body, FormatRequest, REFUSED_SAMPLING, Refused, SamplingRequest, Unless, Whole, random_salt,
    text_prompt_schema, whole_in,
};
use crate::reply::{PromptLimit, ReplyPrompt, ReplyRequest, tokenizing};

/// The maximum number of log-probabilities per token that llama.cpp's clients ask for.
const MAX_PROBABILITIES: u32 = 32;

/// The maximum number of replies to a request.
const MAX_REPLIES: usize = 128;

/// The body of `POST /completion`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    /// The name of the model. A server with one model needs none.
    pub(super) model: Option<String>,
    /// The prompt: a text, a list of texts and token ids, or a list of prompts.
    #[schema(required = true, schema_with = text_prompt_schema)]
    prompt: Option<Value>,
    /// The maximum number of tokens. -1 is no limit but the context.
    #[schema(value_type = Option<i64>, minimum = -1)]
    n_predict: Option<Whole>,
    /// The maximum number of tokens, if `n_predict` is absent.
    #[schema(value_type = Option<i64>, minimum = -1)]
    max_tokens: Option<Whole>,
    /// The number of replies to each prompt.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    n_cmpl: Option<Whole>,
    /// The number of replies to each prompt, if `n_cmpl` is absent.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    n: Option<Whole>,
    /// Whether the reply is streamed.
    stream: Option<bool>,
    /// The number of log-probabilities per token.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 32)]
    n_probs: Option<Whole>,
    /// Whether the ids of the tokens are returned.
    return_tokens: Option<bool>,
    /// Whether the prompt may use the cache.
    cache_prompt: Option<bool>,
    /// The fields of the response to return.
    response_fields: Option<Vec<String>>,
    #[serde(flatten)]
    sampling: SamplingRequest,
    #[serde(flatten)]
    format: FormatRequest,
}

/// Fields of llama.cpp's server that this one does not have.
const REFUSED: &[Refused] = &[
    refused(
        "post_sampling_probs",
        "log-probabilities are those before sampling: leave it out",
    ),
    refused("n_indent", "use `grammar` or `regex`"),
    refused("min_keep", "use `top_k`"),
    refused(
        "return_progress",
        "the stream has no events about the prompt",
    ),
    refused("timings_per_token", "the last event has the times"),
    refused(
        "sse_ping_interval",
        "a comment is sent after each 15 seconds without an event",
    ),
    refused("backend_sampling", "tokens are always chosen on the device"),
    refused("image_data", "this model reads only text"),
    refused("grammar_lazy", "a grammar applies from the first token on"),
    refused(
        "grammar_triggers",
        "a grammar applies from the first token on",
    ),
    refused("preserved_tokens", "control tokens have no text in a reply"),
];

const fn refused(field: &'static str, advice: &'static str) -> Refused {
    Refused {
        field,
        unless: Unless::Empty,
        advice,
    }
}

impl CompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Returns an error that names the field that is wrong or not supported.
    pub(super) fn read(body: &Body) -> Result<CompletionRequest, RequestError> {
        body.refuse(REFUSED_SAMPLING)?;
        body.refuse(REFUSED)?;
        body.read()
    }
}

/// A request whose fields are checked and whose prompts are tokens.
pub(super) struct PreparedCompletion {
    pub(super) settings: Settings,
    pub(super) prompts: Vec<Vec<u32>>,
    /// The number of replies to each prompt.
    pub(super) count: u32,
    /// True if the response is a list even for one reply.
    pub(super) is_list: bool,
    pub(super) return_tokens: bool,
    pub(super) response_fields: Vec<String>,
    request: ReplyRequest,
}

impl PreparedCompletion {
    /// Checks a request and tokenizes its prompts.
    ///
    /// # Errors
    /// Returns an error that names the field that is wrong.
    pub(super) async fn new(
        model: &Arc<ServedModel>,
        request: CompletionRequest,
        info: RequestInfo,
    ) -> Result<PreparedCompletion, RequestError> {
        let Some(prompt) = &request.prompt else {
            return Err(RequestError::invalid("prompt", "`prompt` is missing"));
        };
        let (prompts, is_list) = match TextPrompt::read_several("prompt", prompt)? {
            Prompts::One(prompt) => (vec![prompt], false),
            Prompts::Several(prompts) => (prompts, true),
        };
        let bytes = prompts.iter().map(TextPrompt::text_bytes).sum();
        let model = Arc::clone(model);
        let given = GivenPrompts { prompts, is_list };
        tokenizing(bytes, move || prepare(&model, request, given, info)).await
    }

    /// Returns the requests for the replies to each prompt.
    pub(super) fn requests(&self) -> impl Iterator<Item = ReplyRequest> {
        self.prompts.iter().map(|prompt| ReplyRequest {
            prompt: ReplyPrompt::Tokens(prompt.clone()),
            ..self.request.clone()
        })
    }
}

/// The prompts of a request, before they are tokenized.
struct GivenPrompts {
    prompts: Vec<TextPrompt>,
    /// True if they are a list.
    is_list: bool,
}

fn prepare(
    model: &ServedModel,
    mut request: CompletionRequest,
    given: GivenPrompts,
    info: RequestInfo,
) -> Result<PreparedCompletion, RequestError> {
    let GivenPrompts { prompts, is_list } = given;
    if let Some(biases) = request.sampling.logit_bias.take() {
        request.sampling.logit_bias = Some(biases_by_id(model, biases)?);
    }

    let count_field = if request.n_cmpl.is_some() {
        "n_cmpl"
    } else {
        "n"
    };
    let count = whole_in(count_field, request.n_cmpl.or(request.n), 1..=128_u32)?.unwrap_or(1);
    if prompts.len() * count as usize > MAX_REPLIES {
        return Err(RequestError::invalid(
            "prompt",
            format!(
                "{} prompts with {count} replies each are more than {MAX_REPLIES}",
                prompts.len()
            ),
        ));
    }

    let max_tokens = limit("n_predict", request.n_predict)?;
    let max_tokens = match request.n_predict {
        Some(_) => max_tokens,
        None => limit("max_tokens", request.max_tokens)?,
    };
    let max_tokens = match (max_tokens, model.max_tokens) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (Some(tokens), None) | (None, Some(tokens)) => Some(tokens),
        (None, None) => None,
    };

    let mut fields = request.sampling.fields()?;
    let seed = fields.seed.or(model.seed).unwrap_or_else(fresh_seed);
    fields.seed = Some(seed);
    let most = model.scheduler.limits().logprobs.min(MAX_PROBABILITIES);
    let probabilities = whole_in("n_probs", request.n_probs, 0..=most)?.unwrap_or(0);
    let stream = request.stream.unwrap_or(false);
    let return_tokens = request.return_tokens.unwrap_or(false);
    let settings = Settings {
        sampling: Settings::sampling(&model.defaults, &fields),
        seed: Some(seed),
        max_tokens,
        stop: request.sampling.stop()?,
        at_end: request.sampling.at_end(),
        probabilities,
        stream,
    };

    // Tokens are reported along with their log-probabilities.
    let needs_tokens = stream || return_tokens || probabilities > 0;
    let tokens = prompts
        .iter()
        .map(|prompt| prompt.tokens(model, SpecialTokens::Parsed, PromptLimit::Context));
    Ok(PreparedCompletion {
        request: ReplyRequest {
            request_id: info.id,
            prompt: ReplyPrompt::Tokens(vec![]),
            count,
            max_tokens,
            sampling: fields,
            stop: settings.stop.clone(),
            at_end: settings.at_end,
            format: request.format.grammar()?,
            logprobs: needs_tokens.then_some(probabilities),
            prompt_logprobs: None,
            salt: match request.cache_prompt {
                Some(false) => random_salt(),
                Some(true) | None => info.salt,
            },
        },
        prompts: tokens.collect::<Result<_, _>>()?,
        count,
        is_list: is_list || count > 1,
        return_tokens,
        response_fields: request.response_fields.unwrap_or_default(),
        settings,
    })
}

/// Returns a limit of tokens, where -1 is none.
fn limit(field: &str, value: Option<Whole>) -> Result<Option<u32>, RequestError> {
    let limit = whole_in(field, value, -1..=i64::from(u32::MAX))?;
    Ok(limit.and_then(|limit| u32::try_from(limit).ok()))
}

/// Returns a seed below 2^32, which every JSON reader can hold in a number.
fn fresh_seed() -> u64 {
    // The keys of a new hasher are random numbers from the operating system.
    RandomState::new().hash_one(0_u8) & 0xffff_ffff
}

/// Replaces texts in biases by the ids of their tokens. The last bias of a token counts.
fn biases_by_id(model: &ServedModel, biases: Value) -> Result<Value, RequestError> {
    let pairs: Vec<(Value, Value)> = match biases {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, bias)| (key.parse::<u32>().map_or(json!(key), Value::from), bias))
            .collect(),
        Value::Array(items) => {
            // A pair of another form stays, and `SamplingRequest` names it.
            let has_text = items
                .iter()
                .any(|item| item.get(0).is_some_and(Value::is_string));
            if !has_text {
                return Ok(without_repetitions(items));
            }
            let pairs = items.into_iter().map(|item| {
                let bias = item.get(1).cloned().unwrap_or_default();
                (item.get(0).cloned().unwrap_or_default(), bias)
            });
            pairs.collect()
        }
        other => return Ok(other),
    };

    let mut by_id = vec![];
    for (token, bias) in pairs {
        match token {
            Value::String(text) => {
                let ids = model.tokenizer.encode_rendered(&text);
                let ids =
                    ids.map_err(|error| RequestError::invalid("logit_bias", error.to_string()))?;
                by_id.extend(ids.into_iter().map(|id| json!([id, bias])));
            }
            other => by_id.push(json!([other, bias])),
        }
    }
    Ok(without_repetitions(by_id))
}

/// Keeps the last pair for each token.
fn without_repetitions(pairs: Vec<Value>) -> Value {
    let mut last = Map::new();
    for (position, pair) in pairs.iter().enumerate() {
        let key = pair.get(0).unwrap_or(pair).to_string();
        last.insert(key, json!(position));
    }
    let mut kept: Vec<u64> = last.values().filter_map(Value::as_u64).collect();
    kept.sort_unstable();
    let kept = kept
        .into_iter()
        .map(|position| pairs[position as usize].clone());
    Value::Array(kept.collect())
}
