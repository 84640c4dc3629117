//! The part of a protocol that the HTTP layer sees.

use axum::Router;
use axum::response::Response;
use utoipa::openapi::OpenApi;

use super::state::AppState;
use crate::error::RequestError;

/// Writes an error in the shape of a protocol.
pub type WriteError = fn(&RequestError) -> Response;

/// The endpoints of a protocol, and the form of its errors.
pub struct ProtocolSurface {
    /// The endpoints.
    pub routes: Router<AppState>,
    /// Writes an error in the protocol's shape. The HTTP layer calls it for errors that it finds
    /// before a handler runs, for example a wrong key.
    pub error: WriteError,
    /// The documentation of the endpoints. The paths in it are also the ones that an error for an
    /// unknown path suggests.
    pub docs: OpenApi,
}
