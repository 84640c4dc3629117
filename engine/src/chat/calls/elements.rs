//! Formats whose values stand between tags, without quotes or escapes: `<parameter=city>Oslo</parameter>`.
//!
//! A value may contain any text, also the tags of its own format. A closing tag ends a value only where the format puts
//! it, and where the text after it continues as the format demands: with the next parameter, or with all closing tags of
//! the call and then the next call or the end of the reply. Every other closing tag belongs to the value.
//!
//! This rule alone does not make a text unambiguous. If a value contains a closing tag, the text may have several readings,
//! for example one where a value ends early and the rest of it forms another call. The reader therefore looks for a second
//! reading, and reports a problem if there is one. It needs the whole reply for that, so a format with tags yields its
//! calls only at the end of the reply.

use std::ops::Range;

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::cursor::{Cursor, Fault, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, named, wrong};
use super::python::ambiguous;
use super::tools::Tools;

/// The tags of a format.
#[derive(Debug)]
pub(super) struct Elements {
    /// The tags around calls. Without them, each call stands alone.
    outer: Option<[&'static str; 2]>,
    /// The text in front of the name of a function and the text after it. Without them, the name is the first word.
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
    /// A value whose opening tag ends a line has lines of its own. Its closing tag then begins a line.
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

/// A step of a reading.
#[derive(Debug, Clone)]
enum Item<'a> {
    Call(&'a str),
    /// Arguments that are a JSON object.
    Object(Map<String, Value>),
    Value {
        key: &'a str,
        text: &'a str,
    },
}

/// The position in the structure of a reply, between values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
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
enum Step<'a> {
    /// A value of this parameter begins here.
    Value { key: &'a str, start: usize },
    /// The calls end here, and the rest of the reply is text.
    End { at: usize },
}

/// The maximum number of closing tags that are tried in one reply.
const TRIES: usize = 5000;

/// The maximum number of values in one reply.
const VALUES: usize = 1000;

/// A complete reading of a reply.
struct Reading<'a> {
    items: Vec<Item<'a>>,
    end: usize,
    /// True if a value in it contains a closing tag.
    skips: bool,
}

struct Search<'a, 't> {
    elements: &'static Elements,
    text: &'a str,
    tools: &'t Tools,
    items: Vec<Item<'a>>,
    tries: usize,
    values: usize,
    skips: usize,
    found: Vec<Reading<'a>>,
    /// True if the limits were exceeded, so that a reading may be missing.
    exceeded: bool,
    /// True if a closing tag was followed by a text that ends too early.
    unfinished: bool,
    /// True if a reading does not agree with the schemas.
    disagrees: bool,
}

impl Elements {
    /// Reads the calls of a whole reply, from their opening mark on. Returns the calls and the end of their text.
    pub(super) fn read(&'static self, text: &str, tools: &Tools) -> Parsed<(Vec<ToolCall>, usize)> {
        let mut items = vec![];
        let (key, start) = match self.walk(text, 0, At::Outside, &mut items)? {
            Step::End { at } => return Ok((self.calls(&items, tools)?, at)),
            Step::Value { key, start } => (key, start),
        };
        let mut search = Search {
            elements: self,
            text,
            tools,
            items,
            tries: 0,
            values: 0,
            skips: 0,
            found: vec![],
            exceeded: false,
            unfinished: false,
            disagrees: false,
        };
        search.value(key, start);
        if search.exceeded {
            return wrong("it has too many values and closing tags");
        }
        let mut readings = search.found.into_iter();
        match (readings.next(), readings.next()) {
            (None, _) if search.disagrees => wrong(
                "a value in it contains closing tags, and no reading of it agrees with the parameters of the function",
            ),
            (None, _) if search.unfinished => Err(NOT_CLOSED),
            (None, _) => Err(VALUE_NOT_CLOSED),
            (Some(reading), None) => {
                if !reading.skips {
                    self.check_boundaries(&reading.items, tools)?;
                }
                Ok((self.calls(&reading.items, tools)?, reading.end))
            }
            (Some(_), Some(_)) => {
                wrong("a value in it contains closing tags, so that it can be read in several ways")
            }
        }
    }

    /// Returns the mark that calls end with.
    pub(super) fn last_mark(&self) -> &'static str {
        self.outer
            .map(|[_, close]| close)
            .or(self.end)
            .unwrap_or(self.close)
    }

    /// Returns an error if the text up to its first value is not the beginning of a call.
    pub(super) fn check_start(&'static self, text: &str) -> Parsed<()> {
        match self.walk(text, 0, At::Outside, &mut vec![]) {
            Ok(_) | Err(Fault::Open(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Follows the structure from a position to the next value or to the end of the calls. Values are the only parts
    /// without a fixed form, so there is one way at most.
    fn walk<'a>(
        &self,
        text: &'a str,
        at: usize,
        from: At,
        items: &mut Vec<Item<'a>>,
    ) -> Parsed<Step<'a>> {
        let mut cursor = Cursor::new(text, at);
        let mut place = from;
        // The calls end after the last closing tag, and not after the white space that follows it.
        let mut end = at;
        loop {
            cursor.skip_space();
            match place {
                At::Outside => {
                    let open = self.opening();
                    if cursor.rest().starts_with(open) {
                        if self.outer.is_some() {
                            cursor.eat(open);
                        }
                        place = At::First;
                    } else if items.is_empty() {
                        cursor.expect(open)?;
                    } else {
                        return self.end(cursor, end);
                    }
                }
                At::First => {
                    items.push(Item::Call(self.name(&mut cursor)?));
                    place = At::InCall;
                }
                At::InCall => {
                    if cursor.rest().starts_with(self.key[0]) {
                        return self.key(&mut cursor);
                    }
                    if cursor.may_become(self.key[0]) {
                        return Err(NOT_CLOSED);
                    }
                    if cursor.rest().starts_with('{') && matches!(items.last(), Some(Item::Call(_)))
                    {
                        items.push(Item::Object(cursor.object()?));
                        cursor.skip_space();
                    }
                    if let Some(end) = self.end {
                        cursor.expect(end)?;
                        if self.outer.is_none() {
                            // The closing tag may be there although the opening one is missing.
                            let mut next = cursor;
                            next.skip_space();
                            if next.eat("</tool_call>") {
                                cursor = next;
                            }
                        }
                    }
                    place = At::After;
                    end = cursor.at;
                }
                At::After => match (self.outer, self.head) {
                    (None, _) => place = At::Outside,
                    (Some(_), Some([head, _])) if cursor.rest().starts_with(head) => {
                        place = At::First
                    }
                    (Some(_), Some([head, _])) if cursor.may_become(head) => {
                        return Err(NOT_CLOSED);
                    }
                    (Some([_, close]), _) => {
                        cursor.expect(close)?;
                        place = At::Outside;
                        end = cursor.at;
                    }
                },
            }
        }
    }

    /// The mark that calls begin with.
    fn opening(&self) -> &'static str {
        match (self.outer, self.head) {
            (Some([open, _]), _) | (None, Some([open, _])) => open,
            (None, None) => unreachable!("a format has a tag around calls or in front of names"),
        }
    }

    /// Reads the name of a function.
    fn name<'a>(&self, cursor: &mut Cursor<'a>) -> Parsed<&'a str> {
        let name = match self.head {
            Some([before, after]) => {
                cursor.expect(before)?;
                cursor.until(after)?
            }
            None => cursor.word(|c| c == '<' || c.is_whitespace())?,
        };
        let name = name.trim();
        if name.is_empty()
            || name.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '{' | '"'))
        {
            return wrong("it is not written as calls are");
        }
        if self.head.is_none() {
            // A word is the name of a function only if a parameter or the end of the call follows.
            let mut next = *cursor;
            next.skip_space();
            let [_, close] = self.outer.unwrap_or_default();
            let follows = |mark: &str| next.rest().starts_with(mark) || next.may_become(mark);
            if !follows(self.key[0]) && !follows(close) {
                return wrong("it is not written as calls are");
            }
        }
        Ok(name)
    }

    /// Reads the opening tag of a value.
    fn key<'a>(&self, cursor: &mut Cursor<'a>) -> Parsed<Step<'a>> {
        cursor.expect(self.key[0])?;
        let key = cursor.until(self.key[1])?;
        if key.trim().is_empty() || key.contains(['<', '>', '\n']) {
            return wrong("it is not written as calls are");
        }
        if self.typing == Typing::Attribute && split_attribute(key).is_none() {
            return wrong("a parameter of it does not say whether it is a string");
        }
        if let Some(open) = self.value {
            cursor.skip_space();
            cursor.expect(open)?;
        }
        Ok(Step::Value {
            key: key.trim(),
            start: cursor.at,
        })
    }

    /// Checks the text after the last call. If it has a tag of the format, a value may not have ended yet.
    fn end<'a>(&self, cursor: Cursor<'a>, end: usize) -> Parsed<Step<'a>> {
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
        match tags
            .iter()
            .find(|tag| !tag.is_empty() && cursor.rest().contains(**tag))
        {
            Some(tag) => wrong(format!("the text after it contains {tag}")),
            None => Ok(Step::End { at: end }),
        }
    }

    /// Checks a reading in which no value contains a closing tag. It is the only one that the format allows, but a value
    /// may contain the text of a parameter or of a call. Those that the tools do not know are reported.
    fn check_boundaries(&self, items: &[Item<'_>], tools: &Tools) -> Parsed<()> {
        let mut function = "";
        let mut after_value = false;
        let mut keys = vec![];
        for item in items {
            match item {
                Item::Call(name) => {
                    if after_value && !tools.has(name) {
                        return wrong(format!(
                            "there is no function {name}, so this may belong to the value in front of it"
                        ));
                    }
                    function = name;
                    keys.clear();
                }
                Item::Object(_) => {}
                Item::Value { key, .. } => {
                    let key = self.parameter(key);
                    if keys.contains(&key) {
                        return wrong(format!("it has two values for {key}"));
                    }
                    if !keys.is_empty() && tools.lacks_parameter(function, key) {
                        return wrong(ambiguous(key, function));
                    }
                    keys.push(key);
                    after_value = true;
                }
            }
        }
        Ok(())
    }

    /// Returns the name of a parameter.
    fn parameter<'a>(&self, key: &'a str) -> &'a str {
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
                value.map_err(|error| Fault::Wrong(format!("its JSON is not valid: {error}")))
            }
            (Typing::Schema, _) => Ok(tools.read(function, key, text)),
        }
    }

    fn calls(&self, items: &[Item<'_>], tools: &Tools) -> Parsed<Vec<ToolCall>> {
        let mut calls: Vec<ToolCall> = vec![];
        for item in items {
            match (item, calls.last_mut()) {
                (Item::Call(name), _) => calls.push(named(None, name, Map::new())?),
                (Item::Object(object), Some(call)) => call.arguments = object.clone(),
                (Item::Value { key, text }, Some(call)) => {
                    let value = self.value(&call.name, key, text, tools)?;
                    call.arguments.insert(self.parameter(key).to_owned(), value);
                }
                (Item::Object(_) | Item::Value { .. }, None) => {
                    unreachable!("a value follows the name of its function")
                }
            }
        }
        Ok(calls)
    }

    /// Returns true if a reading with closing tags in its values agrees with the schemas of the functions. Other readings
    /// are not counted when the reader decides whether a text is ambiguous.
    fn agrees(&self, items: &[Item<'_>], tools: &Tools) -> bool {
        let Ok(calls) = self.calls(items, tools) else {
            return false;
        };
        let values = items
            .iter()
            .filter(|item| matches!(item, Item::Value { .. }))
            .count();
        let objects = items.iter().filter_map(|item| match item {
            Item::Object(object) => Some(object.len()),
            Item::Call(_) | Item::Value { .. } => None,
        });
        let arguments: usize = calls.iter().map(|call| call.arguments.len()).sum();
        // A parameter that occurs twice replaces its first value.
        let distinct = arguments == values + objects.sum::<usize>();
        let known = |call: &ToolCall| {
            let mut arguments = call.arguments.iter();
            let declared = arguments.all(|(key, value)| {
                !tools.lacks_parameter(&call.name, key) && tools.fits(&call.name, key, value)
            });
            declared
                && tools
                    .required(&call.name)
                    .all(|key| call.arguments.contains_key(key))
        };
        distinct
            && calls.iter().skip(1).all(|call| tools.has(&call.name))
            && calls.iter().all(known)
    }
}

/// Splits `name" string="true` into the name and the attribute.
fn split_attribute(key: &str) -> Option<(&str, &str)> {
    key.split_once("\" string=\"")
        .filter(|(_, string)| matches!(*string, "true" | "false"))
}

impl<'a> Search<'a, '_> {
    /// Tries the closing tags of a value in their order, and keeps the first reading and a second one. Stops when the
    /// answer is certain.
    fn value(&mut self, key: &'a str, start: usize) {
        let text = self.text;
        let own_lines = self.elements.lines == Lines::Own && text[start..].starts_with('\n');
        let begin = if own_lines { start + 1 } else { start };
        let skips = self.skips;
        let closes = text[start..]
            .match_indices(self.elements.close)
            .map(|(at, _)| start + at);
        for at in closes {
            if own_lines && !text[..at].ends_with('\n') {
                continue;
            }
            self.tries += 1;
            if self.tries > TRIES || self.values >= VALUES {
                self.exceeded = true;
                return;
            }
            let range: Range<usize> = if own_lines {
                begin..(at - 1).max(begin)
            } else {
                begin..at
            };
            let kept = self.items.len();
            self.items.push(Item::Value {
                key,
                text: &text[range],
            });
            let after = at + self.elements.close.len();
            match self.elements.walk(text, after, At::InCall, &mut self.items) {
                Ok(Step::Value { key, start }) => {
                    self.values += 1;
                    self.value(key, start);
                    self.values -= 1;
                }
                Ok(Step::End { at }) => self.complete(at),
                Err(Fault::Open(_)) => self.unfinished = true,
                Err(Fault::Wrong(_)) => {}
            }
            self.items.truncate(kept);
            if self.is_done() {
                return;
            }
            self.skips += 1;
        }
        self.skips = skips;
    }

    fn complete(&mut self, end: usize) {
        let skips = self.skips > 0;
        let first = self.found.is_empty();
        // The reading without closing tags in values comes first, and needs no agreement.
        if (first && !skips) || self.elements.agrees(&self.items, self.tools) {
            self.found.push(Reading {
                items: self.items.clone(),
                end,
                skips,
            });
        } else {
            self.disagrees = true;
        }
    }

    fn is_done(&self) -> bool {
        self.exceeded
            || self.found.len() > 1
            || self.found.first().is_some_and(|reading| !reading.skips)
    }
}
