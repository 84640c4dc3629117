//! Settings of the hub: the environment variables that the hub's other clients read too.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::HubError;
use super::url::Url;

/// The public hub, for which `HF_ENDPOINT` names a mirror.
const ENDPOINT: &str = "https://huggingface.co";
/// The time without a byte after which a transfer has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where the hub and its cache are, and how they are used.
pub(super) struct HubSettings {
    /// The hub's address.
    pub(super) endpoint: Url,
    /// The folder with a folder for each repository.
    pub(super) cache: PathBuf,
    /// The token, if there is one. It is sent to the endpoint only, and never printed.
    pub(super) token: Option<String>,
    /// True if the hub must not be contacted.
    pub(super) offline: bool,
    /// The time without a byte after which a transfer has failed.
    pub(super) timeout: Duration,
}

impl HubSettings {
    /// Reads the environment.
    pub(super) fn from_environment() -> Result<HubSettings, HubError> {
        let home = home()?;
        Ok(HubSettings {
            endpoint: endpoint()?,
            cache: cache(home.as_deref())?,
            token: token(home.as_deref())?,
            offline: is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE"),
            timeout: timeout()?,
        })
    }
}

/// Returns the cache folder alone, for work that does not contact the hub.
pub(super) fn cache_folder() -> Result<PathBuf, HubError> {
    cache(home()?.as_deref())
}

fn endpoint() -> Result<Url, HubError> {
    let text = text("HF_ENDPOINT")?;
    Url::parse(text.as_deref().unwrap_or(ENDPOINT).trim()).map_err(|problem| HubError::Variable {
        variable: "HF_ENDPOINT",
        problem: problem.to_owned(),
    })
}

/// Returns the folder of the cache and of the token.
fn home() -> Result<Option<PathBuf>, HubError> {
    if let Some(home) = folder("HF_HOME")? {
        return Ok(Some(home));
    }
    let caches = match folder("XDG_CACHE_HOME")? {
        Some(caches) => Some(caches),
        None => user().map(|user| user.join(".cache")),
    };
    Ok(caches.map(|caches| caches.join("huggingface")))
}

fn cache(home: Option<&Path>) -> Result<PathBuf, HubError> {
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
        if let Some(folder) = folder(variable)? {
            return Ok(folder);
        }
    }
    home.map(|home| home.join("hub")).ok_or(HubError::NoCache)
}

/// Returns the token of the environment, or the one that the hub's own program has stored.
fn token(home: Option<&Path>) -> Result<Option<String>, HubError> {
    if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
        return Ok(None);
    }
    for variable in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(token) = text(variable)? {
            return checked(&token, variable);
        }
    }
    let path = match folder("HF_TOKEN_PATH")? {
        Some(path) => Some(path),
        None => home.map(|home| home.join("token")),
    };
    match path.map(fs::read_to_string) {
        Some(Ok(token)) => checked(&token, "HF_TOKEN_PATH"),
        // No token is stored, or it belongs to another user.
        Some(Err(_)) | None => Ok(None),
    }
}

/// Returns the token without surrounding white space. The error does not contain it, because errors are logged.
fn checked(token: &str, variable: &'static str) -> Result<Option<String>, HubError> {
    let token = token.trim();
    if token.is_empty() {
        return Ok(None);
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = "the token contains a character that a header cannot contain".to_owned();
        return Err(HubError::Variable { variable, problem });
    }
    Ok(Some(token.to_owned()))
}

fn timeout() -> Result<Duration, HubError> {
    let variable = "HF_HUB_DOWNLOAD_TIMEOUT";
    let Some(text) = text(variable)? else {
        return Ok(TIMEOUT);
    };
    match text.trim().parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => {
            let problem = format!("{text:?} is not a number of seconds from 1 to 86400");
            Err(HubError::Variable { variable, problem })
        }
    }
}

/// Returns a variable's value. An empty value counts as none.
fn value(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

fn text(variable: &'static str) -> Result<Option<String>, HubError> {
    let Some(value) = value(variable) else {
        return Ok(None);
    };
    let fault = |_| HubError::Variable {
        variable,
        problem: "it is not valid UTF-8".to_owned(),
    };
    value.into_string().map(Some).map_err(fault)
}

/// Returns a variable's value as a path. A leading `~` is the user's folder, as for the hub's other clients.
fn folder(variable: &'static str) -> Result<Option<PathBuf>, HubError> {
    let Some(path) = value(variable).map(PathBuf::from) else {
        return Ok(None);
    };
    // The hub's Python client replaces other variables in it. A folder named `$HOME` would surprise both.
    if path.to_string_lossy().contains('$') {
        let problem = format!("{} contains a '$': write the folder out", path.display());
        return Err(HubError::Variable { variable, problem });
    }
    match path.strip_prefix("~") {
        Ok(rest) => {
            let user = user().ok_or(HubError::NoCache)?;
            Ok(Some(if rest.as_os_str().is_empty() {
                user
            } else {
                user.join(rest)
            }))
        }
        Err(_) => Ok(Some(path)),
    }
}

fn user() -> Option<PathBuf> {
    env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

fn is_set(variable: &str) -> bool {
    let value = value(variable)
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_uppercase();
    matches!(value.trim(), "1" | "ON" | "YES" | "TRUE")
}
