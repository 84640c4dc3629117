//! The requests of the Responses API, as far as this server reads them.
//!
//! The fields are those of <https://www.openresponses.org/specification> and of OpenAI's API.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::item::InputItem;
use crate::protocol::shared::{Refused, TextOr, Unless, Whole};

/// The fields of the Responses API that this server does not support.
pub const REFUSED: &[Refused] = &[
    Refused {
        field: "previous_response_id",
        unless: Unless::Empty,
        advice: "the server keeps no responses; send the whole conversation as `input`",
    },
    Refused {
        field: "conversation",
        unless: Unless::Empty,
        advice: "the server keeps no conversations; send the whole conversation as `input`",
    },
    Refused {
        field: "prompt",
        unless: Unless::Empty,
        advice: "the server has no prompt templates; send `instructions` and `input`",
    },
    Refused {
        field: "background",
        unless: Unless::Empty,
        advice: "the server keeps no responses; use `stream` for long ones",
    },
    Refused {
        field: "context_management",
        unless: Unless::Empty,
        advice: "the server reads conversations as they are",
    },
    Refused {
        field: "truncation",
        unless: Unless::OneOf(&["disabled"]),
        advice: "a conversation that is too long is an error; shorten `input`",
    },
];

/// A request for a response.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ResponsesRequest {
    /// The name of the model.
    pub model: Option<String>,
    /// The conversation: a text of the user, or items. If the last item is a message of the
    /// assistant, the response continues it.
    #[schema(schema_with = TextOr::<InputItem>::schema)]
    pub input: Option<TextOr<InputItem>>,
    /// The instructions, before those in `input`.
    pub instructions: Option<String>,
    /// The tools. Tools that run on OpenAI's servers and that agents offer in every request, such
    /// as `web_search`, are left out.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<ToolFields>>,
    /// The calls that the model may make: `auto`, `none`, `required`, or an object that names a
    /// function or some allowed functions.
    pub tool_choice: Option<Value>,
    /// Whether a response may have more than one call.
    pub parallel_tool_calls: Option<bool>,
    /// The format of the text.
    pub text: Option<TextFields>,
    /// The reasoning of the model.
    pub reasoning: Option<ReasoningParam>,
    /// The maximum number of tokens of text and reasoning.
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub max_output_tokens: Option<Whole>,
    /// The maximum number of calls of OpenAI's own tools. There are none here.
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub max_tool_calls: Option<Whole>,
    /// The temperature: 0 for the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    pub temperature: Option<f64>,
    /// The share of the probability from which tokens are chosen.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// The penalty of tokens that occur in the text so far.
    #[schema(minimum = -100, maximum = 100)]
    pub presence_penalty: Option<f64>,
    /// The penalty of tokens by the number of times that they occur in the text so far.
    #[schema(minimum = -100, maximum = 100)]
    pub frequency_penalty: Option<f64>,
    /// The number of tokens from which one is chosen. It is an extension.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub top_k: Option<Whole>,
    /// The minimum probability of a token, relative to the most likely one. It is an extension.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f64>,
    /// The random seed. It is an extension.
    #[schema(value_type = Option<i64>)]
    pub seed: Option<Whole>,
    /// The number of most likely tokens whose log-probabilities are returned, up to 20.
    #[schema(value_type = Option<u32>, maximum = 20)]
    pub top_logprobs: Option<Whole>,
    /// Further data in the response. `message.output_text.logprobs` adds log-probabilities.
    pub include: Option<Vec<String>>,
    /// Whether events are sent while the response is generated.
    pub stream: Option<bool>,
    /// Whether OpenAI's servers keep the response. This server keeps none, and says so in the
    /// response.
    pub store: Option<bool>,
    /// Texts that the response repeats.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// A text that the response repeats.
    pub user: Option<String>,
    /// A text that the response repeats.
    pub safety_identifier: Option<String>,
    /// A text that the response repeats. The server finds cached prefixes without it.
    pub prompt_cache_key: Option<String>,
    /// Further variables of the chat template. It is an extension.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

/// A tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(expecting = "an object")]
pub struct ToolFields {
    /// `function`, or a tool of OpenAI's servers.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the function.
    pub name: Option<String>,
    /// The description of the function.
    pub description: Option<String>,
    /// The JSON schema of the parameters.
    pub parameters: Option<Value>,
    /// Whether arguments that the schema does not allow are impossible.
    pub strict: Option<bool>,
}

/// The form of the text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct TextFields {
    /// The format.
    pub format: Option<TextFormatParam>,
    /// The length of the text. Only `medium` is supported, which asks for nothing.
    pub verbosity: Option<String>,
}

/// The format of the text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct TextFormatParam {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the schema.
    pub name: Option<String>,
    /// The description of the schema.
    pub description: Option<String>,
    /// The JSON schema of the text.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// Whether the text must match the schema. It always does.
    pub strict: Option<bool>,
}

/// The reasoning of the model.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ReasoningParam {
    /// The effort, such as `low`. `none` switches reasoning off.
    pub effort: Option<String>,
    /// The length of the summary. The server returns the whole text as the summary.
    pub summary: Option<String>,
}
