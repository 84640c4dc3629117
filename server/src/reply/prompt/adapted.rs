//! Conversations in other words, for templates that refuse them as they are.
//!
//! Some templates demand that roles alternate, or that there is one system message. Agents send
//! several messages of one role in a row. To the model, they are the same as one message with their
//! texts.

use std::collections::HashMap;

use crate::reply::request::ChatMessage;

/// Returns the conversation with ids of nine letters and digits, which Mistral's templates demand.
/// Returns `None` if it has no calls.
pub(super) fn with_short_ids(messages: &[ChatMessage]) -> Option<Vec<ChatMessage>> {
    let mut ids: HashMap<String, String> = HashMap::new();
    let mut messages = messages.to_vec();
    for message in &mut messages {
        for call in &mut message.calls {
            let short = format!("call{:05}", ids.len() + 1);
            call.id = ids.entry(call.id.clone()).or_insert(short).clone();
        }
        if let Some(id) = &mut message.call_id
            && let Some(short) = ids.get(id)
        {
            id.clone_from(short);
        }
    }

    if ids.is_empty() { None } else { Some(messages) }
}

/// Returns the conversation with one message in place of several messages in a row by the system,
/// the developer or the user. Returns `None` if there are none.
pub(super) fn joined(messages: &[ChatMessage]) -> Option<Vec<ChatMessage>> {
    let mut joined: Vec<ChatMessage> = vec![];
    for message in messages {
        match joined.last_mut() {
            Some(last) if is_same_speaker(last, message) => {
                last.content.push_str("\n\n");
                last.content.push_str(&message.content);
            }
            Some(_) | None => joined.push(message.clone()),
        }
    }

    if joined.len() == messages.len() {
        None
    } else {
        Some(joined)
    }
}

fn is_same_speaker(last: &ChatMessage, next: &ChatMessage) -> bool {
    let directs = |message: &ChatMessage| matches!(&*message.role, "system" | "developer");
    let is_user = |message: &ChatMessage| message.role == "user";
    let is_same_role = directs(last) && directs(next) || is_user(last) && is_user(next);
    is_same_role && last.name == next.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::request::MessageCall;

    fn message(role: &str, content: &str) -> ChatMessage {
        ChatMessage {
            role: role.to_owned(),
            content: content.to_owned(),
            ..ChatMessage::default()
        }
    }

    #[test]
    fn messages_of_one_role_in_a_row_are_joined() {
        let messages = [
            message("system", "a"),
            message("developer", "b"),
            message("user", "c"),
            message("user", "d"),
            message("assistant", "e"),
            message("assistant", "f"),
        ];
        let wanted = [
            message("system", "a\n\nb"),
            message("user", "c\n\nd"),
            message("assistant", "e"),
            message("assistant", "f"),
        ];
        assert_eq!(joined(&messages).as_deref(), Some(&wanted[..]));
        assert_eq!(joined(&wanted), None);
    }

    #[test]
    fn ids_are_shortened_with_their_results() {
        let mut calling = message("assistant", "");
        for id in ["call_a", "call_b"] {
            calling.calls.push(MessageCall {
                id: id.to_owned(),
                name: "f".to_owned(),
                arguments: serde_json::Map::new(),
            });
        }
        let mut answer = message("tool", "x");
        answer.call_id = Some("call_b".to_owned());
        let short = with_short_ids(&[calling, answer.clone()]).unwrap();
        assert_eq!(short[0].calls[1].id, "call00002");
        assert_eq!(short[1].call_id.as_deref(), Some("call00002"));
        assert_eq!(with_short_ids(&[answer]), None);
    }
}
