//! Finds the format of the calls that a template writes.
//!
//! The template writes the calls of earlier turns in the format that its model was trained on. So a
//! call is rendered, and the format that reads the same call back is the template's. A word in the
//! source of a template proves nothing: Llama's JSON and its pythonic calls come from templates
//! with the same words.
//!
//! Some templates leave earlier calls out, or write them in a form that they do not ask for. For
//! these, the prompt decides: it tells the model which marks to write.

use serde_json::{Map, Value, json};

use super::call::{ReplyPart, ToolCall};
use super::foreign::ForeignText;
use super::frame::CallFrame;
use super::readings;
use super::stream::{CallStream, ReplyEnd};
use super::syntax::{ArgumentsForm, CallBody, CallFormats, CallsEnd, CallsPlace, SYNTAXES, Syntax};
use super::thoughts;
use super::tools::Tools;
use crate::chat::renderer::{Conversation, Renderer, Then};
use crate::chat::value::Serde;

/// The function that is called. The name occurs in no template.
const FUNCTION: &str = "zq_find";

/// Returns the formats of the calls that a template writes. `source` is the text of the template.
pub(crate) fn formats(template: &Renderer, source: &str) -> CallFormats {
    let probe = Probe::new(template);
    let syntaxes = probe.syntaxes(source);
    let separators = probe.separators(&syntaxes);
    let quiet = syntaxes.iter().filter_map(|syntax| syntax.quiet);
    let thoughts = thoughts::marks(source, &quiet.collect::<Vec<_>>());
    let answers = thoughts.iter().flat_map(|marks| marks.answers);
    let answers = answers.filter(|[open, _]| source.contains(open)).copied();
    CallFormats {
        takes_tools: probe.takes_tools(),
        arguments: probe.arguments_form(),
        frame: probe.frame(&syntaxes),
        syntaxes,
        separators,
        answers: answers.collect(),
        thoughts,
    }
}

/// A template and the function of the calls that it renders.
struct Probe {
    template: Renderer,
    tools: Tools,
}

impl Probe {
    fn new(template: &Renderer) -> Probe {
        let tools = json!([{ "type": "function", "function": {
            "name": FUNCTION,
            "description": "Finds a file",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": { "type": "string", "description": "A name" },
                    "note": { "type": "string", "description": "A note" },
                    "days": { "type": "integer", "description": "Days" },
                    "tags": { "type": "array", "items": { "type": "string" }, "description": "Tags" },
                },
                "required": ["city"],
            },
        } }]);
        let Ok(tools) = Tools::new(&tools.to_string()) else {
            unreachable!("the list has one tool")
        };

        let mut template = template.clone();
        template.date.get_or_insert(jiff::civil::date(2026, 1, 1));
        Probe { template, tools }
    }

    /// Renders messages, or returns `None` if the template refuses them.
    fn render(&self, messages: &[Value], then: Then) -> Option<String> {
        let messages = messages
            .iter()
            .map(|message| Serde(message).into())
            .collect();
        let conversation = Conversation {
            messages,
            tools: Some(self.tools.value()),
            more: vec![],
        };
        let rendered = self.template.render(&conversation, then).ok()?;
        Some(rendered.text)
    }

    /// Returns the text in front of a reply.
    fn prompt(&self) -> Option<String> {
        self.render(&[question()], Then::Reply)
    }

    /// Returns the text of a reply that calls the function with these arguments.
    fn reply(&self, prompt: &str, calls: &[Value]) -> Option<String> {
        let calls: Vec<Value> = (1..)
            .zip(calls)
            .map(|(number, arguments)| {
                json!({ "id": format!("call{number:05}"), "type": "function",
                        "function": { "name": FUNCTION, "arguments": arguments } })
            })
            .collect();
        let reply = json!({ "role": "assistant", "content": "", "tool_calls": calls });
        let whole = self.render(&[question(), reply], Then::End)?;
        Some(reply_of(prompt, &whole).to_owned())
    }

    /// Returns true if the prompt depends on the tools.
    fn takes_tools(&self) -> bool {
        let without = Conversation {
            messages: vec![Serde(question()).into()],
            ..Conversation::default()
        };
        let without = self.template.render(&without, Then::Reply).ok();
        let with = self.prompt();
        with.is_some() && with != without.map(|rendered| rendered.text)
    }

    /// Returns the form in which the template reads arguments: the one that comes back as it was.
    fn arguments_form(&self) -> ArgumentsForm {
        let prompt = self.prompt().unwrap_or_default();
        let arguments = json!({ "city": "Oslo", "days": 3 });
        let reads = |given: Value| {
            let written = self.reply(&prompt, &[given]);
            let Value::Object(arguments) = &arguments else {
                unreachable!("arguments are an object")
            };
            written.is_some_and(|written| reads(&written, arguments, &self.tools).is_some())
        };
        let text = Value::String(arguments.to_string());
        if !reads(arguments.clone()) && reads(text) {
            ArgumentsForm::Text
        } else {
            ArgumentsForm::Object
        }
    }

    /// Returns the text around calls, if their arguments are in JSON.
    fn frame(&self, syntaxes: &[&'static Syntax]) -> Option<CallFrame> {
        let syntax = syntaxes.first()?;
        let prompt = self.prompt()?;
        let arguments = json!({ "city": "Oslo", "days": 3 });
        let text = Value::String(arguments.to_string());
        for given in [arguments.clone(), text] {
            let written = self.reply(&prompt, std::slice::from_ref(&given));
            let found = written.and_then(|written| self.frame_in(syntax, &written, &arguments));
            let Some(frame) = found else {
                continue;
            };

            let written = self.reply(&prompt, &[given.clone(), given]);
            let written = written.as_deref().and_then(|both| from_mark(syntax, both));
            let separator = written.and_then(|both| frame.separator_in(both, FUNCTION, &arguments));
            return Some(CallFrame { separator, ..frame });
        }

        None
    }

    /// Returns the text around a call in a rendered reply.
    fn frame_in(&self, syntax: &Syntax, written: &str, arguments: &Value) -> Option<CallFrame> {
        let text = from_mark(syntax, written)?;
        let mut frame = CallFrame::of(text, FUNCTION, arguments)?;
        let Value::Object(wanted) = arguments else {
            unreachable!("arguments are an object")
        };
        let is_read = |frame: &CallFrame| {
            let text = frame.written(FUNCTION, arguments);
            reads(&text, wanted, &self.tools).is_some()
        };

        // Without a closing mark, the call ends where it is complete. Control tokens that end the
        // message follow.
        if !matches!(syntax.ends, CallsEnd::Mark(_)) {
            let tail = std::mem::take(&mut frame.tail);
            let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            let mut ends = ends.map(|end| CallFrame {
                tail: tail[..end].to_owned(),
                ..frame.clone()
            });
            frame = ends.find(is_read)?;
        }

        // An identifier would have to be a new one in each call.
        let CallFrame {
            head,
            between,
            tail,
            ..
        } = &frame;
        let has_id = [head, between, tail]
            .iter()
            .any(|text| text.contains("call00001"));
        (is_read(&frame) && !has_id).then_some(frame)
    }

    /// Finds the formats of calls: none if they are unknown.
    fn syntaxes(&self, source: &str) -> Vec<&'static Syntax> {
        let prompt = self.prompt();
        let mut degenerate = None;
        let mut is_unknown = false;
        let mut renders = false;
        for arguments in [json!({ "city": "Oslo" }), json!({})] {
            for given in [arguments.clone(), Value::String(arguments.to_string())] {
                let Some(written) = self.reply(prompt.as_deref().unwrap_or_default(), &[given])
                else {
                    continue;
                };

                renders = true;
                if !written.contains(FUNCTION) {
                    continue;
                }
                let Value::Object(arguments) = &arguments else {
                    unreachable!("arguments are an object")
                };

                // A call that is only read back without arguments, or with arguments as a string,
                // does not decide: the template writes other calls in a form that it does not ask
                // for.
                match reads(&written, arguments, &self.tools) {
                    Some(syntax) if !arguments.is_empty() && !is_unknown => {
                        return family(syntax, source).collect();
                    }
                    Some(syntax) => degenerate = degenerate.or(Some(syntax)),
                    None => is_unknown = true,
                }
            }
        }

        if is_unknown && degenerate.is_none() {
            return vec![];
        }

        // A template that fails for every call may still tell of its format in the part that fails.
        let prompt = prompt.as_deref().filter(|_| renders).unwrap_or(source);
        let tells = |syntax: &&&Syntax| syntax.told_by.iter().any(|mark| prompt.contains(mark));
        let told = SYNTAXES.iter().find(tells).copied();
        let found = [
            degenerate,
            told.filter(|told| degenerate.is_none_or(|found| found.opens != told.opens)),
        ];
        found
            .into_iter()
            .flatten()
            .flat_map(|syntax| family(syntax, source))
            .collect()
    }

    /// Returns the texts that the template writes between two values, if its format has tags.
    fn separators(&self, syntaxes: &[&'static Syntax]) -> Vec<String> {
        let has_tags =
            |syntax: &&Syntax| matches!(syntax.body, CallBody::Elements(_) | CallBody::ToolCall);
        let Some(prompt) = self.prompt().filter(|_| syntaxes.iter().any(has_tags)) else {
            return vec![];
        };

        let all = json!({ "city": "Oslo", "note": "new", "days": 3, "tags": ["a"] });
        let one = json!({ "city": "Oslo" });

        // Separators within a call, between two calls, and around a call without arguments.
        let conversations = [
            vec![all.clone(), one.clone()],
            vec![all, json!({}), one.clone()],
            vec![one, json!({}), json!({})],
        ];
        let mut separators = vec![];
        for calls in conversations {
            let as_strings: Vec<Value> = calls.iter().map(|call| call.to_string().into()).collect();
            // Some templates take arguments only as an object, and others only as a string.
            for calls in [calls, as_strings] {
                let Some(written) = self.reply(&prompt, &calls) else {
                    continue;
                };
                for syntax in syntaxes.iter().filter(|syntax| has_tags(syntax)) {
                    separators.extend(written_separators(syntax, &written, &self.tools));
                }
            }
        }

        separators.sort();
        separators.dedup();
        separators
    }
}

/// Returns a rendered reply from the mark of its calls on, without the end of the message.
fn from_mark<'a>(syntax: &Syntax, written: &'a str) -> Option<&'a str> {
    let start = match syntax.body {
        CallBody::Harmony => 0,
        CallBody::Plain(_) | CallBody::Marked(_) | CallBody::Elements(_) | CallBody::ToolCall => {
            written.find(syntax.opens)?
        }
    };
    Some(without_end(&written[start..], syntax))
}

/// Returns the user's message.
fn question() -> Value {
    json!({ "role": "user", "content": "Is it there?" })
}

/// Returns the separators in calls that were written in this format.
fn written_separators(syntax: &Syntax, written: &str, tools: &Tools) -> Vec<String> {
    let Some(at) = written.find(syntax.opens) else {
        return vec![];
    };

    let text = without_end(&written[at..], syntax);
    let body = text.get(syntax.opens.len()..).unwrap_or_default();
    let first = body.trim_start().chars().next();
    match first.map(|first| syntax.body_with(first)) {
        Some(CallBody::Elements(elements)) => readings::shapes(elements, text, tools),
        Some(CallBody::Plain(_) | CallBody::Marked(_) | CallBody::ToolCall | CallBody::Harmony)
        | None => vec![],
    }
}

/// Returns a format and the formats that the same models also use.
fn family(syntax: &'static Syntax, source: &str) -> impl Iterator<Item = &'static Syntax> {
    let also = syntax
        .also
        .iter()
        .filter(move |(mark, _)| source.contains(mark))
        .map(|(_, syntax)| *syntax);
    let mut family = vec![syntax];
    for syntax in also {
        if !family.iter().any(|one| std::ptr::eq(*one, syntax)) {
            family.push(syntax);
        }
    }

    family.into_iter()
}

/// Returns the part of a rendered conversation after its prompt.
fn reply_of<'a>(prompt: &str, whole: &'a str) -> &'a str {
    let same = std::iter::zip(prompt.chars(), whole.chars()).take_while(|(a, b)| a == b);
    let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
    // Both may begin a mark at this point.
    let mark = whole[..same]
        .rfind('<')
        .filter(|at| !whole[*at..same].contains('>'));
    &whole[mark.unwrap_or(same)..]
}

/// Returns the format that finds exactly this call in a text. If a format contains another one, the
/// outer one counts.
fn reads(written: &str, arguments: &Map<String, Value>, tools: &Tools) -> Option<&'static Syntax> {
    let wanted = |calls: &[ToolCall]| match calls {
        [call] => call.name == FUNCTION && call.arguments == *arguments,
        _ => false,
    };
    let found = SYNTAXES.iter().copied().filter_map(|syntax| {
        let at = match syntax.body {
            CallBody::Harmony => 0,
            CallBody::Plain(_)
            | CallBody::Marked(_)
            | CallBody::Elements(_)
            | CallBody::ToolCall => written.find(syntax.opens)?,
        };
        let formats = CallFormats {
            syntaxes: vec![syntax],
            ..CallFormats::default()
        };
        let mut stream = CallStream::new(&formats, tools, ForeignText::default(), "");
        let mut parts = stream.push(without_end(written, syntax));
        parts.extend(stream.finish(ReplyEnd::Complete));
        let calls: Vec<ToolCall> = parts
            .into_iter()
            .filter_map(|part| match part {
                ReplyPart::Call(call) => Some(call),
                ReplyPart::Text(_) | ReplyPart::Reasoning(_) | ReplyPart::NoCall { .. } => None,
            })
            .collect();
        wanted(&calls).then_some((at, syntax))
    });
    found.min_by_key(|(at, _)| *at).map(|(_, syntax)| syntax)
}

/// Removes the end of a message, which is a token and not part of a reply.
fn without_end<'a>(written: &'a str, syntax: &Syntax) -> &'a str {
    let end = match (syntax.ends, syntax.place, syntax.body) {
        (CallsEnd::Mark(mark), _, _) => written.rfind(mark).map(|at| at + mark.len()),
        (_, CallsPlace::Start, _) => written.rfind([']', '}']).map(|at| at + 1),
        (_, CallsPlace::Anywhere, CallBody::Elements(elements)) => {
            let mark = elements.last_mark();
            written.rfind(mark).map(|at| at + mark.len())
        }
        (_, CallsPlace::Anywhere, _) => None,
    };
    &written[..end.unwrap_or(written.len())]
}
