//! A call of a tool.

use serde_json::{Map, Value};

/// A function that the model wants to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The name that the model gives the call, if it gives one.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// What it is given, by name.
    pub arguments: Map<String, Value>,
}
