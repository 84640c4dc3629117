//! Grammars of whole replies: a thought, and then an answer that follows a grammar, or calls.
//!
//! A grammar for JSON would otherwise forbid the thought with which a model begins its reply, and
//! the marks around a call.

use serde_json::{Value, json};

use super::calls::{CallFormats, CallFrame, ThoughtMarks, Tools};
use crate::tokenizer::codec::Tokenizer;

/// The forms that a reply may have after its thought.
#[derive(Debug, Clone, Copy)]
pub struct ReplyForms<'a> {
    /// Whether an answer is allowed, which follows a grammar of its own.
    pub answer: AnswerForm,
    /// The calls that are allowed.
    pub calls: Option<CallForms<'a>>,
}

/// The answer of a reply with a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// The reply has no answer.
    None,
    /// The answer follows the grammar with the name `answer`.
    Grammar,
}

/// The calls that a grammar allows.
#[derive(Debug, Clone, Copy)]
pub struct CallForms<'a> {
    /// The functions.
    pub tools: &'a Tools,
    /// The only function that may be called, or `None` for all.
    pub function: Option<&'a str>,
    /// The number of calls.
    pub count: CallCount,
}

/// The number of calls in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCount {
    /// One.
    One,
    /// One or more.
    Many,
}

/// The grammar of a reply around the grammar of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyFrame {
    /// The reply is the answer.
    Answer,
    /// A grammar in Lark's notation, in which `@answer` is the grammar of the answer.
    Lark(String),
}

/// The names of the control tokens of a vocabulary.
struct Controls<'a> {
    names: Vec<&'a str>,
}

/// A thought in front of a reply, as rules.
struct ThoughtRule {
    /// The name of the rule, with `?` if a reply may have no thought.
    usage: &'static str,
    rules: String,
}

/// Returns the frame of the reply to a prompt, or `None` if calls cannot be forced in the format of
/// the template.
///
/// `source` is the text of the template.
pub(super) fn frame(
    formats: &CallFormats,
    source: &str,
    prompt: &str,
    forms: &ReplyForms<'_>,
    tokenizer: &Tokenizer,
) -> Option<ReplyFrame> {
    let controls = Controls {
        names: tokenizer.control_names().collect(),
    };
    let thought = thought(formats, source, prompt, &controls);
    let answer = match forms.answer {
        AnswerForm::None => None,
        AnswerForm::Grammar if formats.writes_messages() && thought.is_some() => {
            let header = controls.literal("<|channel|>final<|message|>")?;
            Some(format!("{header} @answer"))
        }
        AnswerForm::Grammar => Some("@answer".to_owned()),
    };
    let calls = match &forms.calls {
        Some(calls) => Some(calls_rules(calls, formats.frame()?, &controls)?),
        None => None,
    };
    if thought.is_none() && calls.is_none() {
        return Some(ReplyFrame::Answer);
    }

    let mut alternatives: Vec<String> = answer.into_iter().collect();
    let mut rules = String::new();
    if let Some(calls) = calls {
        alternatives.push("calls".to_owned());
        rules += &calls;
    }
    let usage = thought.as_ref().map_or("", |thought| thought.usage);
    if let Some(thought) = thought {
        rules += &thought.rules;
    }
    let reply = alternatives.join(" | ");
    Some(ReplyFrame::Lark(format!(
        "start: {usage} reply\nreply: {reply}\n{rules}"
    )))
}

/// Returns the rules of the thought that may come next, if one may.
fn thought(
    formats: &CallFormats,
    source: &str,
    prompt: &str,
    controls: &Controls<'_>,
) -> Option<ThoughtRule> {
    if formats.writes_messages() {
        // After anything but the name of the role, the reply continues a message.
        if !prompt.ends_with("assistant") {
            return None;
        }
        let open = controls.literal("<|channel|>analysis<|message|>")?;
        let next = controls.literal("<|start|>assistant")?;
        let text = controls.text_until("<|end|>")?;
        return Some(ThoughtRule {
            usage: "thought?",
            rules: format!("thought: {open} thinking {next}\n{text}"),
        });
    }

    let prompt = prompt.trim_end();
    let marks = formats.thoughts();
    if let Some(opened) = marks.iter().find(|marks| prompt.ends_with(marks.open)) {
        let text = controls.text_until(opened.close)?;
        return Some(ThoughtRule {
            usage: "thought",
            rules: format!("thought: thinking SPACE?\n{SPACE}{text}"),
        });
    }

    // A template that closes the thought in the prompt wants none.
    if marks.iter().any(|marks| prompt.ends_with(marks.close)) {
        return None;
    }
    let is_shown = |marks: &&&ThoughtMarks| source.contains(marks.open);
    let marks = marks.iter().find(is_shown)?;
    let open = controls.literal(marks.open)?;
    let text = controls.text_until(marks.close)?;
    Some(ThoughtRule {
        usage: "thought?",
        rules: format!("thought: {open} thinking SPACE?\n{SPACE}{text}"),
    })
}

/// The white space between a thought and the reply.
const SPACE: &str = "SPACE: /[ \\n]{1,4}/\n";

/// Returns the rule `calls` and the rules that it needs.
fn calls_rules(
    calls: &CallForms<'_>,
    frame: &CallFrame,
    controls: &Controls<'_>,
) -> Option<String> {
    let head = controls.literal(&frame.head)?;
    let tail = controls.literal(&frame.tail)?;
    let mut alternatives = vec![];
    let mut rules = String::new();
    let is_allowed = |name: &&str| calls.function.is_none_or(|function| function == *name);
    for (number, name) in calls.tools.names().filter(is_allowed).enumerate() {
        // A name is a part of JSON in some formats. The names that clients use need no escapes.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if !name.chars().all(is_plain) {
            return None;
        }
        let start = controls.literal(&format!("{name}{}", frame.between))?;
        let schema = calls.tools.parameters(name).cloned();
        let schema = arguments_schema(schema.unwrap_or_else(|| json!({})));
        alternatives.push(format!("call_{number}"));
        rules += &format!("call_{number}: {start} %json {schema}\n");
    }

    let more = match (calls.count, &frame.separator) {
        (CallCount::Many, Some(separator)) => {
            format!("({} call)*", controls.literal(separator)?)
        }
        (CallCount::Many, None) | (CallCount::One, _) => String::new(),
    };
    let call = alternatives.join(" | ");
    Some(format!(
        "calls: {head} call {more} {tail}\ncall: {call}\n{rules}"
    ))
}

/// Returns the schema of arguments, which are always an object. White space between the tokens of
/// JSON is bounded, as in the grammar of a schema.
fn arguments_schema(mut schema: Value) -> Value {
    if let Value::Object(keywords) = &mut schema {
        keywords.entry("type").or_insert_with(|| json!("object"));
        let settings = json!({ "whitespace_pattern": crate::grammar::SPACE });
        keywords.entry("x-guidance").or_insert(settings);
    }
    schema
}

impl Controls<'_> {
    /// Returns a text as Lark's strings and control tokens. Returns `None` if a grammar cannot
    /// contain one of its control tokens, because their names have no angle brackets.
    fn literal(&self, text: &str) -> Option<String> {
        let mut items = vec![];
        let mut rest = text;
        while !rest.is_empty() {
            let found = self
                .names
                .iter()
                .filter_map(|name| Some((rest.find(name)?, *name)));
            let next = found.min_by_key(|(at, name)| (*at, std::cmp::Reverse(name.len())));
            let Some((at, name)) = next else {
                items.push(Value::from(rest).to_string());
                break;
            };

            if at > 0 {
                items.push(Value::from(&rest[..at]).to_string());
            }
            let is_written = name.starts_with('<')
                && name.ends_with('>')
                && !name[1..name.len() - 1]
                    .contains(|c: char| c.is_whitespace() || "<>".contains(c));
            if !is_written {
                return None;
            }
            items.push(name.to_owned());
            rest = &rest[at + name.len()..];
        }

        if items.is_empty() {
            return Some("\"\"".to_owned());
        }
        Some(items.join(" "))
    }

    /// Returns the rule `thinking`: any text up to a mark, with the mark.
    fn text_until(&self, mark: &str) -> Option<String> {
        let literal = self.literal(mark)?;
        if self.names.contains(&mark) {
            return Some(format!(
                "thinking: THINKING? {literal}\nTHINKING: /(?s:.+)/\n"
            ));
        }
        // The text ends at the first mark, in which no control token may occur.
        if literal.starts_with('"') && !literal.contains(" <") {
            return Some(format!("thinking[suffix={literal}]: /(?s:.*)/\n"));
        }
        None
    }
}
