//! The text around the name and the arguments of a call, as a template writes it.
//!
//! A grammar that forces a call needs exactly this text. It comes from a rendered call, so it works
//! for every format with arguments in JSON, and it has the white space that the model has seen.

use serde_json::{Deserializer, Value};

/// The text around the names and the arguments of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallFrame {
    /// The text in front of the first name.
    pub(crate) head: String,
    /// The text between a name and its arguments.
    pub(crate) between: String,
    /// The text after the last arguments.
    pub(crate) tail: String,
    /// The text between the arguments of a call and the name of the next one, if several calls
    /// only differ in their names and arguments.
    pub(crate) separator: Option<String>,
}

/// A call in a text.
pub(super) struct PlacedCall {
    /// The position of the name.
    name: usize,
    /// The positions of the first byte of the arguments, and of the first one after them.
    arguments: [usize; 2],
}

impl PlacedCall {
    /// Finds the first call of a function from a position on. Returns `None` if its arguments are
    /// not these, in JSON.
    fn find(text: &str, from: usize, function: &str, arguments: &Value) -> Option<PlacedCall> {
        let name = from + text[from..].find(function)?;
        let after = name + function.len();
        let start = after + text[after..].find('{')?;
        let mut values = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let value = values.next()?.ok()?;
        if value != *arguments {
            return None;
        }
        Some(PlacedCall {
            name,
            arguments: [start, start + values.byte_offset()],
        })
    }
}

impl CallFrame {
    /// Returns the frame of a text with one call.
    pub(super) fn of(text: &str, function: &str, arguments: &Value) -> Option<CallFrame> {
        let call = PlacedCall::find(text, 0, function, arguments)?;
        let [start, end] = call.arguments;
        Some(CallFrame {
            head: text[..call.name].to_owned(),
            between: text[call.name + function.len()..start].to_owned(),
            tail: text[end..].to_owned(),
            separator: None,
        })
    }

    /// Returns the text of a call.
    pub(super) fn written(&self, function: &str, arguments: &Value) -> String {
        let CallFrame {
            head,
            between,
            tail,
            ..
        } = self;
        format!("{head}{function}{between}{arguments}{tail}")
    }

    /// Returns the text between two calls, if the text of both has this frame too.
    pub(super) fn separator_in(
        &self,
        text: &str,
        function: &str,
        arguments: &Value,
    ) -> Option<String> {
        let first = PlacedCall::find(text, 0, function, arguments)?;
        let [_, end] = first.arguments;
        let second = PlacedCall::find(text, end, function, arguments)?;
        let [start, _] = second.arguments;
        let is_same = text[..first.name] == self.head
            && text[second.name + function.len()..start] == self.between;
        is_same.then(|| text[end..second.name].to_owned())
    }
}
