//! Errors of the model hub and of its cache.

use std::fmt;
use std::io;
use std::path::PathBuf;

use indicatif::HumanBytes;

use super::names::PREFIX;
use crate::failure::Failure;

/// The largest number of choices that an error message lists.
const MOST_CHOICES: usize = 40;

/// A file that the user can choose.
#[derive(Debug)]
pub(crate) struct HubChoice {
    /// The argument that selects the file, for example `hf:ORG/REPO:model-Q8_0.gguf`.
    pub(crate) name: String,
    /// The size in bytes, if it is known.
    pub(crate) size: Option<u64>,
}

/// A list of choices for an error message, each on a line.
#[derive(Debug)]
pub(crate) struct HubChoices(pub(crate) Vec<HubChoice>);

impl fmt::Display for HubChoices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HubChoice { name, size } in self.0.iter().take(MOST_CHOICES) {
            write!(f, "\n  {name}")?;
            if let Some(size) = size {
                write!(f, "  ({})", HumanBytes(*size))?;
            }
        }
        match self.0.len().checked_sub(MOST_CHOICES) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n  and {more} more"),
        }
    }
}

/// The use of a token in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenUse {
    Sent,
    None,
}

/// An error of the model hub or of its cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    #[error(
        "invalid model name {text:?}: {problem}; expected {PREFIX}ORG/REPO, {PREFIX}ORG/REPO:FILE or {PREFIX}ORG/REPO:QUANT"
    )]
    Reference { text: String, problem: &'static str },
    #[error("invalid {variable}: {problem}")]
    Variable {
        variable: &'static str,
        problem: String,
    },
    #[error("no folder for the model cache is known: set HF_HOME to a folder")]
    NoCache,
    #[error(
        "the hub has no repository {repo}, or it is private: check the name{}",
        match token {
            TokenUse::Sent => ", and that the token in use may read it",
            TokenUse::None => "; for a private repository, set HF_TOKEN",
        }
    )]
    NoRepo { repo: String, token: TokenUse },
    #[error(
        "the repository {repo} is gated: accept its terms on its page on the hub, {}",
        match token {
            TokenUse::Sent => "with the account of the token in use",
            TokenUse::None => "then set HF_TOKEN to a token of your account",
        }
    )]
    Gated { repo: String, token: TokenUse },
    #[error(
        "the hub denies access to {repo} (status {status}): {}",
        match token {
            TokenUse::Sent => "the token in use is not valid or may not read it; set HF_TOKEN to another one",
            TokenUse::None => "set HF_TOKEN to a token that may read it",
        }
    )]
    Denied {
        repo: String,
        status: String,
        token: TokenUse,
    },
    #[error("{repo} has no file {file:?}{}", choose(.choices))]
    NoFile {
        repo: String,
        file: String,
        choices: HubChoices,
    },
    #[error("{repo} has no {wanted} file{}", choose(.choices))]
    NoQuantization {
        repo: String,
        wanted: String,
        choices: HubChoices,
    },
    #[error("{repo} has several {wanted} files{}", choose(.choices))]
    Several {
        repo: String,
        wanted: String,
        choices: HubChoices,
    },
    #[error(
        "{file:?} of {repo} is part {part} of {parts} of a model; choose its first part, {PREFIX}{repo}:{first}"
    )]
    LaterPart {
        repo: String,
        file: String,
        part: u32,
        parts: u32,
        first: String,
    },
    #[error("{repo} has no file {file:?}, which is a part of the model {first:?}")]
    MissingPart {
        repo: String,
        file: String,
        first: String,
    },
    #[error("{repo} cannot be used as a model: {problem}")]
    NoModel { repo: String, problem: String },
    #[error("{repo} has a file {name:?}, which is not stored: {problem}")]
    Name {
        repo: String,
        name: String,
        problem: &'static str,
    },
    #[error("{name} is not in the cache, and HF_HUB_OFFLINE forbids to download it: unset it, or copy the model to {}", .cache.display())]
    Offline { name: String, cache: PathBuf },
    #[error("{name} is not in the cache ({})", .cache.display())]
    NotCached { name: String, cache: PathBuf },
    #[error("cannot load {url}: {problem}")]
    Network { url: String, problem: String },
    #[error("cannot load {url}: the server answers with status {status}{message}")]
    Status {
        url: String,
        status: String,
        message: String,
    },
    #[error("{cause}; the server asks to wait for {seconds} s, try again then")]
    Wait { cause: Box<HubError>, seconds: u64 },
    #[error("cannot load {url}: it leads to {location:?}: {problem}")]
    Redirect {
        url: String,
        location: String,
        problem: &'static str,
    },
    #[error("cannot use the answer of {url}: {problem}")]
    Answer { url: String, problem: String },
    #[error(
        "{file}: the hub announces {expected} bytes, but more came; what was loaded is deleted, try again"
    )]
    Long { file: String, expected: u64 },
    #[error(
        "{file}: the checksum is {found}, but the hub announces {expected}; what was loaded is deleted, try again"
    )]
    Checksum {
        file: String,
        expected: String,
        found: String,
    },
    #[error("{} more are needed, but {} has only {} free; free some space, or set HF_HUB_CACHE to a folder on another disk", HumanBytes(*.needed), .folder.display(), HumanBytes(*.free))]
    Space {
        needed: u64,
        free: u64,
        folder: PathBuf,
    },
    #[error("cannot {action} {}: {source}", .path.display())]
    Disk {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is in the cache, but is not what the hub's cache has there ({problem}); nothing was removed", .path.display())]
    Layout {
        path: PathBuf,
        problem: &'static str,
    },
    #[error("another process is loading a file of {repo}; nothing was removed")]
    Busy { repo: String },
}

fn choose(choices: &HubChoices) -> String {
    if choices.0.is_empty() {
        String::new()
    } else {
        format!("; choose one of:{choices}")
    }
}

/// Converts an error of the hub. A wrong name is bad input. Problems that may disappear, for
/// example of the network or the disk, are runtime errors.
impl From<HubError> for Failure {
    fn from(error: HubError) -> Failure {
        let sentence = error.to_string();
        match error {
            HubError::Reference { .. }
            | HubError::Variable { .. }
            | HubError::NoCache
            | HubError::NoRepo { .. }
            | HubError::Gated { .. }
            | HubError::Denied { .. }
            | HubError::NoFile { .. }
            | HubError::NoQuantization { .. }
            | HubError::Several { .. }
            | HubError::LaterPart { .. }
            | HubError::MissingPart { .. }
            | HubError::NoModel { .. }
            | HubError::Name { .. }
            | HubError::Offline { .. }
            | HubError::NotCached { .. }
            | HubError::Layout { .. } => Failure::Input(sentence),
            HubError::Network { .. }
            | HubError::Status { .. }
            | HubError::Wait { .. }
            | HubError::Redirect { .. }
            | HubError::Answer { .. }
            | HubError::Long { .. }
            | HubError::Checksum { .. }
            | HubError::Space { .. }
            | HubError::Disk { .. }
            | HubError::Busy { .. } => Failure::Runtime(sentence),
        }
    }
}
