//! The project's side: a chat template writes a reply with calls, and the project's reader finds
//! them again.

use std::error::Error;
use std::path::Path;

use serde_json::{Value, json};
use warpwright_model::chat::{
    ChatTemplate, Conversation, ReplyEnd, ReplyPart, Serde, Then, Tools, today,
};

use crate::calls::{Call, TOOLS};
use crate::formats::Format;
use crate::random::Random;

/// A template, and the functions that its calls may name.
pub(crate) struct Writer {
    template: ChatTemplate,
    tools: Tools,
    /// The text after the end of a reply.
    end: &'static str,
    /// True if the template writes arguments unchanged that are given as text. They can then be
    /// JSON in any style.
    takes_text: bool,
    /// The text in front of a reply.
    prompt: String,
    /// The closing marks at the end of a reply, without the end of the last value.
    pub(crate) closing: String,
}

/// The result of reading a reply with the project's reader.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) calls: Vec<Call>,
    /// The reason why a text that starts like calls is not returned as calls.
    pub(crate) problem: Option<String>,
}

impl Writer {
    pub(crate) fn new(format: &Format) -> Result<Writer, Box<dyn Error>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format.template);
        let source = std::fs::read_to_string(&path)?;
        let special = vec![
            ("eos_token", "</s>".to_owned()),
            ("bos_token", "<s>".to_owned()),
        ];
        let mut template = ChatTemplate::new(&source, special)?;
        template.set_date(today());
        let tools = Tools::new(TOOLS)?;
        let mut writer = Writer {
            template,
            tools,
            end: format.end,
            takes_text: false,
            prompt: String::new(),
            closing: String::new(),
        };
        writer.prompt = writer.render(&[question()], Then::Reply)?;
        if !writer.template.knows_calls() {
            return Err(format!("{}: the format is unknown", path.display()).into());
        }

        let text = "{  \"command\":\"ls\" }";
        let with_text = writer.written("", &[("run".to_owned(), text.into())]);
        writer.takes_text = with_text.is_ok_and(|reply| reply.contains(text));

        // The end of the last value is not the same for these two calls.
        let run = Call {
            name: "run".to_owned(),
            arguments: json!({ "command": "ls" }),
        };
        let ping = Call {
            name: "ping".to_owned(),
            arguments: json!({}),
        };
        let one = writer.reply("", &[run])?;
        let other = writer.reply("", &[ping])?;
        let same = std::iter::zip(one.chars().rev(), other.chars().rev());
        let same: usize = same
            .take_while(|(a, b)| a == b)
            .map(|(c, _)| c.len_utf8())
            .sum();
        let end = &one[one.len() - same..];
        writer.closing = end.find('<').map_or("", |at| &end[at..]).to_owned();
        Ok(writer)
    }

    /// Writes a reply as the template does.
    pub(crate) fn reply(&self, text: &str, calls: &[Call]) -> Result<String, Box<dyn Error>> {
        let calls = calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()));
        let calls: Vec<(String, Value)> = calls.collect();
        self.written(text, &calls)
    }

    /// Writes a reply with JSON in a random style, if the template takes it.
    pub(crate) fn styled_reply(
        &self,
        random: &mut Random,
        text: &str,
        calls: &[Call],
    ) -> Result<String, Box<dyn Error>> {
        if !self.takes_text {
            return self.reply(text, calls);
        }
        let calls = calls.iter().map(|call| {
            let json = crate::calls::styled_json(random, &call.arguments);
            (call.name.clone(), json.into())
        });
        let calls: Vec<(String, Value)> = calls.collect();
        self.written(text, &calls)
    }

    fn written(&self, text: &str, calls: &[(String, Value)]) -> Result<String, Box<dyn Error>> {
        let calls = calls.iter().enumerate().map(|(number, (name, arguments))| {
            json!({ "id": format!("call{number:05}"), "type": "function",
                    "function": { "name": name, "arguments": arguments } })
        });
        let calls: Vec<Value> = calls.collect();
        let answer = json!({ "role": "assistant", "content": text, "tool_calls": calls });
        let whole = self.render(&[question(), answer], Then::End)?;

        // Some templates begin a thought in the prompt only.
        let same = std::iter::zip(self.prompt.chars(), whole.chars()).take_while(|(a, b)| a == b);
        let same: usize = same.map(|(c, _)| c.len_utf8()).sum();

        // Both may begin a mark at this point.
        let mark = whole[..same]
            .rfind('<')
            .filter(|at| !whole[*at..same].contains('>'));
        let reply = whole[mark.unwrap_or(same)..].trim_end();
        let reply = reply
            .strip_suffix(self.end)
            .ok_or_else(|| format!("a reply does not end with {:?}: {reply:?}", self.end))?;
        Ok(reply.to_owned())
    }

    fn render(&self, messages: &[Value], then: Then) -> Result<String, Box<dyn Error>> {
        Ok(self
            .template
            .render(&self.conversation(messages), then)?
            .text)
    }

    fn conversation(&self, messages: &[Value]) -> Conversation {
        let messages = messages
            .iter()
            .map(|message| Serde(message).into())
            .collect();
        Conversation {
            messages,
            tools: Some(self.tools.value()),
            more: vec![],
        }
    }

    /// Reads a reply that arrives in random pieces.
    pub(crate) fn read(&self, random: &mut Random, reply: &str) -> Found {
        let conversation = self.conversation(&[question()]);
        let mut stream = self.template.calls(&self.tools, &conversation, "");
        let mut parts = vec![];
        let mut start = 0;
        for (at, _) in reply.char_indices() {
            if random.once_in(9) {
                parts.extend(stream.push(&reply[start..at]));
                start = at;
            }
        }

        parts.extend(stream.push(&reply[start..]));
        parts.extend(stream.finish(ReplyEnd::Complete));
        let mut found = Found {
            calls: vec![],
            problem: None,
        };
        for part in parts {
            match part {
                ReplyPart::Call(call) => found.calls.push(Call {
                    name: call.name,
                    arguments: call.arguments.into(),
                }),
                ReplyPart::NoCall { problem, .. } => found.problem = Some(problem),
                ReplyPart::Text(_) | ReplyPart::Reasoning(_) => {}
            }
        }

        found
    }
}

/// Returns the user's message. It contains no value, because a value that it contains is ambiguous
/// in some formats.
fn question() -> Value {
    json!({ "role": "user", "content": "Is it warm?" })
}
