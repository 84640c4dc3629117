//! Settings of the hub, from the environment variables that all clients of the hub read.

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

/// The addresses of the hub and of its cache, and how they are used.
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
    /// Reads the environment variables.
    ///
    /// # Errors
    /// Returns an error that names a variable with an invalid value.
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

/// Returns the cache folder, for commands that do not contact the hub.
///
/// # Errors
/// Returns an error if it cannot be determined.
pub(super) fn cache_folder() -> Result<PathBuf, HubError> {
    cache(home()?.as_deref())
}

/// Returns the address of the hub, or of the mirror in `HF_ENDPOINT`.
fn endpoint() -> Result<Url, HubError> {
    let text = text("HF_ENDPOINT")?;
    Url::parse(text.as_deref().unwrap_or(ENDPOINT).trim()).map_err(|problem| HubError::Variable {
        variable: "HF_ENDPOINT",
        problem: problem.to_owned(),
    })
}

/// Returns the folder that contains the cache and the token, if the user has a home directory.
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

/// Returns the cache folder.
fn cache(home: Option<&Path>) -> Result<PathBuf, HubError> {
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
        if let Some(folder) = folder(variable)? {
            return Ok(folder);
        }
    }
    home.map(|home| home.join("hub")).ok_or(HubError::NoCache)
}

/// Returns the token of the environment, or the token that the hub's own client has stored.
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

/// Returns the token without surrounding white space. The error does not contain it, because errors
/// are logged.
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

/// Returns the timeout of transfers.
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

/// Returns the value of a variable, or `None` if it is not set or empty.
fn value(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

/// Returns the value of a variable as text.
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

/// Returns the value of a variable as a path. A leading `~` stands for the home directory, as in
/// other clients.
fn folder(variable: &'static str) -> Result<Option<PathBuf>, HubError> {
    let Some(path) = value(variable).map(PathBuf::from) else {
        return Ok(None);
    };
    // The hub's Python client expands variables in the path. Without that, this client would use
    // another folder.
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

/// Returns the home directory.
fn user() -> Option<PathBuf> {
    env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

/// Returns true if a variable has a value that other clients take for true.
fn is_set(variable: &str) -> bool {
    let value = value(variable)
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_uppercase();
    matches!(value.trim(), "1" | "ON" | "YES" | "TRUE")
}
