//! The result of reading a reply: text, thoughts, and calls of functions.

use serde_json::{Map, Value};

/// A request of the model to call a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The identifier of the call, if the format has one and the model wrote it.
    pub id: Option<String>,
    /// The name of the function.
    pub name: String,
    /// The arguments by parameter name.
    pub arguments: Map<String, Value>,
}

/// A part of a reply, as [`CallStream`](crate::chat::CallStream) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPart {
    /// Text that is not a call.
    Text(String),
    /// Text of a thought, if thoughts are separated from text.
    Reasoning(String),
    /// A call.
    Call(ToolCall),
    /// A problem: the following text starts with a mark of calls but is not a call. It follows as
    /// [`ReplyPart::Text`].
    NoCall {
        /// The mark.
        mark: &'static str,
        /// The reason, as a clause such as "it is not closed".
        problem: String,
    },
}
