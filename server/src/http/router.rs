//! The application: the endpoints of all protocols behind the checks of this layer.

use std::any::Any;
use std::future::ready;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

use super::cors::cors;
use super::guard::guard;
use super::identity::identify;
use super::log::logged;
use super::metrics;
use super::state::AppState;
use super::surface::{ProtocolSurface, WriteError};
use crate::error::{ErrorKind, RequestError};

/// Returns the application with the endpoints of these protocols. Errors of unknown paths have the
/// shape of the protocol with the most similar path, or of the first protocol.
pub fn router(state: &AppState, protocols: Vec<ProtocolSurface>) -> Router {
    metrics::install();
    let known = KnownPaths::new(&protocols);
    let docs = docs(&protocols);
    let mut application = Router::new().route("/openapi.json", get(move || ready(Json(docs))));
    for protocol in protocols {
        application = application.merge(guarded(state, protocol));
    }
    let shared = state.clone();
    application
        .fallback(move |request: Request| ready(known.error(request.uri().path())))
        .with_state(state.clone())
        .layer(from_fn(move |request: Request, next: Next| {
            cors(shared.clone(), request, next)
        }))
        .layer(from_fn(logged))
        .layer(from_fn(identify))
}

/// Returns the endpoints of a protocol behind the checks, whose errors have the protocol's shape.
fn guarded(state: &AppState, protocol: ProtocolSurface) -> Router<AppState> {
    let write_error = protocol.error;
    let state = state.clone();
    let checks = from_fn(move |request: Request, next: Next| {
        guard(state.clone(), write_error, request, next)
    });
    let wrong_method = move |request: Request| {
        let message = format!(
            "{} does not accept the method {}: the header Allow lists its methods",
            request.uri().path(),
            request.method(),
        );
        ready(write_error(&RequestError::new(ErrorKind::Method, message)))
    };
    let panicked = move |panic: Box<dyn Any + Send>| write_error(&panic_error(&*panic));
    protocol
        .routes
        // The checks have read the body within the server's own limit. The extractors of axum would
        // refuse a body above 2 MB, in text that no client of a protocol can read.
        .route_layer(DefaultBodyLimit::disable())
        .route_layer(CatchPanicLayer::custom(panicked))
        .route_layer(checks)
        .method_not_allowed_fallback(wrong_method)
}

/// Logs a panic of a handler and returns the error for the client, which does not contain the text
/// of the panic.
fn panic_error(panic: &(dyn Any + Send)) -> RequestError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a handler panicked");
    metrics::panic();
    RequestError::new(
        ErrorKind::Internal,
        "the server has a bug: the log has a line with the id of this request",
    )
}

/// Returns the description of all endpoints.
fn docs(protocols: &[ProtocolSurface]) -> OpenApi {
    let info = InfoBuilder::new()
        .title("Warpwright")
        .version(env!("CARGO_PKG_VERSION"));
    let mut docs = OpenApiBuilder::new().info(info).build();
    for protocol in protocols {
        docs.merge(protocol.docs.clone());
    }
    docs
}

/// The documented paths, each with the shape of its errors.
#[derive(Clone)]
struct KnownPaths {
    paths: Vec<(String, WriteError)>,
    default: Option<WriteError>,
}

impl KnownPaths {
    fn new(protocols: &[ProtocolSurface]) -> KnownPaths {
        let of_protocol = |protocol: &ProtocolSurface| {
            let paths = protocol.docs.paths.paths.keys();
            let write_error = protocol.error;
            paths
                .map(|path| (path.clone(), write_error))
                .collect::<Vec<_>>()
        };
        KnownPaths {
            paths: protocols.iter().flat_map(of_protocol).collect(),
            default: protocols.first().map(|protocol| protocol.error),
        }
    }

    /// Returns the response for a path that does not exist.
    fn error(&self, path: &str) -> Response {
        // A similarity of long texts takes long, and no path is that long.
        let similar = self
            .paths
            .iter()
            .filter(|_| path.len() < 200)
            .map(|(known, write_error)| (strsim::jaro_winkler(known, path), known, write_error))
            .max_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let (hint, write_error) = match similar {
            Some((similarity, known, write_error)) if similarity > 0.7 => {
                (format!(": did you mean {known}?"), Some(*write_error))
            }
            Some(_) | None => (": /openapi.json lists all paths".to_owned(), self.default),
        };
        let shown: String = path.chars().take(200).collect();
        let error = RequestError::new(ErrorKind::NotFound, format!("no path {shown:?}{hint}"));
        match write_error {
            Some(write_error) => write_error(&error),
            None => ([(CONTENT_TYPE, "text/plain")], error.message).into_response(),
        }
    }
}
