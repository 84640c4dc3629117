//! The Messages API of Anthropic, for Claude Code and the SDKs.
//!
//! - `request` and `block` read JSON, and `translate` makes a request for a reply from it.
//! - `stream` writes the parts of a reply as events and collects the message, `object`.
//! - `handlers` connects both with the model.
//!
//! Content other than text, tools of Anthropic's servers and edits of the context are refused by
//! name. `cache_control`, `metadata`, `service_tier` and `anthropic-beta` headers have no effect.

pub mod block;
pub mod error;
mod handlers;
pub mod object;
pub mod request;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod translate;

pub use error::error_response;

use axum::Router;
use axum::routing::post;
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(paths(handlers::messages, handlers::count_tokens))]
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
        .route("/v1/messages", post(handlers::messages))
        .route("/messages", post(handlers::messages))
        .route("/v1/messages/count_tokens", post(handlers::count_tokens))
        .route("/messages/count_tokens", post(handlers::count_tokens))
}
