//! The clients that a server accepts: its address, keys, host names and origins.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use warpwright_server::http::keys::ApiKeys;
use warpwright_server::http::origin::{AllowedHosts, AllowedOrigins};
use warpwright_server::http::serve::{ServeOptions, TlsFiles};
use warpwright_server::http::state::HttpLimits;

use super::args::ConnectionArgs;
use crate::failure::Failure;

/// The time after the end of the running requests in which their last events are sent.
const FLUSH: Duration = Duration::from_secs(5);

impl ConnectionArgs {
    /// Returns the address to listen on.
    ///
    /// # Errors
    /// Returns an error if the host name cannot be resolved.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let wrong = |problem: String| {
            Failure::Input(format!(
                "--host {}: not an address of this machine: {problem}",
                self.host
            ))
        };
        let found = (host, self.port).to_socket_addrs();
        let mut found = found.map_err(|error| wrong(error.to_string()))?;
        found.next().ok_or_else(|| wrong("it has none".to_owned()))
    }

    /// Returns the limits of requests to a server on this address.
    ///
    /// # Errors
    /// Returns an error if the file of keys cannot be read or has none.
    pub(super) fn limits(&self, address: SocketAddr) -> Result<HttpLimits, Failure> {
        let keys = self.keys()?;
        // A foreign page does not know a key, so a key protects as much as the checks do.
        let is_open = keys.is_empty();
        let mut limits = HttpLimits::default();
        limits.hosts = if is_open && address.ip().is_loopback() {
            let mut names = self.allow_host.clone();
            names.push(self.host.clone());
            AllowedHosts::Listed(names)
        } else {
            AllowedHosts::Any
        };
        limits.origins = if self.cors_origin.iter().any(|origin| origin == "*") {
            AllowedOrigins::Any
        } else if !self.cors_origin.is_empty() {
            AllowedOrigins::Listed(self.cors_origin.clone())
        } else if is_open {
            AllowedOrigins::Local
        } else {
            AllowedOrigins::Any
        };
        limits.keys = keys;
        limits.body = self.body_limit;
        limits.arrival = self.timeout;
        Ok(limits)
    }

    fn keys(&self) -> Result<ApiKeys, Failure> {
        let mut keys = self.api_key.clone();
        if let Some(file) = &self.api_key_file {
            let place = format!("the keys {}", file.display());
            let text = fs::read_to_string(file)
                .map_err(|error| Failure::Input(format!("cannot read {place}: {error}")))?;
            let before = keys.len();
            keys.extend(ApiKeys::lines(&text).map(str::to_owned));

            // A server that was meant to have keys must not be open.
            if keys.len() == before {
                return Err(Failure::Input(format!(
                    "{place}: there is none: expected one per line"
                )));
            }
        }
        if keys.iter().any(|key| key.trim().is_empty()) {
            return Err(Failure::Input("--api-key: the key is empty".to_owned()));
        }
        Ok(ApiKeys::new(keys))
    }

    /// Reads the certificate, and returns the options of the listener.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be used.
    pub(super) async fn options(&self) -> Result<ServeOptions, Failure> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => {
                let files = TlsFiles {
                    certificates: certificates.clone(),
                    key: key.clone(),
                };
                let read = files.read().await;
                let wrong = |error: io::Error| {
                    let certificates = certificates.display();
                    let key = key.display();
                    Failure::Input(format!(
                        "the certificate {certificates} with the key {key} cannot be used: {error}"
                    ))
                };
                Some(read.map_err(wrong)?)
            }
            (Some(_), None) | (None, Some(_)) | (None, None) => None,
        };
        Ok(ServeOptions {
            tls,
            headers: self.timeout,
            grace: self.grace + FLUSH,
        })
    }

    /// Returns the address for browsers and clients.
    pub(super) fn url(&self, bound: SocketAddr) -> String {
        let scheme = if self.tls_cert.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{bound}")
    }
}

/// Returns the error of a listener.
pub(super) fn bind_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::Runtime(format!(
            "port {port} is in use by another program: choose another one with --port, or 0 for a \
             free one"
        )),
        io::ErrorKind::PermissionDenied => Failure::Runtime(format!(
            "port {port} needs more rights: choose one above 1023 with --port"
        )),
        _ => Failure::Runtime(format!("cannot listen on {address}: {error}")),
    }
}
