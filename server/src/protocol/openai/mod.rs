//! The protocol of OpenAI: chat completions, completions, embeddings and models.

mod chat;
mod chat_call;
mod chat_prompt;
mod chat_request;
mod chat_response;
mod chat_stream;
mod error;
mod logprobs;
mod model_list;
mod usage;

pub use chat_call::{ChatCall, Delivery, ResponseForm, chat_call};
pub use chat_prompt::chat_prompt;
pub use chat_request::{
    CallRequest, CalledFunction, ChatBody, ChatRequest, MessageRequest, ReasoningRequest,
    StreamOptions, ThinkingRequest,
};
pub use chat_response::{
    CallFunction, CallMessage, ChatChoice, ChatCollector, ChatCompletion, LogprobsWanted,
    ReplyMessage, ResponseHead,
};
pub use chat_stream::{
    CallDelta, ChatChunk, ChatStream, ChunkChoice, ChunkDelta, FunctionDelta, PromptProgress,
    StreamState,
};
pub use error::{ErrorBody, ErrorFields, error_body, error_response};
pub use logprobs::{ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob};
pub use model_list::{ModelEntry, ModelList, ModelMeta};
pub use usage::{CompletionTokens, PromptTokens, Timings, Usage};

use axum::Router;
use axum::routing::{get, post};
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(paths(chat::chat_completions, model_list::models, model_list::model))]
struct Docs;

/// Returns the endpoints, the shape of their errors and their documentation.
pub fn surface() -> ProtocolSurface {
    ProtocolSurface {
        routes: routes(),
        error: error_response,
        docs: Docs::openapi(),
    }
}

/// Returns the endpoints. Each has a path with `/v1` and one without, for clients whose base
/// address ends before or after it.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/chat/completions", post(chat::chat_completions))
        .route("/v1/models", get(model_list::models))
        .route("/models", get(model_list::models))
        .route("/v1/models/{*model}", get(model_list::model))
        .route("/models/{*model}", get(model_list::model))
}
