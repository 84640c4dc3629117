//! The result of reading a reply: a call of a function.

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
