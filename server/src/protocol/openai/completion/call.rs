//! The body of `POST /v1/completions`, and its translation.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::prompts::prompts;
use crate::error::RequestError;
use crate::protocol::openai::chat::StreamOptions;
use crate::protocol::openai::form::{
    Delivery, MAX_BEST, MAX_REPLIES, ResponseForm, max_tokens, salt_for,
};
use crate::protocol::shared::{
    Body, FormatRequest, REFUSED_SAMPLING, Refused, SamplingRequest, Unless, Whole, prompts_schema,
    whole_in,
};
use crate::reply::ReplyRequest;

/// The maximum number of tokens if a request sets none, as in OpenAI's protocol.
const DEFAULT_TOKENS: u32 = 16;

/// The fields of a completion request that are neither sampling parameters nor grammars.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct TextCompletionRequest {
    /// The name of the model.
    pub model: Option<String>,
    /// A text, a list of token ids, or a list of texts and lists of token ids.
    #[schema(required = true, schema_with = prompts_schema)]
    pub prompt: Option<Value>,
    /// Whether the text is sent as server-sent events.
    pub stream: Option<bool>,
    /// The options of a stream.
    pub stream_options: Option<StreamOptions>,
    /// The number of texts per prompt: 1 to 128.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub n: Option<Whole>,
    /// The same number as `n`.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub best_of: Option<Whole>,
    /// The maximum number of tokens, 16 by default. -1 allows as many as the context has space for.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub max_tokens: Option<Whole>,
    /// The name of `max_tokens` in llama.cpp.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub n_predict: Option<Whole>,
    /// The number of best log-probabilities per token: 0 to 20.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub logprobs: Option<Whole>,
    /// Whether the text begins with the prompt, and the log-probabilities with those of the
    /// prompt's tokens.
    pub echo: Option<bool>,
    /// Whether cached prefixes are used.
    pub cache_prompt: Option<bool>,
}

/// The documentation of the whole body, which is read in three parts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct CompletionBody {
    #[serde(flatten)]
    completion: TextCompletionRequest,
    #[serde(flatten)]
    sampling: SamplingRequest,
    #[serde(flatten)]
    format: FormatRequest,
}

const REFUSED_COMPLETION: &[Refused] = &[
    Refused {
        field: "suffix",
        unless: Unless::Empty,
        advice: "write the prompt of a model that fills in the middle",
    },
    Refused {
        field: "prompt_logprobs",
        unless: Unless::Empty,
        advice: "use `echo` with `logprobs`",
    },
    Refused {
        field: "prompt_embeds",
        unless: Unless::Empty,
        advice: "use `prompt`",
    },
    Refused {
        field: "truncate_prompt_tokens",
        unless: Unless::Empty,
        advice: "shorten the prompt",
    },
];

/// A completion request, translated.
#[derive(Debug, Clone)]
pub struct CompletionCall {
    /// The name of the model, if the client names one.
    pub model: Option<String>,
    /// A request for replies to each prompt.
    pub replies: Vec<ReplyRequest>,
    /// The number of texts per prompt.
    pub count: u32,
    /// The beginning of the texts.
    pub echo: Echo,
    /// The form of the response.
    pub form: ResponseForm,
}

/// The beginning of a text in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Echo {
    /// The first generated token.
    #[default]
    Generated,
    /// The prompt.
    Prompt,
}

/// Reads and translates a completion request.
///
/// # Errors
/// Returns an error that names the first field that is wrong or not supported.
pub fn completion_call(
    body: &Body,
    request_id: &str,
    salt: u64,
) -> Result<CompletionCall, RequestError> {
    body.refuse(REFUSED_COMPLETION)?;
    body.refuse(REFUSED_SAMPLING)?;
    let request: TextCompletionRequest = body.read()?;
    let sampling: SamplingRequest = body.read()?;
    let format: FormatRequest = body.read()?;

    let count = whole_in("n", request.n, 1..=MAX_REPLIES)?.unwrap_or(1);
    check_best_of(&request, count)?;
    let options = request.stream_options.clone().unwrap_or_default();
    options.check()?;
    let limit = max_tokens(&[
        ("max_tokens", request.max_tokens),
        ("n_predict", request.n_predict),
    ])?;
    let has_limit = request.max_tokens.is_some() || request.n_predict.is_some();
    let max_tokens = if has_limit {
        limit
    } else {
        Some(DEFAULT_TOKENS)
    };
    let logprobs = whole_in("logprobs", request.logprobs, 0..=MAX_BEST)?;
    let echo = match request.echo {
        Some(true) => Echo::Prompt,
        Some(false) | None => Echo::Generated,
    };
    let prompt_logprobs = match echo {
        Echo::Prompt => logprobs,
        Echo::Generated => None,
    };

    let mut replies = vec![];
    for prompt in prompts("prompt", request.prompt.as_ref())? {
        replies.push(ReplyRequest {
            request_id: request_id.to_owned(),
            prompt,
            count,
            max_tokens,
            sampling: sampling.fields()?,
            stop: sampling.stop()?,
            at_end: sampling.at_end(),
            format: format.grammar()?,
            logprobs,
            prompt_logprobs,
            salt: salt_for(request.cache_prompt, salt),
        });
    }
    Ok(CompletionCall {
        model: request.model,
        replies,
        count,
        echo,
        form: ResponseForm {
            delivery: Delivery::from_stream(request.stream),
            usage_event: options.include_usage == Some(true),
            logprobs: logprobs.is_some(),
            progress: false,
        },
    })
}

fn check_best_of(request: &TextCompletionRequest, count: u32) -> Result<(), RequestError> {
    let best_of = whole_in("best_of", request.best_of, 1..=MAX_REPLIES)?;
    match best_of {
        Some(best_of) if best_of != count => Err(RequestError::invalid(
            "best_of",
            format!("`best_of` is {best_of}: only the value of `n`, {count}, is supported"),
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the call of a request with a prompt and these fields.
    fn with(fields: Value) -> Result<CompletionCall, RequestError> {
        let mut body = json!({"prompt": "Once"});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let body = Body::parse(body.to_string().as_bytes())?;
        completion_call(&body, "req_1", 7)
    }

    #[test]
    fn the_defaults_are_those_of_openai() {
        let call = with(json!({})).unwrap();
        assert_eq!(call.replies.len(), 1);
        assert_eq!(call.replies[0].max_tokens, Some(16));
        assert_eq!(call.replies[0].logprobs, None);
        assert_eq!(call.echo, Echo::Generated);
        assert_eq!(call.form, ResponseForm::default());
    }

    #[test]
    fn every_prompt_has_its_replies() {
        let call = with(json!({
            "prompt": [[1, 2], [3]], "n": 2, "best_of": 2, "max_tokens": 4, "echo": true,
            "logprobs": 1, "stream": true, "stream_options": {"include_usage": true}, "stop": "x",
        }))
        .unwrap();
        assert_eq!(call.replies.len(), 2);
        assert_eq!(call.count, 2);
        for reply in &call.replies {
            assert_eq!(reply.count, 2);
            assert_eq!(reply.max_tokens, Some(4));
            assert_eq!(reply.logprobs, Some(1));
            assert_eq!(reply.prompt_logprobs, Some(1));
            assert_eq!(reply.stop, ["x"]);
        }
        assert!(call.form.usage_event && call.form.logprobs);
        assert_eq!(call.form.delivery, Delivery::Events);
    }

    #[test]
    fn a_prompt_can_be_scored_without_a_generated_token() {
        let call = with(json!({"max_tokens": 0, "echo": true, "logprobs": 5})).unwrap();
        assert_eq!(call.replies[0].max_tokens, Some(0));
        assert_eq!(call.replies[0].prompt_logprobs, Some(5));
        assert_eq!(
            with(json!({"max_tokens": -1})).unwrap().replies[0].max_tokens,
            None
        );
    }

    #[test]
    fn wrong_fields_are_named() {
        for (fields, param) in [
            (json!({"prompt": null}), "prompt"),
            (json!({"prompt": [[1], 2]}), "prompt[1]"),
            (json!({"suffix": "x"}), "suffix"),
            (json!({"best_of": 3}), "best_of"),
            (json!({"n": 2, "best_of": 1}), "best_of"),
            (json!({"logprobs": 21}), "logprobs"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"echo": "yes"}), "echo"),
            (json!({"prompt_logprobs": 1}), "prompt_logprobs"),
            (json!({"max_tokens": 1.5}), "max_tokens"),
        ] {
            let error = with(fields.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{fields}");
        }
        assert!(with(json!({"suffix": null, "best_of": null})).is_ok());
    }
}
