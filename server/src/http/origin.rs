//! Protection against web pages of other sites, and permission for the ones that may call the
//! server (CORS).
//!
//! A browser lets every page send requests to `http://127.0.0.1:8080`. Two attacks follow:
//! - A page of another site posts requests. The browser then sends the header `Origin`, which a page
//!   cannot change. Without API keys, only pages from this machine and desktop applications are
//!   accepted. With keys, every origin is, because a foreign page does not know a key.
//! - The name of another site is made to resolve to 127.0.0.1 (DNS rebinding), so that its pages
//!   have the server's own origin. The header `Host` then has that name. Without API keys, a server
//!   on a loopback address accepts only IP addresses, `localhost`, and the names that it was told.
//!
//! Responses never allow credentials, because the server uses no cookies, and a proxy in front of it
//! might.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};

use crate::error::{ErrorKind, RequestError};

/// The origins of web pages that may call the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Pages from this machine, and applications whose pages do not come over HTTP.
    Local,
    /// Pages from this machine, and from these origins, such as `https://example.org`.
    Listed(Vec<String>),
    /// All pages.
    Any,
}

/// The names in the header `Host` that the server answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHosts {
    /// IP addresses, `localhost`, and these names.
    Listed(Vec<String>),
    /// All names.
    Any,
}

impl AllowedOrigins {
    fn allow(&self, origin: &str) -> bool {
        match self {
            AllowedOrigins::Any => true,
            AllowedOrigins::Local => is_local(origin),
            AllowedOrigins::Listed(origins) => {
                is_local(origin)
                    || origins
                        .iter()
                        .any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
            }
        }
    }
}

impl AllowedHosts {
    fn allow(&self, authority: &str) -> bool {
        match self {
            AllowedHosts::Any => true,
            AllowedHosts::Listed(names) => {
                let host = host_of(authority);
                address(host).is_some()
                    || is_localhost(host)
                    || names.iter().any(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// Checks that a request comes from a page that may call the server, or from no page.
///
/// # Errors
/// Returns [`ErrorKind::Forbidden`] otherwise.
pub(super) fn check(
    hosts: &AllowedHosts,
    origins: &AllowedOrigins,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<(), RequestError> {
    if let Some(host) = authority(headers, uri)
        && !hosts.allow(host)
    {
        return Err(RequestError::new(
            ErrorKind::Forbidden,
            format!(
                "the host name {:?} is not one of this server: use its IP address or localhost, \
                 or allow the name with --allow-host",
                host_of(host)
            ),
        ));
    }

    match page(origins, headers, uri) {
        Page::None | Page::Own | Page::Allowed(_) => Ok(()),
        Page::Refused(origin) => Err(RequestError::new(
            ErrorKind::Forbidden,
            format!(
                "pages of {origin} may not call this server: allow them with --cors-origin, or use \
                 an API key"
            ),
        )),
    }
}

/// The page that sent a request.
pub(super) enum Page {
    /// No page of another origin: the client is not a browser, or it opened the address itself.
    None,
    /// A page of this server.
    Own,
    /// A page that may call the server, with its origin.
    Allowed(HeaderValue),
    /// A page that may not, with its origin.
    Refused(String),
}

/// Returns the page that sent a request.
pub(super) fn page(origins: &AllowedOrigins, headers: &HeaderMap, uri: &Uri) -> Page {
    let Some(value) = headers.get(ORIGIN) else {
        return Page::None;
    };
    let Ok(origin) = value.to_str() else {
        return Page::Refused("an origin that is not ASCII".to_owned());
    };
    let own = authority(headers, uri);
    if own.is_some() && own == authority_of(origin) {
        return Page::Own;
    }
    if origins.allow(origin) {
        Page::Allowed(value.clone())
    } else {
        Page::Refused(origin.to_owned())
    }
}

/// Returns the host and port to which a request was sent.
fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    // A request to a proxy has them in its first line.
    let of_uri = uri.authority().map(|authority| authority.as_str());
    of_uri.or_else(|| headers.get(HOST).map(|host| host.to_str().unwrap_or("?")))
}

/// Returns true if an origin is a page of this machine, or of an application, for example
/// `vscode-webview://...`. A web site cannot have such a scheme.
fn is_local(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        // A page in a file and a page in a sandboxed frame of any site both have the origin `null`.
        return false;
    };
    match scheme {
        "http" | "https" => {
            let host = host_of(authority);
            is_localhost(host) || address(host).is_some_and(|address| address.is_loopback())
        }
        _ => true,
    }
}

fn authority_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, authority)| authority)
}

/// Returns the host of an authority, without its port.
fn host_of(authority: &str) -> &str {
    // An IPv6 address is in brackets and contains colons.
    let host = match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    };
    host.trim_end_matches('.')
}

fn is_localhost(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    // Browsers resolve the names below `localhost` themselves (RFC 6761).
    host == "localhost" || host.ends_with(".localhost")
}

fn address(host: &str) -> Option<IpAddr> {
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(host) => host.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => host.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_origins_are_those_of_this_machine() {
        for origin in [
            "http://localhost",
            "http://localhost:3000",
            "https://LOCALHOST:3000",
            "http://app.localhost:1",
            "http://127.0.0.1:5173",
            "http://[::1]:5173",
            "vscode-webview://1a2b",
            "tauri://localhost",
        ] {
            assert!(AllowedOrigins::Local.allow(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://example.org",
            "https://localhost.example.org",
            "http://127.0.0.1.example.org",
            "http://192.168.1.2:8080",
            "http://localhostx",
        ] {
            assert!(!AllowedOrigins::Local.allow(origin), "{origin}");
        }
    }

    #[test]
    fn listed_origins_are_allowed_as_well() {
        let listed = AllowedOrigins::Listed(vec!["https://example.org/".to_owned()]);
        assert!(listed.allow("https://example.org"));
        assert!(listed.allow("http://localhost:3000"));
        assert!(!listed.allow("http://example.org"));
        assert!(!listed.allow("https://example.org:8443"));
    }

    #[test]
    fn a_rebound_name_is_not_a_host() {
        let hosts = AllowedHosts::Listed(vec!["box".to_owned()]);
        for host in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost",
            "localhost.:80",
            "BOX:8080",
            "10.0.0.1",
        ] {
            assert!(hosts.allow(host), "{host}");
        }
        for host in [
            "example.org:8080",
            "127.0.0.1.example.org",
            "",
            "?",
            "[::1",
            "localhost.example.org",
            "box.example.org",
        ] {
            assert!(!hosts.allow(host), "{host}");
        }
        assert!(AllowedHosts::Any.allow("example.org"));
    }
}
