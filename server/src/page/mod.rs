//! The pages of the server: the chat page at `/` and the state of the server at `/status`.
//!
//! A page is one HTML text with its script and style. It loads nothing else, and its content
//! security policy forbids it to. The chat page shows a model's Markdown with marked and makes it
//! safe with DOMPurify. Both are in `vendor/` with their licenses.

use std::sync::LazyLock;

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::models::ServedModel;

/// The chat page.
static CHAT: LazyLock<Page> = LazyLock::new(|| {
    Page::new(
        include_str!("chat.html"),
        &[
            ("chat.css", include_str!("chat.css")),
            ("marked", include_str!("vendor/marked-18.2.1.umd.js")),
            ("purify", include_str!("vendor/purify-3.4.18.min.js")),
            ("chat.js", include_str!("chat.js")),
        ],
    )
});

/// The status page.
static STATUS: LazyLock<Page> = LazyLock::new(|| {
    Page::new(
        include_str!("status.html"),
        &[
            ("status.css", include_str!("status.css")),
            ("status.js", include_str!("status.js")),
        ],
    )
});

/// A page with its parts in their places.
struct Page {
    html: String,
    /// The content security policy: only the page's own scripts and styles, by their hashes, and
    /// requests to this server.
    ///
    /// A model's text is made safe before it is shown. Should that fail, the policy still keeps it
    /// from running a script, and from loading or sending anything elsewhere.
    policy: HeaderValue,
}

impl Page {
    fn new(html: &str, parts: &[(&str, &str)]) -> Page {
        let mut html = html.to_owned();
        let mut scripts = String::new();
        let mut styles = String::new();
        for (name, text) in parts {
            // Only the first place counts, because a part could contain the text of a place.
            html = html.replacen(&format!("/*{{{{{name}}}}}*/"), text, 1);
            let hash = format!(" 'sha256-{}'", base64::encode(Sha256::digest(text)));
            if name.ends_with(".css") {
                styles += &hash;
            } else {
                scripts += &hash;
            }
        }

        let policy = format!(
            "default-src 'none'; script-src{scripts}; style-src{styles}; img-src data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Page {
            html,
            policy: HeaderValue::from_str(&policy).expect("the policy is ASCII"),
        }
    }

    fn answer(&'static self) -> Response {
        let headers = [
            (
                CONTENT_TYPE,
                HeaderValue::from_static("text/html; charset=utf-8"),
            ),
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ];
        (headers, self.html.as_str()).into_response()
    }
}

/// Returns the chat page.
pub fn chat() -> Response {
    CHAT.answer()
}

/// Returns the status page, which reads `/status.json`.
pub fn status() -> Response {
    STATUS.answer()
}

/// Returns the state of a model for the status page.
pub fn status_of(model: &ServedModel) -> serde_json::Value {
    let limits = model.scheduler.limits();
    let status = model.scheduler.status();
    let sequences = status.sequences.iter().map(|sequence| {
        json!({
            "request_id": sequence.request_id,
            "prompt": sequence.prompt,
            "processed": sequence.processed,
            "generated": sequence.generated,
        })
    });
    json!({
        "name": model.name,
        "slots": limits.sequences,
        "page_len": limits.page_len,
        "sequences": sequences.collect::<Vec<_>>(),
        "waiting": status.waiting,
        "pages": {
            "used": status.pages.used,
            "kept": status.pages.kept,
            "free": status.pages.free,
        },
        "prompt_tokens": status.prompt_tokens,
        "cached_tokens": status.cached_tokens,
        "generated_tokens": status.generated_tokens,
        "ended": status.ended,
        "evicted": status.evicted,
        "lost": status.lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_all_their_parts() {
        for page in [&CHAT.html, &STATUS.html] {
            assert!(!page.contains("/*{{"), "a place is empty");
            assert_eq!(
                page.matches("<script>").count(),
                page.matches("</script>").count(),
                "a part ends its script early"
            );
            assert!(page.ends_with("</html>\n"));
        }
        assert!(
            CHAT.html.contains("MarkedJS") && CHAT.html.contains("Cure53"),
            "the licenses are named"
        );
    }
}
