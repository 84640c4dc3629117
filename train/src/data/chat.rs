//! Conversations: `{"messages": [{"role", "content"}]}`, or ShareGPT's `{"conversations": [{"from",
//! "value"}]}`.
//!
//! The model's chat template renders the text, including its beginning and its end. The replies of
//! the assistant are learned. If the template marks them with `{% generation %}`, they are the
//! marked parts.
//!
//! Otherwise a reply is found by rendering prefixes of the conversation. It starts at the end of
//! the messages before it, rendered with the beginning of a reply, and ends with the messages up to
//! it. Both texts must be prefixes of the whole text. If they are not, the position of the reply is
//! unknown, which is an error.

use std::ops::Range;

use serde_json::{Map, Value};
use warpwright_model::chat::{ChatTemplate, Conversation, Then};
use warpwright_model::{Tokenizer, chat};

use super::marks::{self, MarkEffect};

/// A text as tokens.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// The ranges of tokens that are learned, in order.
    pub(super) learned: Vec<Range<usize>>,
}

/// The speakers of ShareGPT rows, with the roles that templates know.
const SPEAKERS: [(&str, &str); 11] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("bard", "assistant"),
    ("model", "assistant"),
    ("assistant", "assistant"),
    ("system", "system"),
    ("tool", "tool"),
    ("function_response", "tool"),
    ("observation", "tool"),
];

/// A conversation, with the marks of its messages.
#[derive(Clone)]
pub(super) struct Chat {
    pub(super) conversation: Conversation,
    /// The mark of each message.
    pub(super) marks: Vec<MarkEffect>,
}

/// Keys of a message that templates render, or that clients write for every message.
const MESSAGE_KEYS: [&str; 5] = ["role", "content", "tool_calls", "tools", "documents"];

/// Keys of a turn in ShareGPT's form.
const TURN_KEYS: [&str; 2] = ["from", "value"];

/// Reads the conversation of a line.
///
/// # Errors
///
/// Returns the problem, which completes "it".
pub(super) fn parse(line: &[u8], object: &Map<String, Value>) -> Result<Chat, String> {
    // Templates see the keys in the order of the line, which `object` does not have.
    let ordered: chat::Value =
        serde_json::from_slice(line).map_err(|error| format!("is not valid JSON: {error}"))?;
    let get = |key: &str| ordered.get(key).filter(|value| !value.is_null()).cloned();
    let mut marks = vec![];
    let messages: Vec<chat::Value> = match object.get("messages") {
        Some(messages) => {
            check(messages)?;
            marks.extend(message_marks(list(messages, "messages")?, &MESSAGE_KEYS)?);
            get("messages")
                .and_then(|messages| Some(messages.as_array()?.to_vec()))
                .unwrap_or_default()
        }
        None => {
            let messages = sharegpt(object)?;
            let turns = list(
                object.get("conversations").unwrap_or(&Value::Null),
                "conversations",
            )?;
            // The row's system message comes before the turns and has no switches.
            marks.resize(messages.len() - turns.len(), MarkEffect::Unmarked);
            marks.extend(message_marks(turns, &TURN_KEYS)?);
            messages
        }
    };
    let tools = match object.get("tools") {
        None | Some(Value::Null) => None,
        Some(Value::Array(_)) => get("tools"),
        Some(_) => return Err("has \"tools\" that are no list".into()),
    };
    let more = match object.get("chat_template_kwargs") {
        None | Some(Value::Null) => vec![],
        Some(Value::Object(names)) => {
            let of = get("chat_template_kwargs").unwrap_or_default();
            names
                .keys()
                .filter_map(|name| Some((name.clone(), of.get(name)?.clone())))
                .collect()
        }
        Some(_) => return Err("has \"chat_template_kwargs\" that are no object".into()),
    };
    Ok(Chat {
        conversation: Conversation {
            messages,
            tools,
            more,
        },
        marks,
    })
}

/// Returns the marks of messages, of which `known` are the keys that are read elsewhere.
fn message_marks(messages: &[Value], known: &[&str]) -> Result<Vec<MarkEffect>, String> {
    let numbered = (1..).zip(messages);
    let mark = |(number, message): (usize, &Value)| match message {
        Value::Object(message) => marks::read(message, known, &format!("in message {number} ")),
        _ => Ok(MarkEffect::Unmarked),
    };
    numbered.map(mark).collect()
}

/// Returns a list of messages that is not empty.
fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    match value.as_array() {
        Some(list) if list.is_empty() => Err(format!("has no messages in {key:?}")),
        Some(list) => Ok(list),
        None => Err(format!("has {key:?} that are no list")),
    }
}

/// Returns an error for messages that a template would not render as text.
fn check(messages: &Value) -> Result<(), String> {
    for (number, message) in (1..).zip(list(messages, "messages")?) {
        if !message["role"].is_string() {
            return Err(format!(
                "has a message {number} without a \"role\" that is a string"
            ));
        }

        let calls = message
            .get("tool_calls")
            .is_some_and(|calls| !calls.is_null());
        let right = match message.get("content") {
            Some(Value::String(_)) => true,
            None | Some(Value::Null) => calls,
            Some(_) => false,
        };
        if !right {
            return Err(format!(
                "has a message {number} without a \"content\" that is a string"
            ));
        }
    }
    Ok(())
}

/// Returns ShareGPT messages in the form that templates expect. Some data sets have the system
/// message next to the list.
fn sharegpt(object: &Map<String, Value>) -> Result<Vec<chat::Value>, String> {
    let message =
        |role: &str, text: &str| chat::Value::from_pairs([("role", role), ("content", text)]);
    let mut messages = match object.get("system") {
        None | Some(Value::Null) => vec![],
        // Templates would write an empty block for an empty system message.
        Some(Value::String(text)) if text.is_empty() => vec![],
        Some(Value::String(text)) => vec![message("system", text)],
        Some(_) => return Err("has a \"system\" that is not a string".into()),
    };
    let conversations = object.get("conversations").unwrap_or(&Value::Null);
    for (number, turn) in (1..).zip(list(conversations, "conversations")?) {
        let [Some(from), Some(value)] = ["from", "value"].map(|key| turn[key].as_str()) else {
            return Err(format!(
                "has a message {number} without \"from\" and \"value\" that are strings"
            ));
        };
        let Some((_, role)) = SPEAKERS.iter().find(|(known, _)| *known == from) else {
            let known = SPEAKERS.map(|(known, _)| known).join(", ");
            return Err(format!(
                "has a message {number} from {from:?}, but must be from {known}"
            ));
        };
        messages.push(message(role, value));
    }

    Ok(messages)
}

/// Returns the tokens of a conversation. None of them is learned if all that could be is excluded.
///
/// # Errors
///
/// Returns the problem, which completes "it".
pub(super) fn tokens(
    chat: &Chat,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    train_on_prompt: bool,
) -> Result<Tokens, String> {
    let Spoken { text, learned } = if train_on_prompt {
        let messages = chat.conversation.messages.len();
        let text = render(&chat.conversation, template, messages, Then::End)?;
        let all = one_range(0..text.len());
        without_excluded(chat, template, Spoken { text, learned: all })?
    } else {
        replies(chat, template)?
    };
    let places = tokenizer
        .encode_places(&text)
        .map_err(|error| format!("cannot be tokenized: {error}"))?;
    let learned = overlapping(&places, &learned);
    Ok(Tokens {
        ids: places.into_iter().map(|(id, _)| id).collect(),
        learned,
    })
}

/// A text, and its byte ranges that are learned.
struct Spoken {
    text: String,
    learned: Vec<Range<usize>>,
}

/// Renders a conversation and finds the replies in it that are learned.
fn replies(chat: &Chat, template: &ChatTemplate) -> Result<Spoken, String> {
    let messages = &chat.conversation.messages;
    let is_reply = |message: &chat::Value| {
        message.get("role").and_then(chat::Value::as_str) == Some("assistant")
    };
    let said: Vec<usize> = (0..messages.len())
        .filter(|&i| is_reply(&messages[i]))
        .collect();
    if said.is_empty() {
        return Err(
            "has no message of the assistant to learn: use --train-on-prompt to learn all messages"
                .into(),
        );
    }

    let wanted = (0..messages.len())
        .find(|&i| chat.marks[i] == MarkEffect::Learned && !is_reply(&messages[i]));
    if let Some(index) = wanted {
        return Err(format!(
            "has a message {} that is marked to be learned but is not a reply of the assistant: remove \
             the mark, or use --train-on-prompt, and exclude the other messages by \"weight\": 0",
            index + 1
        ));
    }

    if template.marks_replies() {
        // Templates that mark replies report their ranges.
        let rendered = template
            .render(&chat.conversation, Then::End)
            .map_err(unrendered)?;
        if rendered.replies.iter().all(Range::is_empty) {
            return Err(
                "has no text in {% generation %} of the chat template, so that there is nothing to learn"
                    .into(),
            );
        }
        return without_excluded(
            chat,
            template,
            Spoken {
                text: rendered.text,
                learned: rendered.replies,
            },
        );
    }

    let whole = render(&chat.conversation, template, messages.len(), Then::End)?;
    let mut replies = vec![];
    for index in said {
        if chat.marks[index] == MarkEffect::Excluded {
            continue;
        }

        let before = render(&chat.conversation, template, index, Then::Reply)?;
        let after = render(&chat.conversation, template, index + 1, Then::End)?;
        if !whole.starts_with(&before) || !whole.starts_with(&after) || after.len() < before.len() {
            return Err(format!(
                "has a message {} of the assistant that the chat template renders differently when others follow, or than \
                 it begins a reply; so where it is in the text is unknown. Use a template that marks replies by \
                 {{% generation %}}, end the conversation with this message, or learn all of it by --train-on-prompt",
                index + 1
            ));
        }

        replies.push(before.len()..after.len());
    }

    if replies.is_empty() {
        return Ok(Spoken {
            text: whole,
            learned: vec![],
        });
    }

    spoken(whole, replies)
}

/// Removes the text of the excluded messages from what is learned.
fn without_excluded(
    chat: &Chat,
    template: &ChatTemplate,
    spoken: Spoken,
) -> Result<Spoken, String> {
    let Spoken { text, mut learned } = spoken;
    for index in (0..chat.marks.len()).filter(|&index| chat.marks[index] == MarkEffect::Excluded) {
        // A template may render an earlier message differently when others follow, for example
        // without its reasoning. Then the place of the message in the whole text is unknown.
        let before = render(&chat.conversation, template, index, Then::End)?;
        let after = render(&chat.conversation, template, index + 1, Then::End)?;
        if !text.starts_with(&before) || !text.starts_with(&after) || after.len() < before.len() {
            return Err(format!(
                "excludes message {}, which the chat template renders differently when others follow, so that its place in \
                 the text is unknown; leave the message out, or split the conversation",
                index + 1
            ));
        }

        let hole = before.len()..after.len();
        learned = learned
            .into_iter()
            .flat_map(|range| subtract(range, &hole))
            .collect();
    }
    Ok(Spoken { text, learned })
}

/// Returns the parts of `range` before and after `hole`, without empty ones.
fn subtract(
    range: Range<usize>,
    hole: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let before = range.start..range.end.min(hole.start);
    let after = range.start.max(hole.end)..range.end;
    [before, after]
        .into_iter()
        .filter(|part| part.start < part.end)
}

/// Returns a text and its replies, or an error if all of them are empty.
fn spoken(text: String, learned: Vec<Range<usize>>) -> Result<Spoken, String> {
    if learned.iter().all(Range::is_empty) {
        return Err("has nothing to learn: what the chat template makes of it has no text where the assistant speaks \
                    ({% generation %}, or the end of the text with a message of the assistant)"
            .into());
    }
    Ok(Spoken { text, learned })
}

/// Renders the first `count` messages.
fn render(
    conversation: &Conversation,
    template: &ChatTemplate,
    count: usize,
    then: Then,
) -> Result<String, String> {
    let messages = conversation.messages[..count].to_vec();
    let rendered = template.render(
        &Conversation {
            messages,
            ..conversation.clone()
        },
        then,
    );
    rendered.map(|rendered| rendered.text).map_err(unrendered)
}

fn unrendered(error: warpwright_model::Error) -> String {
    format!("cannot be rendered: {error}")
}

/// A list of one range.
pub(super) fn one_range(range: Range<usize>) -> Vec<Range<usize>> {
    std::iter::once(range).collect()
}

/// Returns the ranges of tokens that share a byte with one of `parts`, which must be in order and
/// not touch.
fn overlapping(places: &[(u32, Range<usize>)], parts: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut learned: Vec<Range<usize>> = vec![];
    for (index, (_, place)) in places.iter().enumerate() {
        let next = parts.partition_point(|part| part.end <= place.start);
        if parts.get(next).is_none_or(|part| part.start >= place.end) {
            continue;
        }
        match learned.last_mut() {
            Some(last) if last.end == index => last.end += 1,
            _ => learned.push(index..index + 1),
        }
    }
    learned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Chat, String> {
        let Ok(Value::Object(object)) = serde_json::from_str(line) else {
            panic!("{line}")
        };
        parse(line.as_bytes(), &object)
    }

    const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                          {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    /// The parts of the text that are learned.
    fn learned(template: &str, line: &str) -> Result<Vec<String>, String> {
        let template = ChatTemplate::new(template, vec![]).unwrap();
        let Spoken { text, learned } = replies(&read(line)?, &template)?;
        Ok(learned.into_iter().map(|at| text[at].to_owned()).collect())
    }

    #[test]
    fn replies_are_learned() {
        let talk = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}"#;
        let share = r#"{"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}"#;
        assert_eq!(
            learned(CHATML, talk).unwrap(),
            ["b<|im_end|>\n", "d<|im_end|>\n"]
        );
        assert_eq!(learned(CHATML, share).unwrap(), ["b<|im_end|>\n"]);
        let marked = "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}\
                      {{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
        assert_eq!(learned(marked, talk).unwrap(), ["b.", "d."]);

        // A template that strips what was thought before, as Qwen 3's does.
        let forgets = "{% for m in messages %}{{ m.role }}:{% if loop.last %}<think>{% endif %}{{ m.content }};{% endfor %}";
        let problem = learned(forgets, talk).unwrap_err();
        assert!(
            problem.starts_with("has a message 2 of the assistant that the chat template renders"),
            "{problem}"
        );
        let last = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
        let begins = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}\
                      {% if add_generation_prompt %}assistant:{% endif %}";
        assert_eq!(learned(begins, last).unwrap(), ["b;"]);
    }

    #[test]
    fn refuses_what_is_no_conversation() {
        let cases = [
            (r#"{"messages": []}"#, "has no messages in \"messages\""),
            (r#"{"messages": "a"}"#, "has \"messages\" that are no list"),
            (
                r#"{"messages": [{"content": "a"}]}"#,
                "has a message 1 without a \"role\" that is a string",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text"}]}]}"#,
                "has a message 2 without a \"content\" that is a string",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}], "tools": "x"}"#,
                "has \"tools\" that are no list",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 1}"#,
                "has \"chat_template_kwargs\" that are no object",
            ),
            (
                r#"{"conversations": []}"#,
                "has no messages in \"conversations\"",
            ),
            (
                r#"{"conversations": [{"from": "human", "text": "a"}]}"#,
                "has a message 1 without \"from\" and \"value\" that are strings",
            ),
            (
                r#"{"conversations": [{"from": "me", "value": "a"}]}"#,
                "has a message 1 from \"me\", but must be from human, user, gpt, chatgpt, bard, model, assistant, system, tool, \
                 function_response, observation",
            ),
        ];
        for (line, wanted) in cases {
            assert_eq!(read(line).err().as_deref(), Some(wanted), "{line}");
        }

        let nobody = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
        assert!(
            learned(CHATML, nobody)
                .unwrap_err()
                .starts_with("has no message of the assistant")
        );
        let empty = learned(
            "x",
            r#"{"messages": [{"role": "assistant", "content": "a"}]}"#,
        );
        assert!(empty.unwrap_err().starts_with("has nothing to learn"));
        let raises = learned(
            "{{ raise_exception('no') }}",
            r#"{"messages": [{"role": "assistant", "content": "a"}]}"#,
        );
        let wanted = "cannot be rendered: the chat template refuses the conversation in line 1: no";
        assert_eq!(raises.unwrap_err(), wanted);
    }

    #[test]
    fn tokens_that_overlap_a_part_are_learned() {
        let places = [
            (0, 0..2),
            (0, 2..3),
            (0, 3..3),
            (0, 3..6),
            (0, 6..9),
            (0, 9..10),
        ];
        let of = |parts: &[(usize, usize)]| {
            let parts: Vec<_> = parts.iter().map(|(start, end)| *start..*end).collect();
            overlapping(&places, &parts)
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[(0, 10)]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(of(&[(1, 2), (5, 7)]), [0, 3, 4]);
        assert_eq!(of(&[(2, 3), (9, 10)]), [1, 5]);
    }
}
