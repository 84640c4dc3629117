//! The endpoints of llama.cpp's server that are not part of another protocol.
//!
//! The names and fields are those of `tools/server/README.md` in
//! <https://github.com/ggml-org/llama.cpp>.

mod adapters;
mod completion;
mod embedding;
mod error;
mod health;
mod metrics;
mod page;
mod prompt;
mod props;
mod query;
mod refused;
mod settings;
mod template;
mod tokens;

pub use error::error_response;

use axum::Router;
use axum::routing::{get, post};
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(
    paths(
        completion::completion,
        embedding::embedding,
        health::health,
        metrics::metrics,
        page::status_json,
        props::props,
        props::slots,
        adapters::adapters,
        refused::infill,
        refused::rerank,
        refused::set_adapters,
        refused::set_props,
        refused::slot_action,
        template::apply_template,
        tokens::detokenize,
        tokens::tokenize,
    ),
    components(schemas(
        completion::CompletionBody,
        embedding::EmbeddingRequest,
        tokens::DetokenizeRequest,
        tokens::TokenizeRequest,
    ))
)]
struct Docs;

/// Returns the endpoints, the shape of their errors and their documentation.
pub fn surface() -> ProtocolSurface {
    ProtocolSurface {
        routes: routes(),
        error: error_response,
        docs: Docs::openapi(),
    }
}

/// Returns the endpoints.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(page::chat))
        .route("/status", get(page::status))
        .route("/status.json", get(page::status_json))
        .route("/health", get(health::health))
        .route("/v1/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .route("/props", get(props::props).post(refused::set_props))
        .route("/slots", get(props::slots))
        .route("/slots/{id}", post(refused::slot_action))
        .route("/completion", post(completion::completion))
        .route("/completions", post(completion::completion))
        .route("/apply-template", post(template::apply_template))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/embedding", post(embedding::embedding))
        .route("/embeddings", post(embedding::embedding))
        .route("/infill", post(refused::infill))
        .route("/rerank", post(refused::rerank))
        .route("/reranking", post(refused::rerank))
        .route("/v1/rerank", post(refused::rerank))
        .route("/v1/reranking", post(refused::rerank))
        .route(
            "/lora-adapters",
            get(adapters::adapters).post(refused::set_adapters),
        )
}
