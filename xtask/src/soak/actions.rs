//! The kinds of requests that clients send.

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A complete reply.
    Whole,
    /// A stream that is read to its end.
    Streamed,
    /// A reply that ends at a stop string.
    Stopped,
    /// A stream that the client leaves after some events.
    LeaveStream,
    /// A request whose answer the client does not wait for.
    LeaveEarly,
    /// A stream of which the client takes a long time to read each piece.
    SlowReader,
    /// A prompt of 1 MB.
    HugePrompt,
    /// A body that is not JSON, or JSON of the wrong form.
    Malformed,
    /// A request that stops in its head or its body.
    Half,
    /// A method that the path does not have, or a path that does not exist.
    WrongMethod,
    /// Bytes that are not HTTP.
    NotHttp,
    /// The state of the server.
    State,
    /// A text that becomes tokens and a text again.
    Tokens,
}

/// All kinds, each with its share of the requests.
pub(super) const ACTIONS: [(Action, usize); 13] = [
    (Action::Whole, 20),
    (Action::Streamed, 20),
    (Action::Stopped, 10),
    (Action::LeaveStream, 12),
    (Action::LeaveEarly, 6),
    (Action::SlowReader, 4),
    (Action::HugePrompt, 1),
    (Action::Malformed, 6),
    (Action::Half, 4),
    (Action::WrongMethod, 4),
    (Action::NotHttp, 2),
    (Action::State, 7),
    (Action::Tokens, 4),
];

impl Action {
    /// Returns the name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Whole => "whole reply",
            Action::Streamed => "streamed reply",
            Action::Stopped => "reply with a stop string",
            Action::LeaveStream => "client leaves a stream",
            Action::LeaveEarly => "client leaves before the reply",
            Action::SlowReader => "slow reader",
            Action::HugePrompt => "prompt of 1 MB",
            Action::Malformed => "malformed body",
            Action::Half => "half request",
            Action::WrongMethod => "wrong method or path",
            Action::NotHttp => "no HTTP",
            Action::State => "state of the server",
            Action::Tokens => "tokens and back",
        }
    }
}
