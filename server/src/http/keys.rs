//! The API keys of a server.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::error::{ErrorKind, RequestError};

/// The header in which clients of Anthropic send their key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The API keys that a server accepts. Without keys, it accepts every request.
///
/// Only digests of the keys are kept. They have one length, so a comparison takes the same time for
/// every wrong key.
#[derive(Clone, Default)]
pub struct ApiKeys {
    digests: Vec<[u8; 32]>,
}

impl ApiKeys {
    /// Returns the set of the given keys.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> ApiKeys {
        let digests = keys
            .into_iter()
            .map(|key| digest(key.as_ref().as_bytes()))
            .collect();
        ApiKeys { digests }
    }

    /// Returns the keys in the text of a file: one per line, without empty lines and lines that
    /// begin with `#`.
    pub fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// Returns true if the server accepts requests without a key.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Returns the salt of the request's key, or 0 if the server has no keys.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unauthorized`] if the key is missing or wrong.
    pub fn salt(&self, headers: &HeaderMap) -> Result<u64, RequestError> {
        if self.is_empty() {
            return Ok(0);
        }
        let Some(key) = presented(headers) else {
            return Err(RequestError::new(
                ErrorKind::Unauthorized,
                "the API key is missing: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
            ));
        };

        // Every key is compared, so that the time does not depend on which one matches.
        let presented = digest(key);
        let mut known = Choice::from(0);
        let mut salt = 0;
        for digest in &self.digests {
            let same = digest.ct_eq(&presented);
            salt = u64::conditional_select(&salt, &salt_of(digest), same);
            known |= same;
        }
        if !bool::from(known) {
            return Err(RequestError::new(
                ErrorKind::Unauthorized,
                "the API key is wrong",
            ));
        }
        Ok(salt)
    }
}

/// Returns true if the request has a key, right or wrong.
pub(super) fn has_key(headers: &HeaderMap) -> bool {
    presented(headers).is_some()
}

/// Returns the key of a request.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked("Bearer ".len())?;
        return scheme
            .eq_ignore_ascii_case(b"Bearer ")
            .then(|| key.trim_ascii());
    }
    headers
        .get(X_API_KEY)
        .map(|value| value.as_bytes().trim_ascii())
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Returns the salt of a key. It is derived from the key, so that cached prefixes on disk keep their
/// owner over a restart, and it does not reveal the key.
fn salt_of(digest: &[u8; 32]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"warpwright prefix cache");
    hash.update(digest);
    let bytes: [u8; 32] = hash.finalize().into();
    let salt = bytes[..8]
        .iter()
        .fold(0_u64, |salt, byte| salt << 8 | u64::from(*byte));

    // 0 is the salt of servers without keys.
    salt.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn refusal(keys: &ApiKeys, headers: &HeaderMap) -> String {
        let error = keys.salt(headers).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        error.message
    }

    #[test]
    fn a_key_is_accepted_in_both_headers() {
        let keys = ApiKeys::new(["one", "two"]);
        let salt = keys.salt(&headers(AUTHORIZATION, "Bearer two")).unwrap();
        assert_eq!(keys.salt(&headers(AUTHORIZATION, "bearer  two")), Ok(salt));
        assert_eq!(keys.salt(&headers(X_API_KEY, "two")), Ok(salt));
        assert_ne!(keys.salt(&headers(X_API_KEY, "one")), Ok(salt));
        assert_ne!(salt, 0);
    }

    #[test]
    fn wrong_keys_are_refused() {
        let keys = ApiKeys::new(["one", "two"]);
        for value in ["Bearer on", "Bearer one1", "Bearer ", "Bearer two one"] {
            let message = refusal(&keys, &headers(AUTHORIZATION, value));
            assert_eq!(message, "the API key is wrong", "{value}");
        }
        for value in ["one", "Basic one", "Bearer", ""] {
            let message = refusal(&keys, &headers(AUTHORIZATION, value));
            assert!(message.contains("is missing"), "{value}: {message}");
        }
        assert!(refusal(&keys, &HeaderMap::new()).contains("is missing"));
    }

    #[test]
    fn without_keys_every_request_is_accepted() {
        let keys = ApiKeys::default();
        assert_eq!(keys.salt(&HeaderMap::new()), Ok(0));
        assert_eq!(keys.salt(&headers(X_API_KEY, "any")), Ok(0));
    }

    #[test]
    fn a_file_of_keys_has_comments() {
        let lines: Vec<&str> = ApiKeys::lines("# users\n\n one \r\ntwo\n").collect();
        assert_eq!(lines, ["one", "two"]);
    }
}
