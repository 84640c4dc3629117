//! Permission for web pages of other origins (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>).

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::origin::{Page, page};
use super::state::AppState;

/// Answers preflight requests, and adds the headers by which a browser lets an allowed page read
/// the response.
pub(super) async fn cors(state: AppState, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let page = page(&state.limits.origins, headers, request.uri());
    let preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let Page::Allowed(origin) = page else {
        return next.run(request).await;
    };

    let mut response = if preflight {
        answer_preflight(headers)
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("origin"));
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("x-request-id, retry-after"),
    );
    response
}

fn answer_preflight(request: &HeaderMap) -> Response {
    let mut response = ().into_response();
    let headers = response.headers_mut();
    let method = request.get(ACCESS_CONTROL_REQUEST_METHOD);
    let other = method.filter(|method| *method != "GET" && *method != "POST");
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST"),
    );
    if let Some(other) = other {
        headers.append(ACCESS_CONTROL_ALLOW_METHODS, other.clone());
    }

    // `*` would not allow `Authorization` (Fetch Standard, "CORS-preflight fetch").
    if let Some(names) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}
