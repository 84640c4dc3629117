//! The endpoints of llama.cpp's server that are not part of another protocol.
//!
//! The names and fields are those of `tools/server/README.md` in
//! <https://github.com/ggml-org/llama.cpp>.

mod error;
mod health;

pub use error::error_response;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;

use crate::http::state::AppState;
use crate::http::surface::ProtocolSurface;

#[derive(OpenApi)]
#[openapi(paths(health::health))]
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
        .route("/health", get(health::health))
        .route("/v1/health", get(health::health))
}
