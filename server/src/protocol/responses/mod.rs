//! The Responses API of OpenAI, for Codex and the SDKs.
//!
//! - `request` and `item` read JSON. `translate` and `tool` make a request for a reply from it.
//! - `stream` writes the parts of a reply as `event`s and collects the response, `object`.
//! - `handlers` connects both with the model.
//!
//! The server keeps no state: a request contains the whole conversation. Reasoning is returned as a
//! summary, because both OpenAI's API and Open Responses have the same events for it, and clients
//! send it back.

pub mod error;
pub mod event;
mod handlers;
pub mod item;
pub mod object;
pub mod request;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod tool;
pub mod translate;

pub use error::error_response;

use axum::Router;
use axum::routing::post;
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(paths(handlers::responses, handlers::input_tokens))]
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
        .route("/v1/responses", post(handlers::responses))
        .route("/responses", post(handlers::responses))
        .route("/v1/responses/input_tokens", post(handlers::input_tokens))
        .route("/responses/input_tokens", post(handlers::input_tokens))
}
