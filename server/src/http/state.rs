//! The state that all handlers share.

use std::sync::Arc;
use std::time::Duration;

use super::keys::ApiKeys;
use super::origin::{AllowedHosts, AllowedOrigins};
use crate::models::Models;

/// The state that all handlers share. Clones share it.
#[derive(Clone)]
pub struct AppState {
    /// The models of the server.
    pub models: Arc<Models>,
    /// The limits of requests.
    pub limits: Arc<HttpLimits>,
}

/// The keys that a server accepts, and the limits of requests.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpLimits {
    /// The API keys.
    pub keys: ApiKeys,
    /// The maximum length of a body in bytes.
    pub body: usize,
    /// The time in which the headers of a request, and then its body, must arrive.
    pub arrival: Duration,
    /// The host names that the server answers to.
    pub hosts: AllowedHosts,
    /// The origins of web pages that may call the server.
    pub origins: AllowedOrigins,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            keys: ApiKeys::default(),
            // A conversation of an agent with 131,072 tokens is less than 1 MB.
            body: 32 << 20,
            arrival: Duration::from_secs(60),
            hosts: AllowedHosts::Listed(vec![]),
            origins: AllowedOrigins::Local,
        }
    }
}
