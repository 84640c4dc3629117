//! HTTP requests to the hub, with redirects, tokens, retries and error messages.
//!
//! This module follows redirects itself, because the token must only be sent to the hub. The hub
//! redirects downloads to other hosts with signed addresses, and the HTTP library would send the
//! token there too.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};

use super::error::{HubChoices, HubError, TokenUse};
use super::settings::HubSettings;
use super::url::Url;
use warpwright_emu::terminal::say;

/// The largest number of redirects that a request follows.
const MOST_REDIRECTS: usize = 10;
/// The longest wait that a server can request. A longer one is an error, because a script should
/// not hang.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The waits before the first, second and third retry, in milliseconds.
const WAITS: [u64; 3] = [300, 1000, 3000];
/// The largest listing in bytes. The largest repositories need a few megabytes.
const LONGEST_ANSWER: u64 = 64 << 20;

/// A connection to the hub.
pub(super) struct Client {
    agent: Agent,
    endpoint: Url,
    token: Option<String>,
}

/// A failed attempt.
pub(super) enum FailedAttempt {
    /// A retry is pointless.
    Stop(HubError),
    /// A retry may help, after the time that the server requests.
    Retry {
        error: HubError,
        after: Option<Duration>,
    },
}

impl From<HubError> for FailedAttempt {
    fn from(error: HubError) -> FailedAttempt {
        FailedAttempt::Stop(error)
    }
}

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    /// A request for the headers. A redirect to another host is not followed, because the hub
    /// itself sends the size and the checksum.
    Head,
}

/// An answer with the address that it came from.
pub(super) struct HubAnswer {
    pub(super) response: Response<ureq::Body>,
    pub(super) url: Url,
}

impl HubAnswer {
    /// Returns the text of a header, if the answer has it and it is ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header_text(self.response.headers(), name)
    }
}

/// The subject of a request, for error messages.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) repo: &'a str,
    /// The file, if the request is for one.
    pub(super) file: Option<&'a str>,
}

impl Client {
    pub(super) fn new(settings: &HubSettings) -> Client {
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("warpwright/", env!("CARGO_PKG_VERSION")))
            // A compressed answer would have another length than the file.
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(settings.timeout))
            .timeout_recv_response(Some(settings.timeout))
            .timeout_per_read(Some(settings.timeout))
            .build()
            .into();
        Client {
            agent,
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
        }
    }

    /// Returns an address of the hub.
    pub(super) fn address(&self, path: &str) -> Url {
        self.endpoint.with_path(path)
    }

    /// Sends a GET request. `from` requests only the bytes from this offset on.
    pub(super) fn get(
        &self,
        url: &Url,
        subject: Subject<'_>,
        from: Option<u64>,
    ) -> Result<HubAnswer, FailedAttempt> {
        self.request(Method::Get, url, subject, from)
    }

    /// Requests the headers of a file, with retries.
    ///
    /// # Errors
    /// Returns an error if the request fails repeatedly or a retry is pointless.
    pub(super) fn head(&self, url: &Url, subject: Subject<'_>) -> Result<HubAnswer, HubError> {
        let mut patience = Patience::default();
        loop {
            match self.request(Method::Head, url, subject, None) {
                Ok(answer) => return Ok(answer),
                Err(attempt) => patience.wait(attempt, &|line| say(line))?,
            }
        }
    }

    /// Requests a text, with retries.
    ///
    /// # Errors
    /// Returns an error if the request fails repeatedly or a retry is pointless.
    pub(super) fn text(&self, url: &Url, subject: Subject<'_>) -> Result<String, HubError> {
        let mut patience = Patience::default();
        loop {
            let text = self.get(url, subject, None).and_then(|answer| {
                let HubAnswer { response, url } = answer;
                let body = response
                    .into_body()
                    .into_with_config()
                    .limit(LONGEST_ANSWER)
                    .read_to_string();
                body.map_err(|error| transport(&url, error))
            });
            match text {
                Ok(text) => return Ok(text),
                Err(attempt) => patience.wait(attempt, &|line| say(line))?,
            }
        }
    }

    fn request(
        &self,
        method: Method,
        url: &Url,
        subject: Subject<'_>,
        from: Option<u64>,
    ) -> Result<HubAnswer, FailedAttempt> {
        let mut url = url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let response = self
                .send(method, &url, from)
                .map_err(|error| transport(&url, error))?;
            let Some(location) = redirect(&response) else {
                return self.checked(HubAnswer { response, url }, subject);
            };

            let fault = |problem| HubError::Redirect {
                url: url.to_string(),
                location: shown(&location),
                problem,
            };
            let next = url.join(&location).map_err(fault)?;

            // The hub's own answer has the size and the checksum. Another host may not send them.
            if method == Method::Head && !next.has_origin_of(&url) {
                return Ok(HubAnswer { response, url });
            }

            url = next;
        }

        let url = url.to_string();
        let location = url.to_string();
        Err(FailedAttempt::Stop(HubError::Redirect {
            url,
            location,
            problem: "more than 10 redirects follow each other",
        }))
    }

    /// Sends one request. The token is only added for the hub's own address.
    fn send(
        &self,
        method: Method,
        url: &Url,
        from: Option<u64>,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = match method {
            Method::Get => self.agent.get(url.full()),
            Method::Head => self.agent.head(url.full()),
        };
        let request = match &self.token {
            Some(token) if url.has_origin_of(&self.endpoint) => {
                request.header(header::AUTHORIZATION, format!("Bearer {token}"))
            }
            Some(_) | None => request,
        };
        match from {
            Some(from) => request
                .header(header::RANGE, format!("bytes={from}-"))
                .call(),
            None => request.call(),
        }
    }

    /// Returns the answer if its status is a success, or an error that explains the status.
    fn checked(&self, answer: HubAnswer, subject: Subject<'_>) -> Result<HubAnswer, FailedAttempt> {
        let status = answer.response.status();
        let repo = || subject.repo.to_owned();
        let token = if self.token.is_some() {
            TokenUse::Sent
        } else {
            TokenUse::None
        };

        // Error codes of other hosts have other meanings.
        let code = answer
            .header("x-error-code")
            .filter(|_| answer.url.has_origin_of(&self.endpoint));
        let of_hub = answer.url.has_origin_of(&self.endpoint);
        let error = match (status, code) {
            (StatusCode::OK | StatusCode::PARTIAL_CONTENT, _) => return Ok(answer),
            // The caller decides whether the download starts again from the beginning.
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => return Ok(answer),
            (_, Some("GatedRepo")) => HubError::Gated {
                repo: repo(),
                token,
            },
            (_, Some("RepoNotFound")) => HubError::NoRepo {
                repo: repo(),
                token,
            },
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) if of_hub => HubError::Denied {
                repo: repo(),
                status: status.to_string(),
                token,
            },
            (StatusCode::NOT_FOUND, _) if of_hub => match subject.file {
                Some(file) => {
                    let choices = HubChoices(vec![]);
                    HubError::NoFile {
                        repo: repo(),
                        file: file.to_owned(),
                        choices,
                    }
                }
                None => HubError::NoRepo {
                    repo: repo(),
                    token,
                },
            },
            _ => {
                let message = answer
                    .header("x-error-message")
                    .map(|text| format!(": {text}"));
                HubError::Status {
                    url: answer.url.to_string(),
                    status: status.to_string(),
                    message: message.unwrap_or_default(),
                }
            }
        };
        match status.as_u16() {
            408 | 425 | 429 | 500 | 502 | 503 | 504 => Err(FailedAttempt::Retry {
                error,
                after: retry_after(answer.response.headers()),
            }),
            // Signed addresses of other hosts expire. The next attempt requests a new one from the
            // hub.
            401 | 403 if !of_hub => Err(FailedAttempt::Retry { error, after: None }),
            _ => Err(FailedAttempt::Stop(error)),
        }
    }
}

/// A counter of failed attempts in a row, and the waits between them.
#[derive(Default)]
pub(super) struct Patience {
    failures: usize,
}

impl Patience {
    /// Resets the counter, because an attempt made progress.
    pub(super) fn renew(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// Returns the error of the attempt if there should not be another one.
    pub(super) fn wait(
        &mut self,
        attempt: FailedAttempt,
        say: &dyn Fn(String),
    ) -> Result<(), HubError> {
        let (error, after) = match attempt {
            FailedAttempt::Stop(error) => return Err(error),
            FailedAttempt::Retry { error, after } => (error, after),
        };
        let Some(usual) = WAITS.get(self.failures) else {
            return Err(error);
        };

        self.failures += 1;
        let wait = after.unwrap_or_default().max(Duration::from_millis(*usual));
        if wait > LONGEST_WAIT {
            return Err(HubError::Wait {
                cause: Box::new(error),
                seconds: wait.as_secs(),
            });
        }

        say(format!(
            "{error}; trying again in {:.1} s",
            wait.as_secs_f64()
        ));
        thread::sleep(wait);
        Ok(())
    }
}

/// Returns the address that an answer redirects to, if it is a redirect.
fn redirect(response: &Response<ureq::Body>) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(header::LOCATION)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Returns an address without its query, because the query may contain a signature.
fn shown(location: &str) -> String {
    location.split('?').next().unwrap_or_default().to_owned()
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get(name)?
        .to_str()
        .ok()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Returns the wait that a server requests: `Retry-After` in seconds, or the `t` of the hub's
/// `RateLimit`.
///
/// A date in `Retry-After` is ignored, because the clocks may differ. The default wait applies
/// then.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = match header_text(headers, "retry-after") {
        Some(text) => text.parse().ok(),
        None => header_text(headers, "ratelimit")
            .and_then(|text| {
                text.split(';')
                    .find_map(|part| part.trim().strip_prefix("t="))
            })
            .and_then(|text| text.parse().ok()),
    };
    seconds.map(Duration::from_secs)
}

/// Decides whether a retry may help after an error of the transport.
pub(super) fn transport(url: &Url, error: ureq::Error) -> FailedAttempt {
    let network = |problem: String| HubError::Network {
        url: url.to_string(),
        problem,
    };
    let again = |problem: String| FailedAttempt::Retry {
        error: network(problem),
        after: None,
    };
    match error {
        ureq::Error::Timeout(_) => again("nothing came before the timeout".to_owned()),
        ureq::Error::HostNotFound => {
            again("the host is not found; is the network connected?".to_owned())
        }
        ureq::Error::ConnectionFailed => again("the connection failed".to_owned()),
        // An invalid certificate is also invalid at the next attempt.
        ureq::Error::Io(error) => {
            match error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            {
                Some(error) => FailedAttempt::Stop(network(error.to_string())),
                None => again(error.to_string()),
            }
        }
        ureq::Error::Protocol(error) => again(error.to_string()),
        error => FailedAttempt::Stop(network(error.to_string())),
    }
}

/// Converts an error that occurred while reading a body.
pub(super) fn body(url: &Url, error: std::io::Error) -> FailedAttempt {
    transport(url, ureq::Error::from(error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ureq::http::{HeaderMap, HeaderName, HeaderValue};

    use super::retry_after;

    #[test]
    fn waits_are_read() {
        for (name, value, seconds) in [
            ("retry-after", "7", Some(7)),
            ("retry-after", " 0 ", Some(0)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("retry-after", "-1", None),
            ("retry-after", "99999999999999999999", None),
            ("ratelimit", "\"api\";r=0;t=55", Some(55)),
            ("ratelimit", "\"api\";r=0", None),
            ("other", "7", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
            assert_eq!(
                retry_after(&headers),
                seconds.map(Duration::from_secs),
                "{name}: {value}"
            );
        }
    }
}
