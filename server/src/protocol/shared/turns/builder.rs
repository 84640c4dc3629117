//! Joins pieces of the same role into turns.

use crate::reply::{ChatMessage, MessageCall};

/// The turns of a conversation. Pieces of the same role in a row become one turn.
#[derive(Debug, Default)]
pub struct Turns {
    messages: Vec<ChatMessage>,
}

impl Turns {
    /// Adds instructions.
    pub fn system(&mut self, text: &str) {
        self.add("system", text, "\n\n");
    }

    /// Adds a text of the user.
    pub fn user(&mut self, text: &str) {
        self.add("user", text, "\n");
    }

    /// Adds a message of the assistant.
    pub fn assistant(&mut self, text: &str) {
        self.add("assistant", text, "\n");
    }

    /// Adds text of the assistant's reasoning.
    pub fn reasoning(&mut self, text: &str) {
        let turn = self.turn("assistant");
        match &mut turn.reasoning {
            Some(reasoning) => {
                reasoning.push('\n');
                reasoning.push_str(text);
            }
            None => turn.reasoning = Some(text.to_owned()),
        }
    }

    /// Adds a tool call of the assistant.
    pub fn call(&mut self, call: MessageCall) {
        self.turn("assistant").calls.push(call);
    }

    /// Adds the answer to a tool call. Answers are never joined.
    pub fn answer(&mut self, call_id: &str, text: String) {
        self.messages.push(ChatMessage {
            role: "tool".to_owned(),
            content: text,
            call_id: Some(call_id.to_owned()),
            ..ChatMessage::default()
        });
    }

    /// Returns the messages.
    pub fn into_messages(self) -> Vec<ChatMessage> {
        self.messages
    }

    fn add(&mut self, role: &str, text: &str, joint: &str) {
        let turn = self.turn(role);
        if !turn.content.is_empty() && !text.is_empty() {
            turn.content.push_str(joint);
        }
        turn.content.push_str(text);
    }

    /// Returns the last turn if it has this role, or else a new one.
    fn turn(&mut self, role: &str) -> &mut ChatMessage {
        let continues = self.messages.last().is_some_and(|last| last.role == role);
        if !continues {
            self.messages.push(ChatMessage {
                role: role.to_owned(),
                ..ChatMessage::default()
            });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

/// Returns true if there are instructions after the first message.
pub(super) fn has_later_system(messages: &[ChatMessage]) -> bool {
    messages
        .iter()
        .skip(1)
        .any(|message| message.role == "system")
}

/// Returns the messages with instructions after the first message as text of the user, for
/// templates that know instructions only at the beginning.
pub(super) fn fold_later_system(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut turns = Turns::default();
    for (index, message) in messages.into_iter().enumerate() {
        if index > 0 && message.role == "system" {
            turns.user(&format!("<system>\n{}\n</system>", message.content));
        } else if message.role == "user" {
            turns.user(&message.content);
        } else {
            turns.messages.push(message);
        }
    }
    turns.into_messages()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(messages: &[ChatMessage]) -> Vec<String> {
        let shown = |message: &ChatMessage| format!("{}: {}", message.role, message.content);
        messages.iter().map(shown).collect()
    }

    fn call(id: &str) -> MessageCall {
        MessageCall {
            id: id.to_owned(),
            name: "f".to_owned(),
            arguments: serde_json::Map::new(),
        }
    }

    #[test]
    fn pieces_of_the_same_role_become_one_turn() {
        let mut turns = Turns::default();
        turns.system("a");
        turns.system("b");
        turns.user("c");
        turns.user("");
        turns.user("d");
        turns.reasoning("e");
        turns.reasoning("f");
        turns.assistant("g");
        turns.call(call("1"));
        turns.call(call("2"));
        turns.answer("1", "h".to_owned());
        turns.answer("2", "i".to_owned());
        turns.assistant("j");

        let messages = turns.into_messages();
        assert_eq!(
            shown(&messages),
            [
                "system: a\n\nb",
                "user: c\nd",
                "assistant: g",
                "tool: h",
                "tool: i",
                "assistant: j"
            ]
        );
        assert_eq!(messages[2].reasoning.as_deref(), Some("e\nf"));
        assert_eq!(messages[2].calls, [call("1"), call("2")]);
        assert_eq!(messages[4].call_id.as_deref(), Some("2"));
    }

    #[test]
    fn later_instructions_join_the_turn_of_the_user() {
        let mut turns = Turns::default();
        turns.system("a");
        turns.user("b");
        assert!(!has_later_system(&turns.messages));
        turns.system("c");
        turns.assistant("d");
        turns.system("e");
        assert!(has_later_system(&turns.messages));
        assert_eq!(
            shown(&fold_later_system(turns.into_messages())),
            [
                "system: a",
                "user: b\n<system>\nc\n</system>",
                "assistant: d",
                "user: <system>\ne\n</system>"
            ]
        );
    }
}
