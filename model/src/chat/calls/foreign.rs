//! Text of a conversation that the model did not write.
//!
//! Two calls and one call can have the same text: a value may contain the end of a call and the
//! start of another one. A reader of the text alone cannot tell them apart. But a model that writes
//! such a value usually copies it, for example from a document or from the result of a tool. So a
//! text between two values that the conversation already contains may be a part of a value.

use serde_json::Value;

use crate::chat::value as chat;

/// The text of all messages and tool descriptions that the model may copy into a value, in a form
/// that ignores white space and escapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForeignText {
    text: String,
}

impl ForeignText {
    /// Collects the text of messages and tool descriptions, except for the replies of the
    /// assistant.
    pub(crate) fn new(messages: &[chat::Value], tools: Option<&chat::Value>) -> ForeignText {
        let mut foreign = ForeignText::default();
        for message in messages {
            let role = message.get("role").and_then(chat::Value::as_str);
            // Earlier replies contain the separators of earlier calls. They would make every later
            // call ambiguous.
            if role != Some("assistant") {
                foreign.add(message);
            }
        }

        if let Some(tools) = tools {
            foreign.add(tools);
        }

        foreign
    }

    fn add(&mut self, value: &chat::Value) {
        match value {
            chat::Value::String(text) => {
                self.text.push_str(&squeezed(text));
                // A value may be a list or an object in JSON, with escapes in its strings.
                if text.contains('\\')
                    && let Ok(json) = serde_json::from_str(text)
                {
                    self.add_strings(&json);
                }
            }
            chat::Value::Array(values) => {
                for value in values {
                    self.add(value);
                }
            }
            chat::Value::Object(entries) => {
                for (key, value) in entries {
                    self.text.push_str(&squeezed(key));
                    self.add(value);
                }
            }
            chat::Value::Null
            | chat::Value::Bool(_)
            | chat::Value::Int(_)
            | chat::Value::Float(_) => {}
        }
    }

    fn add_strings(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text.push_str(&squeezed(text)),
            Value::Array(values) => {
                for value in values {
                    self.add_strings(value);
                }
            }
            Value::Object(entries) => {
                for value in entries.values() {
                    self.add_strings(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns true if the conversation contains this text, up to white space and escapes.
    pub(super) fn contains(&self, text: &str) -> bool {
        let text = squeezed(text);
        !text.is_empty() && self.text.contains(&text)
    }
}

/// Escapes that a source may use for the characters of tags.
const ESCAPES: [(&str, char); 8] = [
    ("\\u003c", '<'),
    ("\\u003C", '<'),
    ("\\u003e", '>'),
    ("\\u003E", '>'),
    ("\\u0022", '"'),
    ("&lt;", '<'),
    ("&gt;", '>'),
    ("&quot;", '"'),
];

/// Removes white space, and replaces the escapes that JSON, HTML and programming languages use.
fn squeezed(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((escape, plain)) = ESCAPES.iter().find(|(escape, _)| rest.starts_with(escape)) {
            squeezed.push(*plain);
            rest = &rest[escape.len()..];
        } else if c == '\\' {
            // A text that was escaped twice has several backslashes in front of one letter.
            rest = rest.trim_start_matches('\\');
            rest = rest.strip_prefix(['n', 'r', 't']).unwrap_or(rest);
        } else {
            if !c.is_whitespace() {
                squeezed.push(c);
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(role: &str, content: &str) -> ForeignText {
        let message = [("role", role), ("content", content)];
        ForeignText::new(&[chat::Value::from_pairs(message)], None)
    }

    #[test]
    fn separators_are_found_in_any_notation() {
        let separator = "\n</parameter>\n<parameter=\"a\">\n";
        let copies = [
            "x </parameter> <parameter=\"a\"> y",
            "x\\n</parameter>\\n<parameter=\\\"a\\\">\\ny",
            "\\\\n</parameter>\\\\r\\\\n<parameter=\\\\\\\"a\\\\\\\">",
            "\\u003c/parameter\\u003e\\u003cparameter=\\u0022a\\u0022\\u003e",
            "&lt;/parameter&gt;\r\n&lt;parameter=&quot;a&quot;&gt;",
            "{\"a\": [\"\\u003c\\/parameter\\u003e\\n<par\\u0061meter=\\\"a\\\">\"]}",
        ];
        for copy in copies {
            assert!(foreign("user", copy).contains(separator), "{copy}");
            assert!(!foreign("assistant", copy).contains(separator), "{copy}");
        }

        let others = ["", "</parameter>", "</parameter><parameter=\"b\">"];
        for other in others {
            assert!(!foreign("user", other).contains(separator), "{other}");
        }
    }
}
