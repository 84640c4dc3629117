//! The id of a request.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

/// The header with the id of a request, in requests and responses.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of an id that a client chooses.
const MAX_ID_LEN: usize = 128;

/// Facts about a request that handlers need, in addition to its body. It is an extractor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The id of the request, for logs.
    pub id: String,
    /// Cached prefixes are shared only among requests with the same salt. It is 0 if the server has
    /// no API keys.
    pub salt: u64,
}

impl<S: Sync> FromRequestParts<S> for RequestInfo {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<RequestInfo, Infallible> {
        // Only a test that calls a handler without the middleware has no such extension.
        let known = parts.extensions.get::<RequestInfo>().cloned();
        Ok(known.unwrap_or_else(|| RequestInfo {
            id: new_id(),
            salt: 0,
        }))
    }
}

/// Adds the [`RequestInfo`] to a request, and its id to the response.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let id = chosen_id(request.headers()).unwrap_or_else(new_id);
    let header = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestInfo { id, salt: 0 });
    let mut response = next.run(request).await;
    if let Ok(header) = header {
        response.headers_mut().insert(REQUEST_ID, header);
    }
    response
}

/// Returns the id that the client has chosen, if it is harmless in a header and in a line of a log.
fn chosen_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let accepted = (1..=MAX_ID_LEN).contains(&id.len()) && id.bytes().all(harmless);
    accepted.then(|| id.to_owned())
}

/// Returns an id that is unique and cannot be guessed.
fn new_id() -> String {
    // Each `RandomState` has its own random keys.
    let high = RandomState::new().hash_one(0_u8);
    let low = RandomState::new().hash_one(1_u8);
    format!("req_{high:016x}{low:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(id: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
        chosen_id(&headers)
    }

    #[test]
    fn a_harmless_id_is_kept() {
        for id in ["a", "req_011", "6f1c-99.x:2", &"x".repeat(MAX_ID_LEN)] {
            assert_eq!(chosen(id).as_deref(), Some(id));
        }
    }

    #[test]
    fn an_id_that_could_forge_a_log_line_is_replaced() {
        for id in ["", "a b", "a\"b", "a{b", "ä", &"x".repeat(MAX_ID_LEN + 1)] {
            assert_eq!(chosen(id), None, "{id:?}");
        }
        assert_eq!(chosen_id(&HeaderMap::new()), None);
    }

    #[test]
    fn ids_are_unique() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| chosen(id).is_some()));
    }
}
