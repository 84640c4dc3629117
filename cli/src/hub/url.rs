//! Web addresses, with the operations that redirects need.

use std::fmt;

/// An `http` or `https` address without user names and fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    scheme: Scheme,
    /// The host in lower case, and the port unless it is the scheme's default.
    authority: String,
    /// The path, which begins with a slash.
    path: String,
    /// The query with its question mark, or an empty text. It may contain a signature, so messages
    /// do not show it.
    query: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn default_port(self) -> &'static str {
        match self {
            Scheme::Http => ":80",
            Scheme::Https => ":443",
        }
    }
}

impl Url {
    /// Parses an absolute address.
    ///
    /// # Errors
    /// Returns the problem as a text if the address is not valid or not supported.
    pub(super) fn parse(text: &str) -> Result<Url, &'static str> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("it does not begin with https:// or http://")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err("it does not begin with https:// or http://"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = authority(scheme, &rest[..end])?;
        let (path, query) = path_and_query(&rest[end..]);
        Ok(Url {
            scheme,
            authority,
            path,
            query,
        })
    }

    /// Returns the target of a redirect from this address.
    ///
    /// # Errors
    /// Returns the problem as a text if the redirect must not be followed.
    pub(super) fn join(&self, location: &str) -> Result<Url, &'static str> {
        // A colon before the first slash marks an absolute address, because it ends the scheme.
        if location
            .split(['/', '?', '#'])
            .next()
            .is_some_and(|first| first.contains(':'))
        {
            let next = Url::parse(location)?;
            if self.scheme == Scheme::Https && next.scheme == Scheme::Http {
                return Err(
                    "it leads from https to http, where the data could be changed on the way",
                );
            }
            return Ok(next);
        }

        if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{}://{rest}", self.scheme.name()));
        }

        let (path, query) = match location.as_bytes().first() {
            None => return Err("it is empty"),
            Some(b'/') => path_and_query(location),
            Some(b'?') => (self.path.clone(), path_and_query(location).1),
            Some(_) => {
                let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                path_and_query(&format!("{folder}/{location}"))
            }
        };
        Ok(Url {
            scheme: self.scheme,
            authority: self.authority.clone(),
            path,
            query,
        })
    }

    /// Returns the address with `more` appended to its path. All bytes except unreserved characters
    /// and slashes are percent-encoded.
    pub(super) fn with_path(&self, more: &str) -> Url {
        let mut url = self.clone();
        url.path.truncate(url.path.trim_end_matches('/').len());
        for byte in more.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    url.path.push(char::from(byte));
                }
                _ => url.path.push_str(&format!("%{byte:02X}")),
            }
        }

        url.query.clear();
        url
    }

    pub(super) fn with_query(mut self, query: &str) -> Url {
        self.query = format!("?{query}");
        self
    }

    /// Returns true if scheme, host and port are equal. A token may only be sent then.
    pub(super) fn has_origin_of(&self, other: &Url) -> bool {
        self.scheme == other.scheme && self.authority == other.authority
    }

    /// Returns the address with its query, for a request.
    pub(super) fn full(&self) -> String {
        format!("{self}{}", self.query)
    }
}

/// Formats the address without its query, for messages.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme.name(),
            self.authority,
            self.path.trim_end_matches('/')
        )
    }
}

fn authority(scheme: Scheme, text: &str) -> Result<String, &'static str> {
    if text.contains('@') {
        return Err("it contains a user name, which would be sent along");
    }

    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let authority = text.to_ascii_lowercase();
    let authority = authority
        .strip_suffix(scheme.default_port())
        .unwrap_or(&authority);
    if authority.is_empty() || authority.starts_with(':') || !authority.bytes().all(known) {
        return Err("it has no valid host");
    }

    Ok(authority.to_owned())
}

/// Splits the end of an address into path and query.
///
/// `.` and `..` are resolved, and bytes that a request must not contain are percent-encoded.
fn path_and_query(text: &str) -> (String, String) {
    let text = text.split('#').next().unwrap_or_default();
    let (path, query) = match text.find('?') {
        Some(at) => (&text[..at], encoded(&text[at..])),
        None => (text, String::new()),
    };
    let mut parts: Vec<&str> = vec![];
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }

    (encoded(&format!("/{}", parts.join("/"))), query)
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(&byte) => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn redirects_are_resolved() {
        let cases = [
            (
                "https://a/x/y?q",
                "https://b/z?s=1&t",
                Ok("https://b/z?s=1&t"),
            ),
            ("http://a/x", "https://A:443/z", Ok("https://a/z")),
            ("https://a/x/y?q", "/z", Ok("https://a/z")),
            ("https://a/x/y?q", "z", Ok("https://a/x/z")),
            ("https://a/x/y", "../z", Ok("https://a/z")),
            ("https://a/x/y", "../../../z", Ok("https://a/z")),
            (
                "https://a/x/y",
                "./z?u=http://c/",
                Ok("https://a/x/z?u=http://c/"),
            ),
            ("https://a/x/y", "?r", Ok("https://a/x/y?r")),
            ("https://a:8443/x", "/z#f", Ok("https://a:8443/z")),
            ("https://a/x", "//b/z", Ok("https://b/z")),
            ("https://a/x", "/ä b", Ok("https://a/%C3%A4%20b")),
            (
                "https://a/x",
                "/z?u=http://c/%20",
                Ok("https://a/z?u=http://c/%20"),
            ),
            ("https://a", "/z", Ok("https://a/z")),
            ("https://a/x", "http://a/x", Err("https to http")),
            ("https://a/x", "ftp://a/x", Err("does not begin")),
            ("https://a/x", "file:///etc/passwd", Err("does not begin")),
            (
                "https://a/x/y",
                "z?u=http://c/",
                Ok("https://a/x/z?u=http://c/"),
            ),
            ("https://a/x", "javascript:alert(1)", Err("does not begin")),
            ("https://a/x", "http:/b", Err("does not begin")),
            ("https://a/x", "https://", Err("host")),
            ("https://a/x", "https://u:p@b/", Err("user name")),
            ("https://a/x", "https://a b/", Err("host")),
            ("https://a/x", "", Err("empty")),
        ];
        for (from, location, expected) in cases {
            let joined = Url::parse(from)
                .expect(from)
                .join(location)
                .map(|url| url.full());
            match (joined, expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url, expected, "{from} {location}"),
                (Err(problem), Err(part)) => {
                    assert!(problem.contains(part), "{location}: {problem}")
                }
                (joined, _) => panic!("{from} {location}: {joined:?}"),
            }
        }
    }

    #[test]
    fn a_token_is_for_one_origin() {
        let url = |text| Url::parse(text).expect(text);
        let hub = url("https://Hub.example/prefix");
        assert!(url("https://hub.example:443/other?x").has_origin_of(&hub));
        for other in [
            "http://hub.example/",
            "https://hub.example:8443/",
            "https://hub.example.evil/",
            "https://evil/hub.example",
            "https://a.hub.example/",
        ] {
            assert!(!url(other).has_origin_of(&hub), "{other}");
        }
    }

    #[test]
    fn names_of_files_are_encoded() {
        let url = Url::parse("http://h/p/")
            .expect("valid")
            .with_path("/a b/ä?#%.gguf")
            .with_query("x=1");
        assert_eq!(url.full(), "http://h/p/a%20b/%C3%A4%3F%23%25.gguf?x=1");
    }
}
