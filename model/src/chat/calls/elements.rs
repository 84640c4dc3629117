//! Formats whose values are between tags, without quotes or escapes:
//! `<parameter=city>Oslo</parameter>`.
//!
//! A value may contain any text, also the tags of its own format. A closing tag ends a value only
//! where the format puts it, and where the text after it continues as the format demands: with the
//! next parameter, or with all closing tags of the call and then the next call or the end of the
//! reply. Every other closing tag belongs to the value.
//!
//! This module has the tags of each format and follows the structure between two values. Several
//! closing tags may satisfy the rule, so a text can have several readings. Module `readings`
//! decides between them.

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::cursor::{CallFault, Cursor, NOT_CLOSED, Parsed, named, wrong};
use super::tools::Tools;

/// The tags of a format.
#[derive(Debug)]
pub(super) struct Elements {
    /// The tags around calls. Without them, each call stands alone.
    outer: Option<[&'static str; 2]>,
    /// The text in front of the name of a function and the text after it. Without them, the name is
    /// the first word.
    head: Option<[&'static str; 2]>,
    /// The closing tag of a call.
    end: Option<&'static str>,
    /// The text in front of the name of a parameter and the text after it.
    key: [&'static str; 2],
    /// The opening tag of a value, where the name of its parameter has a closing tag.
    value: Option<&'static str>,
    /// The closing tag of a value.
    close: &'static str,
    lines: Lines,
    typing: Typing,
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Values stand between their tags.
    Inline,
    /// A value whose opening tag ends a line has lines of its own. Its closing tag then begins a
    /// line.
    Own,
}

/// The source of the type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typing {
    /// The schema of the function.
    Schema,
    /// The attribute `string` of the opening tag: a string, or JSON.
    Attribute,
}

/// Qwen3-Coder, Qwen 3.5, Nemotron 3, Step.
pub(super) static FUNCTIONS: Elements = Elements {
    outer: Some(["<tool_call>", "</tool_call>"]),
    head: Some(["<function=", ">"]),
    end: Some("</function>"),
    key: ["<parameter=", ">"],
    value: None,
    close: "</parameter>",
    lines: Lines::Own,
    typing: Typing::Schema,
};

/// Functionary 3.1, and Qwen3-Coder where it omits the tag around a function.
pub(super) static BARE_FUNCTIONS: Elements = Elements {
    outer: None,
    ..FUNCTIONS
};

/// Seed-OSS.
pub(super) static SEED: Elements = Elements {
    outer: Some(["<seed:tool_call>", "</seed:tool_call>"]),
    lines: Lines::Inline,
    ..FUNCTIONS
};

/// GLM 4.5 and later, Ling, Laguna.
pub(super) static KEYS_AND_VALUES: Elements = Elements {
    outer: Some(["<tool_call>", "</tool_call>"]),
    head: None,
    end: None,
    key: ["<arg_key>", "</arg_key>"],
    value: Some("<arg_value>"),
    close: "</arg_value>",
    lines: Lines::Inline,
    typing: Typing::Schema,
};

/// MiniMax-M2.
pub(super) static INVOKE: Elements = Elements {
    outer: Some(["<minimax:tool_call>", "</minimax:tool_call>"]),
    head: Some(["<invoke name=\"", "\">"]),
    end: Some("</invoke>"),
    key: ["<parameter name=\"", "\">"],
    value: None,
    close: "</parameter>",
    lines: Lines::Inline,
    typing: Typing::Schema,
};

/// DeepSeek 3.2.
pub(super) static DSML: Elements = Elements {
    outer: Some(["<｜DSML｜function_calls>", "</｜DSML｜function_calls>"]),
    head: Some(["<｜DSML｜invoke name=\"", "\">"]),
    end: Some("</｜DSML｜invoke>"),
    key: ["<｜DSML｜parameter name=\"", "\">"],
    value: None,
    close: "</｜DSML｜parameter>",
    lines: Lines::Inline,
    typing: Typing::Attribute,
};

/// DeepSeek 4.
pub(super) static DSML_4: Elements = Elements {
    outer: Some(["<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"]),
    ..DSML
};

/// A name or value, and its position in the reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextSpan<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> TextSpan<'a> {
    fn trimmed(text: &'a str, at: usize) -> TextSpan<'a> {
        let leading = text.len() - text.trim_start().len();
        TextSpan {
            text: text.trim(),
            at: at + leading,
        }
    }

    pub(super) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// A step of a reading.
#[derive(Debug, Clone)]
pub(super) enum ReadItem<'a> {
    /// The name of a function.
    Call(TextSpan<'a>),
    /// Arguments that are a JSON object, and its text.
    Object(Map<String, Value>, TextSpan<'a>),
    Value {
        key: TextSpan<'a>,
        value: TextSpan<'a>,
    },
}

/// The position in the structure of a reply, between values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagPlace {
    /// Before the tag around calls.
    Outside,
    /// Before the first call within that tag.
    First,
    /// After a call.
    After,
    /// In a call, before a parameter or its closing tag.
    InCall,
}

/// The next step of the structure.
pub(super) enum ReadStep<'a> {
    /// A value of this parameter begins here.
    Value { key: TextSpan<'a>, start: usize },
    /// The calls end here, and the rest of the reply is text.
    End { at: usize },
}

impl Elements {
    /// Returns the mark that calls end with.
    pub(super) fn last_mark(&self) -> &'static str {
        self.outer
            .map(|[_, close]| close)
            .or(self.end)
            .unwrap_or(self.close)
    }

    /// Returns an error if the text up to its first value is not the beginning of a call.
    pub(super) fn check_start(&self, text: &str) -> Parsed<()> {
        match self.walk(text, 0, TagPlace::Outside, &mut vec![]) {
            Ok(_) | Err(CallFault::Open(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Follows the structure from a position to the next value or to the end of the calls. Values
    /// are the only parts without a fixed form, so there is one way at most.
    pub(super) fn walk<'a>(
        &self,
        text: &'a str,
        at: usize,
        from: TagPlace,
        items: &mut Vec<ReadItem<'a>>,
    ) -> Parsed<ReadStep<'a>> {
        let mut cursor = Cursor::new(text, at);
        let mut place = from;

        // The calls end after the last closing tag, and not after the white space that follows it.
        let mut end = at;
        loop {
            cursor.skip_space();
            match place {
                TagPlace::Outside => {
                    let open = self.opening();
                    if self.outer.is_none() && !items.is_empty() {
                        // Qwen3-Coder may leave out the tag around the first function only.
                        let mut next = cursor;
                        if next.eat("<tool_call>") {
                            next.skip_space();
                            if next.rest().starts_with(open) {
                                cursor = next;
                            }
                        }
                    }
                    if cursor.rest().starts_with(open) {
                        if self.outer.is_some() {
                            cursor.eat(open);
                        }
                        place = TagPlace::First;
                    } else if items.is_empty() {
                        cursor.expect(open)?;
                    } else {
                        return self.end(cursor, end);
                    }
                }
                TagPlace::First => {
                    items.push(ReadItem::Call(self.name(&mut cursor)?));
                    place = TagPlace::InCall;
                }
                TagPlace::InCall => {
                    if cursor.rest().starts_with(self.key[0]) {
                        return self.key(&mut cursor);
                    }
                    if cursor.may_become(self.key[0]) {
                        return Err(NOT_CLOSED);
                    }

                    if cursor.rest().starts_with('{')
                        && matches!(items.last(), Some(ReadItem::Call(_)))
                    {
                        let at = cursor.at;
                        let arguments = cursor.object()?;
                        let text = &text[at..cursor.at];
                        items.push(ReadItem::Object(arguments, TextSpan { text, at }));
                        cursor.skip_space();
                    }

                    if let Some(end) = self.end {
                        cursor.expect(end)?;
                        if self.outer.is_none() {
                            // Qwen3-Coder may write the closing tag although it left out the
                            // opening one.
                            let mut next = cursor;
                            next.skip_space();
                            if next.eat("</tool_call>") {
                                cursor = next;
                            }
                        }
                    }

                    place = TagPlace::After;
                    end = cursor.at;
                }
                TagPlace::After => match (self.outer, self.head) {
                    (None, _) => place = TagPlace::Outside,
                    (Some(_), Some([head, _])) if cursor.rest().starts_with(head) => {
                        place = TagPlace::First
                    }
                    (Some(_), Some([head, _])) if cursor.may_become(head) => {
                        return Err(NOT_CLOSED);
                    }
                    (Some([_, close]), _) => {
                        cursor.expect(close)?;
                        place = TagPlace::Outside;
                        end = cursor.at;
                    }
                },
            }
        }
    }

    /// Returns the mark that calls begin with.
    fn opening(&self) -> &'static str {
        match (self.outer, self.head) {
            (Some([open, _]), _) | (None, Some([open, _])) => open,
            (None, None) => unreachable!("a format has a tag around calls or in front of names"),
        }
    }

    /// Reads the name of a function.
    fn name<'a>(&self, cursor: &mut Cursor<'a>) -> Parsed<TextSpan<'a>> {
        let name = if let Some([before, after]) = self.head {
            cursor.expect(before)?;
            let at = cursor.at;
            TextSpan::trimmed(cursor.until(after)?, at)
        } else {
            let at = cursor.at;
            TextSpan::trimmed(cursor.word(|c| c == '<' || c.is_whitespace())?, at)
        };
        let is_bad = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '{' | '"');
        if name.text.is_empty() || name.text.contains(is_bad) {
            return wrong("it does not have the form of a call");
        }

        if self.head.is_none() {
            // A word is the name of a function only if a parameter or the end of the call follows.
            let mut next = *cursor;
            next.skip_space();
            let [_, close] = self.outer.unwrap_or_default();
            let follows = |mark: &str| next.rest().starts_with(mark) || next.may_become(mark);
            if !follows(self.key[0]) && !follows(close) {
                return wrong("it does not have the form of a call");
            }
        }

        Ok(name)
    }

    /// Reads the opening tag of a value.
    fn key<'a>(&self, cursor: &mut Cursor<'a>) -> Parsed<ReadStep<'a>> {
        cursor.expect(self.key[0])?;
        let at = cursor.at;
        let key = TextSpan::trimmed(cursor.until(self.key[1])?, at);
        if key.text.is_empty() || key.text.contains(['<', '>', '\n']) {
            return wrong("it does not have the form of a call");
        }
        if self.typing == Typing::Attribute && split_attribute(key.text).is_none() {
            return wrong("a parameter of it does not say whether it is a string");
        }

        if let Some(open) = self.value {
            cursor.skip_space();
            cursor.expect(open)?;
        }

        Ok(ReadStep::Value {
            key,
            start: cursor.at,
        })
    }

    /// Checks the text after the last call. If it has a tag of the format, a value may not have
    /// ended yet.
    fn end<'a>(&self, cursor: Cursor<'a>, end: usize) -> Parsed<ReadStep<'a>> {
        let outer = self.outer.unwrap_or_default();
        let head = self.head.map_or("", |[before, _]| before);
        let tags = [
            outer[0],
            outer[1],
            head,
            self.end.unwrap_or_default(),
            self.key[0],
            self.close,
        ];
        let found = tags
            .iter()
            .find(|tag| !tag.is_empty() && cursor.rest().contains(**tag));
        match found {
            Some(tag) => wrong(format!("the text after it contains {tag}")),
            None => Ok(ReadStep::End { at: end }),
        }
    }

    /// Returns the closing tags that may end a value, each with the value that it would end.
    pub(super) fn closings<'a>(
        &self,
        text: &'a str,
        start: usize,
    ) -> impl Iterator<Item = (TextSpan<'a>, usize)> {
        let own_lines = self.lines == Lines::Own && text[start..].starts_with('\n');
        let begin = if own_lines { start + 1 } else { start };
        let close = self.close;
        text[start..]
            .match_indices(close)
            .filter_map(move |(at, _)| {
                let at = start + at;
                let value = if own_lines {
                    // The line break before the closing tag is not part of the value. An empty
                    // value may have only one.
                    let end = text[..at].strip_suffix('\n')?.len();
                    &text[begin..end.max(begin)]
                } else {
                    &text[begin..at]
                };
                let value = TextSpan {
                    text: value,
                    at: begin,
                };
                Some((value, at + close.len()))
            })
    }

    /// Returns true if a value looks like a part of other calls: it contains a closing tag or the
    /// head of a call, and continues as the format demands after it.
    pub(super) fn holds_structure(&self, value: &str) -> bool {
        let [_, outer] = self.outer.unwrap_or_default();
        let next = [self.key[0], self.end.unwrap_or_default(), outer];
        let closes = value.match_indices(self.close).any(|(at, close)| {
            let rest = value[at + close.len()..].trim_start();
            next.iter()
                .any(|tag| !tag.is_empty() && rest.starts_with(tag))
        });
        let (head, from) = match self.head {
            Some([head, _]) => (head, TagPlace::First),
            None => (self.opening(), TagPlace::Outside),
        };
        closes
            || value
                .match_indices(head)
                .any(|(at, _)| self.walk(value, at, from, &mut vec![]).is_ok())
    }

    /// Returns true if a value contains a closing tag.
    pub(super) fn closes_inside(&self, value: &str) -> bool {
        value.contains(self.close)
    }

    /// Returns the name of a parameter.
    pub(super) fn parameter<'a>(&self, key: &'a str) -> &'a str {
        match self.typing {
            Typing::Schema => key,
            Typing::Attribute => split_attribute(key).map_or(key, |(name, _)| name),
        }
    }

    fn value(&self, function: &str, key: &str, text: &str, tools: &Tools) -> Parsed<Value> {
        match (self.typing, split_attribute(key)) {
            (Typing::Attribute, Some((_, "true"))) => Ok(Value::String(text.to_owned())),
            (Typing::Attribute, _) => {
                let value = serde_json::from_str(text);
                value.map_err(|error| CallFault::Wrong(format!("its JSON is not valid: {error}")))
            }
            (Typing::Schema, _) => Ok(tools.read(function, key, text)),
        }
    }

    /// Returns the calls of a reading.
    pub(super) fn calls(&self, items: &[ReadItem<'_>], tools: &Tools) -> Parsed<Vec<ToolCall>> {
        let mut calls: Vec<ToolCall> = vec![];
        for item in items {
            match (item, calls.last_mut()) {
                (ReadItem::Call(name), _) => calls.push(named(None, name.text, Map::new())?),
                (ReadItem::Object(arguments, _), Some(call)) => call.arguments = arguments.clone(),
                (ReadItem::Value { key, value }, Some(call)) => {
                    let value = self.value(&call.name, key.text, value.text, tools)?;
                    let key = self.parameter(key.text).to_owned();
                    call.arguments.insert(key, value);
                }
                (ReadItem::Object(..) | ReadItem::Value { .. }, None) => {
                    unreachable!("a value follows the name of its function")
                }
            }
        }
        Ok(calls)
    }
}

/// Splits `name" string="true` into the name and the attribute.
fn split_attribute(key: &str) -> Option<(&str, &str)> {
    key.split_once("\" string=\"")
        .filter(|(_, string)| matches!(*string, "true" | "false"))
}
