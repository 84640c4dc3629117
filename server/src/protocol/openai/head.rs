//! The facts that all parts of a response share.

use crate::error::{ErrorKind, RequestError};
use crate::protocol::shared::{random_id, unix_seconds};
use crate::reply::FinishReason;

/// The facts that all parts of a response share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The id of the response.
    pub id: String,
    /// The time of the request, in seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
}

impl ResponseHead {
    /// Returns the head of a new response, whose id has this prefix.
    pub fn new(prefix: &str, model: &str) -> ResponseHead {
        ResponseHead {
            id: random_id(prefix),
            created: unix_seconds(),
            model: model.to_owned(),
        }
    }
}

/// The configuration of the server, as clients see it. Clients of llama.cpp expect a `b`.
pub(super) const FINGERPRINT: &str = concat!("b-warpwright-", env!("CARGO_PKG_VERSION"));

/// The reason why a choice ended, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FinishFields {
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
    /// The stop string that ended the text, or `shutdown`.
    pub stop_reason: Option<String>,
}

impl FinishFields {
    /// Returns the fields for a reason.
    pub(super) fn new(reason: &FinishReason) -> FinishFields {
        let (finish_reason, stop_reason) = match reason {
            FinishReason::Stop => ("stop", None),
            FinishReason::StopString(text) => ("stop", Some(text.clone())),
            FinishReason::Length => ("length", None),
            FinishReason::Calls => ("tool_calls", None),
            // Clients know no such reason. The reply is not complete, as with a full context.
            FinishReason::Shutdown => ("length", Some("shutdown".to_owned())),
        };
        FinishFields {
            finish_reason,
            stop_reason,
        }
    }
}

/// Returns the error for replies whose events stop before their end.
pub(super) fn interrupted() -> RequestError {
    RequestError::new(ErrorKind::Internal, "the reply has been interrupted")
}

/// Returns the error for an event of a reply that was not requested.
pub(super) fn unknown_index(index: u32) -> RequestError {
    let message = format!("reply {index} was not requested");
    RequestError::new(ErrorKind::Internal, message)
}

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// More events follow.
    Open,
    /// The last event has been written.
    Closed,
}
