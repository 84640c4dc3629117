//! The response object.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::protocol::openai::TokenLogprob;

/// A response. All fields are always present, because clients validate them.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ResponseObject {
    /// The id, which starts with `resp_`.
    pub id: String,
    /// `response`.
    pub object: &'static str,
    /// The time of the request, in seconds since 1970.
    pub created_at: u64,
    /// The time of the end, in seconds since 1970, if the response is complete.
    pub completed_at: Option<u64>,
    /// The status.
    pub status: ResponseStatus,
    /// The reason why the response is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// The reason why the response has failed.
    pub error: Option<ResponseFailure>,
    /// The name of the model.
    pub model: String,
    /// The items.
    pub output: Vec<OutputItem>,
    /// The number of tokens, at the end.
    pub usage: Option<ResponseUsage>,
    /// The parameters of the request.
    #[serde(flatten)]
    pub parameters: ResponseParameters,
}

/// The parameters of a request that the response repeats, and those that it never has.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ResponseParameters {
    /// Always null, as responses are not kept.
    #[schema(value_type = Option<String>)]
    pub previous_response_id: (),
    /// Always false, as responses are not kept.
    pub store: bool,
    /// Always false.
    pub background: bool,
    /// Always `disabled`.
    pub truncation: &'static str,
    /// Always `default`.
    pub service_tier: &'static str,
    /// The instructions.
    pub instructions: Option<String>,
    /// The functions that the model could call.
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    /// The calls that the model could make.
    pub tool_choice: Value,
    /// Whether the response could have more than one call.
    pub parallel_tool_calls: bool,
    /// The format of the text.
    pub text: TextConfiguration,
    /// The reasoning of the model.
    pub reasoning: ReasoningConfiguration,
    /// The temperature.
    pub temperature: f64,
    /// The share of the probability from which tokens were chosen.
    pub top_p: f64,
    /// The penalty of tokens that occurred before.
    pub presence_penalty: f64,
    /// The penalty of tokens by the number of their occurrences.
    pub frequency_penalty: f64,
    /// The number of most likely tokens with log-probabilities.
    pub top_logprobs: u32,
    /// The maximum number of tokens.
    pub max_output_tokens: Option<u32>,
    /// The maximum number of calls of OpenAI's own tools.
    pub max_tool_calls: Option<u32>,
    /// The metadata of the request.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The field of the request.
    pub user: Option<String>,
    /// The field of the request.
    pub safety_identifier: Option<String>,
    /// The field of the request.
    pub prompt_cache_key: Option<String>,
}

/// The status of a response or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// The model is generating.
    InProgress,
    /// The model has ended.
    Completed,
    /// The maximum number of tokens was reached.
    Incomplete,
    /// The server has failed. Items do not have this status.
    Failed,
}

/// The reason why a response is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: &'static str,
}

/// The reason why a response has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResponseFailure {
    /// The code, such as `server_error`.
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

/// The format of the text.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TextConfiguration {
    /// The format.
    pub format: TextFormat,
    /// Always `medium`.
    pub verbosity: &'static str,
}

/// The format of the text.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextFormat {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that a schema allows.
    JsonSchema {
        /// The name of the schema.
        name: String,
        /// The description of the schema.
        description: Option<String>,
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
        /// Always true.
        strict: bool,
    },
}

/// The reasoning of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReasoningConfiguration {
    /// The effort.
    pub effort: Option<String>,
    /// The summary that the request asked for.
    pub summary: Option<String>,
}

/// The number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ResponseUsage {
    /// The number of tokens of the prompt.
    pub input_tokens: u32,
    /// Details of the prompt.
    pub input_tokens_details: InputTokensDetails,
    /// The number of generated tokens.
    pub output_tokens: u32,
    /// Details of the generated tokens.
    pub output_tokens_details: OutputTokensDetails,
    /// The sum of both numbers.
    pub total_tokens: u32,
}

/// Details of the tokens of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct InputTokensDetails {
    /// The number of tokens that were in the cache.
    pub cached_tokens: u32,
}

/// Details of generated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct OutputTokensDetails {
    /// The number of tokens of the reasoning.
    pub reasoning_tokens: u32,
}

/// The number of tokens of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct InputTokens {
    /// `response.input_tokens`.
    pub object: &'static str,
    /// The number of tokens.
    pub input_tokens: u32,
}

/// An item of a response.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// The reasoning. It is returned as a summary, because clients send summaries back in the next
    /// request and show them.
    Reasoning {
        /// The id, which starts with `rs_`.
        id: String,
        /// The text.
        summary: Vec<SummaryPart>,
    },
    /// A message.
    Message {
        /// The id, which starts with `msg_`.
        id: String,
        /// The status.
        status: ResponseStatus,
        /// `assistant`.
        role: &'static str,
        /// The text.
        content: Vec<OutputPart>,
    },
    /// A call of a function.
    FunctionCall {
        /// The id of the item, which starts with `fc_`.
        id: String,
        /// The id of the call.
        call_id: String,
        /// The name of the function.
        name: String,
        /// The arguments, as the text of a JSON object.
        arguments: String,
        /// The status.
        status: ResponseStatus,
    },
}

/// A part of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SummaryPart {
    /// A text.
    SummaryText {
        /// The text.
        text: String,
    },
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputPart {
    /// A text.
    OutputText {
        /// The text.
        text: String,
        /// Always empty.
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
        /// The log-probabilities, if the request asked for them.
        logprobs: Vec<TokenLogprob>,
    },
}
