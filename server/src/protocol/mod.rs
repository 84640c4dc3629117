//! The protocols: JSON to [`ReplyRequest`](crate::reply::ReplyRequest)s, and
//! [`ReplyEvent`](crate::reply::ReplyEvent)s to JSON and server-sent events.
//!
//! Each protocol has a function `surface` that returns its endpoints, the shape of its errors and
//! the documentation of its paths.

pub mod anthropic;
pub mod native;
pub mod openai;
pub mod responses;
pub mod shared;

use crate::http::surface::ProtocolSurface;

/// Returns the surfaces of all protocols. Errors of paths that resemble none have the shape of the
/// first.
pub fn surfaces() -> Vec<ProtocolSurface> {
    vec![
        openai::surface(),
        responses::surface(),
        anthropic::surface(),
        native::surface(),
    ]
}
