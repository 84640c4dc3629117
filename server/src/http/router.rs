//! The application: the endpoints of all protocols behind the checks of this layer.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};

use super::guard::guard;
use super::identity::identify;
use super::state::AppState;
use super::surface::ProtocolSurface;
use crate::error::{ErrorKind, RequestError};

/// Returns the application with the endpoints of these protocols.
pub fn router(state: &AppState, protocols: Vec<ProtocolSurface>) -> Router {
    let mut application = Router::new();
    for protocol in protocols {
        application = application.merge(guarded(state, protocol));
    }
    application
        .with_state(state.clone())
        .layer(from_fn(identify))
}

/// Returns the endpoints of a protocol behind the checks, whose errors have the protocol's shape.
fn guarded(state: &AppState, protocol: ProtocolSurface) -> Router<AppState> {
    let write_error = protocol.error;
    let state = state.clone();
    let layer = from_fn(move |request: Request, next: Next| {
        guard(state.clone(), write_error, request, next)
    });
    let wrong_method = move |request: Request| {
        let message = format!(
            "{} is not a method of {}",
            request.method(),
            request.uri().path()
        );
        std::future::ready(write_error(&RequestError::new(ErrorKind::Method, message)))
    };
    protocol
        .routes
        .route_layer(layer)
        .method_not_allowed_fallback(wrong_method)
}
