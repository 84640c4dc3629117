//! The protocol of OpenAI: chat completions, completions, embeddings and models.

mod adapters;
mod chat;
mod completion;
mod embeddings;
mod error;
mod form;
mod head;
mod logprobs;
mod model_list;
mod usage;

pub use adapters::{LoadAdapterRequest, UnloadAdapterRequest};
pub use chat::{
    CallDelta, CallFunction, CallMessage, CallRequest, CalledFunction, ChatBody, ChatCall,
    ChatChoice, ChatChunk, ChatCollector, ChatCompletion, ChatRequest, ChatStream, ChunkChoice,
    ChunkDelta, FunctionDelta, LogprobsWanted, MessageRequest, PromptProgress, ReasoningRequest,
    ReplyMessage, StreamOptions, ThinkingRequest, chat_call, chat_prompt,
};
pub use completion::{
    Completion, CompletionBody, CompletionCall, CompletionChoice, CompletionCollector,
    CompletionStream, CompletionTexts, Echo, TextCompletionRequest, completion_call,
};
pub use embeddings::{
    EmbeddingEntry, EmbeddingList, EmbeddingUsage, EmbeddingVector, EmbeddingsRequest,
};
pub use error::{ErrorBody, ErrorFields, error_body, error_response};
pub use form::{Delivery, ResponseForm};
pub use head::ResponseHead;
pub use logprobs::{ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob, chat_logprobs};
pub use model_list::{ModelList, ModelMeta, ModelObject, ModelStatus};
pub use usage::{CompletionTokens, PromptTokens, Timings, Usage};

use axum::Router;
use axum::routing::{get, post};
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(paths(
    adapters::load,
    adapters::unload,
    chat::endpoint::chat_completions,
    chat::endpoint::input_tokens,
    completion::endpoint::completions,
    embeddings::embeddings,
    model_list::models,
    model_list::model
))]
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
        .route(
            "/v1/chat/completions",
            post(chat::endpoint::chat_completions),
        )
        .route("/chat/completions", post(chat::endpoint::chat_completions))
        .route(
            "/v1/chat/completions/input_tokens",
            post(chat::endpoint::input_tokens),
        )
        .route(
            "/chat/completions/input_tokens",
            post(chat::endpoint::input_tokens),
        )
        .route("/v1/completions", post(completion::endpoint::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
        .route("/v1/models", get(model_list::models))
        .route("/models", get(model_list::models))
        .route("/v1/models/{*model}", get(model_list::model))
        .route("/models/{*model}", get(model_list::model))
}
