//! Endpoints of llama.cpp's server that do not exist here. They are refused by name, because their
//! absence would look like a wrong address.

use axum::response::Response;

use super::error::error_response;
use crate::error::{ErrorKind, RequestError};

fn refused(message: &str) -> Response {
    error_response(&RequestError::new(ErrorKind::NotSupported, message))
}

/// Refuses to fill in the middle of a text.
#[utoipa::path(post, path = "/infill", responses((status = 501, description = "Not supported")))]
pub(super) async fn infill() -> Response {
    refused("filling in the middle of a text is not supported: use /completion")
}

/// Refuses to rank documents.
#[utoipa::path(post, path = "/rerank", responses((status = 501, description = "Not supported")))]
pub(super) async fn rerank() -> Response {
    refused(
        "ranking is not supported: no model of a supported family ranks; compare vectors of \
         /v1/embeddings",
    )
}

/// Refuses to save, restore and erase the cache of a slot.
#[utoipa::path(
    post,
    path = "/slots/{id}",
    params(("id" = String, Path, description = "The slot")),
    responses((status = 501, description = "Not supported"))
)]
pub(super) async fn slot_action() -> Response {
    refused(
        "slots cannot be saved, restored or erased: all requests share the prefix cache, and \
         --cache-dir keeps it over a restart",
    )
}

/// Refuses to change properties.
#[utoipa::path(post, path = "/props", responses((status = 501, description = "Not supported")))]
pub(super) async fn set_props() -> Response {
    refused("properties are options of `warpwright serve`: restart it to change them")
}

/// Refuses to change the scales of adapters.
#[utoipa::path(
    post,
    path = "/lora-adapters",
    responses((status = 501, description = "Not supported"))
)]
pub(super) async fn set_adapters() -> Response {
    refused("the scales of adapters cannot be changed: name the adapter of a request in `model`")
}
