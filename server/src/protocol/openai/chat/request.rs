//! The body of `POST /v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::RequestError;
use crate::protocol::shared::{Content, FormatRequest, Refused, SamplingRequest, Unless, Whole};

/// The fields of a chat request that are neither sampling parameters nor grammars.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct ChatRequest {
    /// The name of the model.
    pub model: Option<String>,
    /// The conversation. If the last message is the assistant's, the reply continues it.
    #[schema(required = true, nullable = false, min_items = 1)]
    pub messages: Option<Vec<MessageRequest>>,
    /// Whether the reply is sent as server-sent events.
    pub stream: Option<bool>,
    /// The options of a stream.
    pub stream_options: Option<StreamOptions>,
    /// The number of replies: 1 to 128.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub n: Option<Whole>,
    /// The maximum number of tokens. -1 allows as many as the context has space for.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub max_tokens: Option<Whole>,
    /// The newer name of `max_tokens`, which has priority.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub max_completion_tokens: Option<Whole>,
    /// The name of `max_tokens` in llama.cpp.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub n_predict: Option<Whole>,
    /// Whether log-probabilities are returned.
    pub logprobs: Option<bool>,
    /// The number of best log-probabilities per token: 0 to 20.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub top_logprobs: Option<Whole>,
    /// The functions that the model may call.
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or an object that names functions.
    pub tool_choice: Option<Value>,
    /// Whether a reply may have several calls.
    pub parallel_tool_calls: Option<bool>,
    /// The effort of the reasoning, such as `low`. `none` turns it off.
    pub reasoning_effort: Option<String>,
    /// The reasoning, in OpenRouter's form.
    pub reasoning: Option<ReasoningRequest>,
    /// The reasoning, in the form of DeepSeek and Z.ai.
    pub thinking: Option<ThinkingRequest>,
    /// Whether the model reasons, as several templates name it.
    pub enable_thinking: Option<bool>,
    /// Further variables of the chat template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether the last message of the assistant is continued, which is the default (vLLM).
    pub continue_final_message: Option<bool>,
    /// Whether a new message of the assistant begins, unless the last message is the assistant's.
    pub add_generation_prompt: Option<bool>,
    /// Whether cached prefixes are used.
    pub cache_prompt: Option<bool>,
    /// Whether a stream contains the progress of the prompt (llama.cpp).
    pub return_progress: Option<bool>,
}

/// A message of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "a message such as {\"role\": \"user\", \"content\": \"..\"}")]
pub struct MessageRequest {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text, or its parts.
    pub content: Option<Content>,
    /// The name of the participant, or of the tool that answers.
    pub name: Option<String>,
    /// The reasoning of the assistant.
    pub reasoning_content: Option<String>,
    /// The reasoning of the assistant, by its newer name.
    pub reasoning: Option<String>,
    /// The calls of the assistant.
    pub tool_calls: Option<Vec<CallRequest>>,
    /// The id of the call that a tool answers.
    pub tool_call_id: Option<String>,
    /// Not supported: the predecessor of `tool_calls`.
    pub function_call: Option<Value>,
    /// Not supported: an earlier answer in audio.
    pub audio: Option<Value>,
}

/// A call in a message of the assistant.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "a call such as {\"id\": \"..\", \"type\": \"function\", \"function\": {..}}")]
pub struct CallRequest {
    /// The id of the call.
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The function and its arguments.
    pub function: Option<CalledFunction>,
}

/// The function of a call.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "a function such as {\"name\": \"..\", \"arguments\": \"{..}\"}")]
pub struct CalledFunction {
    /// The name of the function.
    pub name: String,
    /// The arguments, as the text of a JSON object. An object is accepted too.
    pub arguments: Option<Value>,
}

/// The options of a stream.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Whether the last event contains the number of tokens.
    pub include_usage: Option<bool>,
    /// Not supported: whether every event contains the number of tokens (vLLM).
    pub continuous_usage_stats: Option<bool>,
}

impl StreamOptions {
    /// Checks that there is no option that is not supported.
    ///
    /// # Errors
    /// Returns an error that names it.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.continuous_usage_stats == Some(true) {
            return Err(RequestError::invalid(
                "stream_options.continuous_usage_stats",
                "`stream_options.continuous_usage_stats` is not supported: use `include_usage`",
            ));
        }
        Ok(())
    }
}

/// The reasoning, in OpenRouter's form.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct ReasoningRequest {
    /// The effort, such as `low`.
    pub effort: Option<String>,
    /// Whether the model reasons.
    pub enabled: Option<bool>,
    /// Not supported: the maximum number of tokens.
    pub max_tokens: Option<Value>,
}

/// The reasoning, in the form of DeepSeek and Z.ai.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct ThinkingRequest {
    /// `enabled`, `disabled` or `auto`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// The documentation of the whole body, which is read in three parts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ChatBody {
    #[serde(flatten)]
    chat: ChatRequest,
    #[serde(flatten)]
    sampling: SamplingRequest,
    #[serde(flatten)]
    format: FormatRequest,
}

/// Fields of OpenAI, vLLM and llama.cpp that are not supported.
///
/// Fields that do not change the reply are ignored, for example `user`, `metadata`,
/// `prompt_cache_key`, `safety_identifier`, `prediction` and `id_slot`. So is `timings_per_token`,
/// because the last event has the times anyway.
pub(super) const REFUSED_CHAT: &[Refused] = &[
    refused("audio", Unless::Empty, "this server generates only text"),
    refused(
        "modalities",
        Unless::Json("[\"text\"]"),
        "this server generates only text",
    ),
    refused(
        "web_search_options",
        Unless::Empty,
        "this server does not search the web",
    ),
    refused("functions", Unless::Empty, "use `tools`"),
    refused(
        "function_call",
        Unless::OneOf(&["auto", "none"]),
        "use `tool_choice`",
    ),
    refused("store", Unless::Empty, "this server does not keep replies"),
    refused(
        "service_tier",
        Unless::OneOf(&["auto", "default"]),
        "this server has only the tier \"default\"",
    ),
    refused(
        "verbosity",
        Unless::OneOf(&["medium"]),
        "describe the length of the reply in a message",
    ),
    refused(
        "reasoning_format",
        Unless::OneOf(&["auto", "deepseek", "deepseek-legacy"]),
        "reasoning is always returned in `reasoning_content`",
    ),
    refused(
        "thinking_budget_tokens",
        Unless::Json("-1"),
        "use `reasoning_effort`",
    ),
    refused(
        "reasoning_budget",
        Unless::Json("-1"),
        "use `reasoning_effort`",
    ),
    refused("best_of", Unless::Json("1"), "use `n`"),
    refused(
        "prompt_logprobs",
        Unless::Empty,
        "use `echo` of /v1/completions",
    ),
    refused("echo", Unless::Empty, "use /v1/completions"),
    refused(
        "chat_template",
        Unless::Empty,
        "the template of the model is used",
    ),
    refused("documents", Unless::Empty, "write documents into a message"),
    refused(
        "mm_processor_kwargs",
        Unless::Empty,
        "this model reads only text",
    ),
];

const fn refused(field: &'static str, unless: Unless, advice: &'static str) -> Refused {
    Refused {
        field,
        unless,
        advice,
    }
}
