//! The error that a request is answered with. Each protocol writes it in its own shape.

use std::time::Duration;

use crate::scheduler::{GenerationError, SubmitError};

/// The kind of a [`RequestError`], from which a protocol derives status code and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A field is wrong, missing, or not supported: 400.
    Invalid,
    /// The prompt does not fit into the context: 400 with `exceed_context_size_error`.
    ContextExceeded {
        /// The number of tokens of the prompt.
        prompt: u32,
        /// The number of positions of the context.
        ctx: u32,
    },
    /// The API key is missing or wrong: 401.
    Unauthorized,
    /// A web page of another site sent the request, or the host name is not the server's: 403.
    Forbidden,
    /// The path or the model does not exist: 404.
    NotFound,
    /// The path exists, but not with this method: 405.
    Method,
    /// The body did not arrive in time: 408.
    Timeout,
    /// The body is larger than the limit: 413.
    TooLarge,
    /// The queue is full: 429 with `Retry-After`.
    QueueFull {
        /// An estimate of the time until there is space.
        retry_after: Duration,
    },
    /// The server has failed, for example because the device is lost: 500.
    Internal,
    /// The server cannot do this: 501.
    NotSupported,
    /// The model is being loaded, or the server shuts down: 503.
    Unavailable,
}

impl ErrorKind {
    /// Returns the HTTP status code, which is the same in every protocol.
    pub fn status(self) -> u16 {
        match self {
            ErrorKind::Invalid | ErrorKind::ContextExceeded { .. } => 400,
            ErrorKind::Unauthorized => 401,
            ErrorKind::Forbidden => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::Method => 405,
            ErrorKind::Timeout => 408,
            ErrorKind::TooLarge => 413,
            ErrorKind::QueueFull { .. } => 429,
            ErrorKind::Internal => 500,
            ErrorKind::NotSupported => 501,
            ErrorKind::Unavailable => 503,
        }
    }
}

/// The error that a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// A sentence: which field is wrong, its value, and the allowed values.
    pub message: String,
    /// The path of the field that is wrong, such as `messages[2].content`.
    pub param: Option<String>,
}

impl RequestError {
    /// Returns an error for a field that is wrong or not supported.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError {
            kind: ErrorKind::Invalid,
            message: message.into(),
            param: Some(param.into()),
        }
    }

    /// Returns an error that does not concern a single field.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> RequestError {
        RequestError {
            kind,
            message: message.into(),
            param: None,
        }
    }
}

impl From<SubmitError> for RequestError {
    fn from(error: SubmitError) -> RequestError {
        let kind = match &error {
            SubmitError::QueueFull { retry_after, .. } => ErrorKind::QueueFull {
                retry_after: *retry_after,
            },
            SubmitError::Context { prompt, ctx } => ErrorKind::ContextExceeded {
                prompt: *prompt,
                ctx: *ctx,
            },
            SubmitError::NoPrompt | SubmitError::Token { .. } | SubmitError::Sampling(_) => {
                ErrorKind::Invalid
            }
            SubmitError::ShuttingDown => ErrorKind::Unavailable,
            SubmitError::Lost(_) => ErrorKind::Internal,
        };
        RequestError::new(kind, error.to_string())
    }
}

impl From<GenerationError> for RequestError {
    fn from(error: GenerationError) -> RequestError {
        let kind = match &error {
            GenerationError::Sequence(_) | GenerationError::Lost(_) => ErrorKind::Internal,
            GenerationError::Unsupported(_) => ErrorKind::Invalid,
        };
        RequestError::new(kind, error.to_string())
    }
}
