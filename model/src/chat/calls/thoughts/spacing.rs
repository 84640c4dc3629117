//! White space between the parts of a reply.
//!
//! Models write line breaks around the marks of thoughts and calls, because their templates do.
//! These belong to the marks. Templates remove or add them again when they render the reply as a
//! part of a conversation.

use crate::chat::calls::call::ReplyPart;

/// A filter for the parts of a reply. Its result does not depend on the division of text.
#[derive(Debug)]
pub(crate) struct Spacing {
    /// The kind of the part before.
    last: LastPart,
    /// White space that is held back, because a mark may follow it.
    held: String,
}

/// The kind of the last part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastPart {
    /// There is none, except for white space.
    None,
    /// A thought that has only white space so far.
    EmptyThought,
    Reasoning,
    Text,
    Call,
    /// The rest of the reply must stay as it is, because it may be a damaged call.
    Problem,
}

impl Spacing {
    pub(crate) fn new() -> Spacing {
        Spacing {
            last: LastPart::None,
            held: String::new(),
        }
    }

    /// Returns the number of bytes that are held back.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the parts that are certain after the next part of the reply.
    pub(crate) fn add(&mut self, part: ReplyPart) -> Vec<ReplyPart> {
        match part {
            ReplyPart::Text(text) => self.text(&text),
            ReplyPart::Reasoning(text) => self.reasoning(&text),
            ReplyPart::Call(call) => {
                self.held.clear();
                self.last = LastPart::Call;
                vec![ReplyPart::Call(call)]
            }
            problem @ ReplyPart::NoCall { .. } => {
                let mut parts = self.release();
                parts.push(problem);
                self.last = LastPart::Problem;
                parts
            }
        }
    }

    /// Returns the white space that ends the reply.
    pub(crate) fn finish(mut self) -> Vec<ReplyPart> {
        match self.last {
            LastPart::None | LastPart::Text | LastPart::Problem => self.release(),
            LastPart::EmptyThought | LastPart::Reasoning | LastPart::Call => vec![],
        }
    }

    fn text(&mut self, text: &str) -> Vec<ReplyPart> {
        if self.last == LastPart::Problem {
            return vec![ReplyPart::Text(text.to_owned())];
        }

        let trimmed = text.trim_end();
        if trimmed.is_empty() {
            self.held.push_str(text);
            return vec![];
        }

        let spaces = text[trimmed.len()..].to_owned();
        let mut released = std::mem::replace(&mut self.held, spaces);
        released.push_str(trimmed);
        let released = match self.last {
            LastPart::EmptyThought | LastPart::Reasoning | LastPart::Call => released.trim_start(),
            LastPart::None | LastPart::Text | LastPart::Problem => &released,
        };
        let part = ReplyPart::Text(released.to_owned());
        self.last = LastPart::Text;
        vec![part]
    }

    fn reasoning(&mut self, text: &str) -> Vec<ReplyPart> {
        let text = if self.last == LastPart::Reasoning {
            text
        } else {
            // White space in front of a thought belongs to its mark.
            self.held.clear();
            self.last = LastPart::EmptyThought;
            text.trim_start()
        };
        let trimmed = text.trim_end();
        if trimmed.is_empty() {
            self.held.push_str(text);
            return vec![];
        }

        let spaces = text[trimmed.len()..].to_owned();
        let mut released = std::mem::replace(&mut self.held, spaces);
        released.push_str(trimmed);
        self.last = LastPart::Reasoning;
        vec![ReplyPart::Reasoning(released)]
    }

    /// Returns the white space that is held back as text.
    fn release(&mut self) -> Vec<ReplyPart> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            vec![]
        } else {
            vec![ReplyPart::Text(held)]
        }
    }
}
