//! Attributes and methods of Python's objects.
//!
//! An attribute of Python that is not implemented is an error with its name. It would otherwise
//! look undefined, and a template would silently take the wrong branch.

use std::rc::Rc;
use std::sync::Arc;

use crate::chat::jinja::error::Error;
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::format;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::text::{self, Ends, is_space};
use crate::chat::jinja::python::value::{self, Dict, Value, View};

type Run<T> = Result<T, Error>;

/// The methods of strings. Each list `.._UNSUPPORTED` has attributes that exist in Python only.
const STRING: [&str; 46] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const STRING_UNSUPPORTED: [&str; 1] = ["encode"];

const DICT: [&str; 5] = ["get", "items", "keys", "values", "copy"];
const DICT_UNSUPPORTED: [&str; 1] = ["fromkeys"];
/// Methods that change an object. They are undefined, because Jinja's sandbox hides them.
const DICT_HIDDEN: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

const LIST: [&str; 3] = ["count", "index", "copy"];
const LIST_HIDDEN: [&str; 8] = [
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];

const TUPLE: [&str; 2] = ["count", "index"];

const INT: [&str; 5] = [
    "bit_length",
    "bit_count",
    "conjugate",
    "is_integer",
    "as_integer_ratio",
];
const INT_UNSUPPORTED: [&str; 2] = ["to_bytes", "from_bytes"];

const FLOAT: [&str; 2] = ["is_integer", "conjugate"];
const FLOAT_UNSUPPORTED: [&str; 3] = ["as_integer_ratio", "hex", "fromhex"];

const GENERATOR_UNSUPPORTED: [&str; 8] = [
    "close",
    "send",
    "throw",
    "gi_code",
    "gi_frame",
    "gi_running",
    "gi_suspended",
    "gi_yieldfrom",
];

/// Returns an attribute of the Python object. It is undefined if the sandbox hides it.
pub(crate) fn attribute(object: &Value, name: &str) -> Run<Option<Value>> {
    // The sandbox hides the internals of all objects except undefined ones.
    if name.starts_with("__") && name.ends_with("__") && name.len() > 4 {
        return Ok(match object {
            Value::Undefined(_) => None,
            _ => Some(Value::undefined(format!(
                "access to the attribute `{name}` is unsafe"
            ))),
        });
    }
    let method = |own: &[&str], unsupported: &[&str], hidden: &[&str]| {
        if own.contains(&name) {
            return Ok(Some(Value::Method(Rc::new((
                object.clone(),
                name.to_owned(),
            )))));
        }

        if unsupported.contains(&name) {
            let kind = object.type_name();
            return Err(Error::failed(format!(
                "the attribute `{name}` of a {kind} is not supported"
            )));
        }

        if hidden.contains(&name) {
            let kind = object.type_name();
            return Ok(Some(Value::undefined(format!(
                "access to the attribute `{name}` of a {kind} is unsafe"
            ))));
        }

        Ok(None)
    };
    match object {
        Value::String(_) => method(&STRING, &STRING_UNSUPPORTED, &[]),
        Value::Markup(_) => {
            let more = ["unescape", "striptags", "escape"];
            let unsupported = [&STRING[..], &STRING_UNSUPPORTED, &more].concat();
            method(&[], &unsupported, &[])
        }
        Value::Dict(_) => method(&DICT, &DICT_UNSUPPORTED, &DICT_HIDDEN),
        Value::List(_) => method(&LIST, &[], &LIST_HIDDEN),
        Value::Tuple(_) => method(&TUPLE, &[], &[]),
        Value::Group(items) => match name {
            "grouper" => Ok(items.first().cloned()),
            "list" => Ok(items.get(1).cloned()),
            _ => method(&TUPLE, &[], &[]),
        },
        Value::Int(_) | Value::Bool(_) => match name {
            "real" | "numerator" => Ok(object.as_int().map(Value::Int)),
            "imag" => Ok(Some(Value::Int(0))),
            "denominator" => Ok(Some(Value::Int(1))),
            _ => method(&INT, &INT_UNSUPPORTED, &[]),
        },
        Value::Float(number) => match name {
            "real" => Ok(Some(Value::Float(*number))),
            "imag" => Ok(Some(Value::Float(0.0))),
            _ => method(&FLOAT, &FLOAT_UNSUPPORTED, &[]),
        },
        Value::View(..) => method(&[], &["isdisjoint", "mapping"], &[]),
        Value::Range(range) => match name {
            "start" => Ok(Some(Value::Int(range.start))),
            "stop" => Ok(Some(Value::Int(range.stop))),
            "step" => Ok(Some(Value::Int(range.step))),
            _ => method(&[], &["count", "index"], &[]),
        },
        Value::Iter(_) => method(&[], &GENERATOR_UNSUPPORTED, &[]),
        Value::Namespace(names) => Ok(names.borrow().get_str(name).cloned()),
        Value::Macro(closure) => {
            let def = &closure.def;
            let explicit = def.parameters.iter().any(|parameter| parameter == "caller");
            Ok(Some(match name {
                "name" => def.name.as_deref().map_or(Value::None, Value::from),
                "arguments" => Value::tuple(
                    def.parameters
                        .iter()
                        .map(|name| name.as_str().into())
                        .collect(),
                ),
                "catch_kwargs" => def.uses.kwargs.into(),
                "catch_varargs" => def.uses.varargs.into(),
                "caller" => def.uses.caller.into(),
                "explicit_caller" => explicit.into(),
                _ => return Ok(None),
            }))
        }
        Value::Cycler(cycler) => Ok(Some(match name {
            "items" => Value::tuple(cycler.items.clone()),
            "pos" => Value::from(*cycler.at.borrow()),
            "current" => cycler.items[*cycler.at.borrow()].clone(),
            "next" | "reset" => Value::Method(Rc::new((object.clone(), name.to_owned()))),
            _ => return Ok(None),
        })),
        Value::Joiner(joiner) => Ok(match name {
            "sep" => Some(joiner.separator.clone()),
            "used" => Some((*joiner.used.borrow()).into()),
            _ => None,
        }),
        Value::Function(function) => {
            let unsupported = match *function {
                "dict" => [&DICT[..], &DICT_UNSUPPORTED, &DICT_HIDDEN].concat(),
                "range" => vec!["start", "stop", "step", "count", "index"],
                "cycler" => vec!["next", "reset", "current"],
                _ => vec![],
            };
            method(&[], &unsupported, &[])
        }
        Value::Undefined(_) | Value::None | Value::Loop(_) | Value::Method(_) => Ok(None),
    }
}

/// Calls a method of an object.
pub(crate) fn call(
    host: &mut dyn Host,
    object: &Value,
    name: &str,
    arguments: Arguments,
) -> Run<Value> {
    match object {
        Value::String(text) => string(host, text, name, arguments),
        Value::Dict(dict) => dict_method(dict, name, arguments),
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
            list(object, items, name, arguments)
        }
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => number(object, name, arguments),
        Value::Cycler(cycler) => {
            let [] = arguments.bind("the method of cycler", [])?;
            let mut at = cycler.at.borrow_mut();
            if name == "reset" {
                *at = 0;
                return Ok(Value::None);
            }
            let item = cycler.items[*at].clone();
            *at = (*at + 1) % cycler.items.len();
            Ok(item)
        }
        _ => Err(Error::failed(format!(
            "a {} has no method `{name}`",
            object.type_name()
        ))),
    }
}

/// Returns arguments that cannot be passed by name in Python.
fn positional(name: &str, arguments: Arguments, least: usize, most: usize) -> Run<Vec<Value>> {
    if !arguments.named.is_empty() {
        return Err(Error::failed(format!(
            "{name}() takes no keyword arguments"
        )));
    }

    let found = arguments.positional.len();
    if found < least || found > most {
        return Err(Error::failed(format!(
            "{name}() takes {least} to {most} arguments, not {found}"
        )));
    }

    Ok(arguments.positional)
}

/// Returns the text of an argument.
fn need_str<'a>(name: &str, value: &'a Value) -> Run<&'a str> {
    match value {
        Value::Undefined(reason) => Err(Error::undefined(reason)),
        // Methods of an escaped string escape their arguments.
        Value::Markup(_) => Err(Error::failed(format!(
            "{name}() of an escaped string is not supported"
        ))),
        _ => value.as_str().ok_or_else(|| {
            Error::failed(format!(
                "{name}() needs a string, not a {}",
                value.type_name()
            ))
        }),
    }
}

/// Returns the number of an argument.
fn need_int(name: &str, value: &Value) -> Run<i128> {
    value.as_int().ok_or_else(|| {
        Error::failed(format!(
            "{name}() needs a whole number, not a {}",
            value.type_name()
        ))
    })
}

/// Returns the part of a text between two positions in characters, and the position of its
/// beginning. It is nothing if the beginning is behind the end.
fn part<'a>(name: &str, text: &'a str, bounds: &[Value]) -> Run<Option<(usize, &'a str)>> {
    let len = text.chars().count();
    let place = |value: Option<&Value>, default: usize| match value {
        None | Some(Value::None) => Ok(default as i128),
        Some(value) => {
            let at = need_int(name, value)?;
            Ok(if at < 0 {
                (at + len as i128).max(0)
            } else {
                at
            })
        }
    };
    let start = place(bounds.first(), 0)?;
    let end = place(bounds.get(1), len)?.min(len as i128);
    if start > end {
        return Ok(None);
    }

    let byte = |at: i128| {
        text.char_indices()
            .nth(at as usize)
            .map_or(text.len(), |(byte, _)| byte)
    };
    Ok(Some((start as usize, &text[byte(start)..byte(end)])))
}

/// Returns the position of the first or last occurrence of a text, in characters.
fn found(name: &str, text: &str, arguments: Arguments) -> Run<Option<usize>> {
    let values = positional(name, arguments, 1, 3)?;
    let what = need_str(name, &values[0])?;
    let Some((start, part)) = part(name, text, &values[1..])? else {
        return Ok(None);
    };

    let at = if name.starts_with('r') {
        part.rfind(what)
    } else {
        part.find(what)
    };
    Ok(at.map(|at| start + part[..at].chars().count()))
}

/// `startswith` and `endswith`: returns true if a text has one of the affixes.
fn has_affix(name: &str, text: &str, arguments: Arguments) -> Run<bool> {
    let values = positional(name, arguments, 1, 3)?;
    let affixes = match &values[0] {
        Value::Tuple(items) => items.to_vec(),
        value => vec![value.clone()],
    };
    let part = part(name, text, &values[1..])?;
    for affix in &affixes {
        let affix = need_str(name, affix)?;
        let has = part.is_some_and(|(_, part)| match name {
            "startswith" => part.starts_with(affix),
            _ => part.ends_with(affix),
        });
        if has {
            return Ok(true);
        }
    }

    Ok(false)
}

/// `strip`, `lstrip` and `rstrip`: removes white space or other characters from the ends.
fn stripped<'a>(name: &str, text: &'a str, arguments: Arguments) -> Run<&'a str> {
    let values = positional(name, arguments, 0, 1)?;
    let chars = match values.first() {
        None | Some(Value::None) => None,
        Some(value) => Some(need_str(name, value)?.to_owned()),
    };
    let strips = |c: char| {
        chars
            .as_ref()
            .map_or_else(|| is_space(c), |chars| chars.contains(c))
    };
    Ok(match name {
        "lstrip" => text.trim_start_matches(strips),
        "rstrip" => text.trim_end_matches(strips),
        _ => text.trim_matches(strips),
    })
}

/// `split` and `rsplit`: splits a text at separators or white space.
fn split(name: &str, text: &str, arguments: Arguments) -> Run<Value> {
    let [separator, most] = arguments.bind(name, ["sep", "maxsplit"])?;
    let most = most.map_or(Ok(-1), |most| need_int(name, &most))?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts: Vec<&str> = match &separator {
        None | Some(Value::None) if name == "rsplit" => words_from_right(text, most),
        None | Some(Value::None) => words(text, most),
        Some(separator) => {
            let separator = need_str(name, separator)?;
            if separator.is_empty() {
                return Err(Error::failed("empty separator"));
            }

            let count = most.saturating_add(1);
            match name {
                "rsplit" => {
                    let mut parts: Vec<&str> = text.rsplitn(count, separator).collect();
                    parts.reverse();
                    parts
                }
                _ => text.splitn(count, separator).collect(),
            }
        }
    };
    Ok(parts
        .into_iter()
        .map(Value::from)
        .collect::<Vec<_>>()
        .into())
}

/// Splits at white space, at most `most` times. The last word keeps the white space at its end.
fn words(text: &str, most: usize) -> Vec<&str> {
    let mut words = vec![];
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let Some(at) = rest.find(is_space).filter(|_| words.len() < most) else {
            words.push(rest);
            break;
        };
        words.push(&rest[..at]);
        rest = rest[at..].trim_start_matches(is_space);
    }

    words
}

/// Splits at white space from the right, at most `most` times. The first word keeps the white space
/// at its start.
fn words_from_right(text: &str, most: usize) -> Vec<&str> {
    let mut words = vec![];
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        let Some(at) = rest.rfind(is_space).filter(|_| words.len() < most) else {
            words.push(rest);
            break;
        };
        let width = rest[at..].chars().next().map_or(1, char::len_utf8);
        words.push(&rest[at + width..]);
        rest = rest[..at].trim_end_matches(is_space);
    }

    words.reverse();
    words
}

/// `center`, `ljust` and `rjust`: pads a text.
fn aligned(host: &mut dyn Host, name: &str, text: &str, arguments: Arguments) -> Run<Value> {
    let values = positional(name, arguments, 1, 2)?;
    let width = need_int(name, &values[0])?.max(0);
    let fill = values
        .get(1)
        .map_or(Ok(" "), |value| need_str(name, value))?;
    if fill.chars().count() != 1 {
        return Err(Error::failed(
            "The fill character must be exactly one character long",
        ));
    }

    let width = usize::try_from(width).unwrap_or(usize::MAX);
    host.pay_text(width.saturating_mul(fill.len()))?;
    let len = text.chars().count();
    let space = width.saturating_sub(len);
    let left = match name {
        "ljust" => 0,
        "rjust" => space,
        // CPython puts the odd character to the left if the width is odd.
        _ => space / 2 + (space & width & 1),
    };
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(space - left)).into())
}

/// `replace`: replaces occurrences of a text.
fn replace(host: &mut dyn Host, text: &str, arguments: Arguments) -> Run<Value> {
    let [old, new, count] = arguments.bind("replace", ["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else {
        return Err(Error::failed("replace() needs two strings"));
    };

    let count = count.map_or(Ok(-1), |count| need_int("replace", &count))?;
    replaced(
        host,
        text,
        need_str("replace", &old)?,
        need_str("replace", &new)?,
        count,
    )
}

/// Replaces the first `count` occurrences of a text, or all if `count` is negative.
pub(crate) fn replaced(
    host: &mut dyn Host,
    text: &str,
    old: &str,
    new: &str,
    count: i128,
) -> Run<Value> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);

    // The length of the result is checked before it is made.
    let places = if old.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(old).count()
    };
    let places = places.min(count);
    host.pay_text(text.len() + places.saturating_mul(new.len()))?;
    Ok(text.replacen(old, new, places).into())
}

/// `translate`: replaces characters by a table.
fn translate(text: &str, arguments: Arguments) -> Run<Value> {
    let values = positional("translate", arguments, 1, 1)?;
    let Value::Dict(table) = &values[0] else {
        return Err(Error::failed("translate() is supported with a dict only"));
    };

    let mut out = String::new();
    for c in text.chars() {
        match table.get(&Value::Int(u32::from(c).into())) {
            None => out.push(c),
            Some(Value::None) => {}
            Some(value) => match (value.as_int(), value) {
                (Some(code), _) => {
                    let c = u32::try_from(code).ok().and_then(char::from_u32);
                    out.push(
                        c.ok_or_else(|| Error::failed("translate() needs characters of Unicode"))?,
                    );
                }
                (None, value) => out += need_str("translate", value)?,
            },
        }
    }

    Ok(out.into())
}

/// `maketrans`: makes a table for `translate`.
fn maketrans(arguments: Arguments) -> Run<Value> {
    let values = positional("maketrans", arguments, 1, 3)?;
    let mut table = Dict::default();
    let code = |c: char| Value::Int(u32::from(c).into());
    match &values[..] {
        [Value::Dict(dict)] => {
            for (key, value) in dict.entries() {
                let key = match (key.as_int(), key.as_str()) {
                    (Some(number), _) => Value::Int(number),
                    (None, Some(text)) if text.chars().count() == 1 => {
                        code(text.chars().next().unwrap_or(' '))
                    }
                    _ => {
                        return Err(Error::failed(
                            "the keys of maketrans() must be characters or numbers",
                        ));
                    }
                };
                table.insert(key, value.clone());
            }
        }
        [from, to, rest @ ..] => {
            let from = need_str("maketrans", from)?;
            let to = need_str("maketrans", to)?;
            if from.chars().count() != to.chars().count() {
                return Err(Error::failed(
                    "the first two maketrans arguments must have equal length",
                ));
            }

            for (from, to) in from.chars().zip(to.chars()) {
                table.insert(code(from), code(to));
            }

            for removed in rest {
                for c in need_str("maketrans", removed)?.chars() {
                    table.insert(code(c), Value::None);
                }
            }
        }
        _ => return Err(Error::failed("maketrans() needs a dict or two strings")),
    }

    Ok(Value::Dict(Rc::new(table)))
}

/// `expandtabs`: replaces tabs by spaces up to the next column.
fn expandtabs(host: &mut dyn Host, text: &str, arguments: Arguments) -> Run<Value> {
    let [size] = arguments.bind("expandtabs", ["tabsize"])?;
    let size = size
        .map_or(Ok(8), |size| need_int("expandtabs", &size))?
        .clamp(0, 1 << 20) as usize;
    host.pay_text(text.len() + text.matches('\t').count().saturating_mul(size))?;
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' => {
                let width = if size > 0 { size - column % size } else { 0 };
                out += &" ".repeat(width);
                column += width;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }

    Ok(out.into())
}

/// `partition` and `rpartition`: splits a text at one separator.
fn partition(name: &str, text: &str, arguments: Arguments) -> Run<Value> {
    let values = positional(name, arguments, 1, 1)?;
    let separator = need_str(name, &values[0])?;
    if separator.is_empty() {
        return Err(Error::failed("empty separator"));
    }

    let parts = match name {
        "partition" => match text.split_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => [text, "", ""],
        },
        _ => match text.rsplit_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => ["", "", text],
        },
    };
    Ok(Value::tuple(parts.map(Value::from).to_vec()))
}

/// Joins strings with a separator.
pub(crate) fn joined(host: &mut dyn Host, separator: &str, items: &[Value]) -> Run<Value> {
    let mut texts = vec![];
    for (i, item) in items.iter().enumerate() {
        let Some(text) = item.as_str() else {
            let kind = item.type_name();
            return Err(Error::failed(format!(
                "sequence item {i}: expected str instance, {kind} found"
            )));
        };
        texts.push(text);
    }

    let between = separator.len().saturating_mul(texts.len());
    host.pay_text(between + texts.iter().map(|text| text.len()).sum::<usize>())?;
    Ok(texts.join(separator).into())
}

/// Calls a method of a string.
fn string(host: &mut dyn Host, text: &Arc<str>, name: &str, arguments: Arguments) -> Run<Value> {
    host.pay_text(text.len())?;
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);

    // Methods with arguments come first, because the others share the check that there are none.
    match name {
        "center" | "ljust" | "rjust" => return aligned(host, name, text, arguments),
        "count" => {
            let values = positional(name, arguments, 1, 3)?;
            let what = need_str(name, &values[0])?;
            let part = part(name, text, &values[1..])?;
            return Ok(part
                .map_or(0, |(_, part)| part.matches(what).count())
                .into());
        }
        "startswith" | "endswith" => return has_affix(name, text, arguments).map(Value::from),
        "expandtabs" => return expandtabs(host, text, arguments),
        "find" | "rfind" => {
            let at = found(name, text, arguments)?;
            return Ok(Value::Int(at.map_or(-1, |at| at as i128)));
        }
        "index" | "rindex" => {
            let at = found(name, text, arguments)?;
            return at
                .map(Value::from)
                .ok_or_else(|| Error::failed("substring not found"));
        }
        "format" => return format::braces(host, text, arguments),
        "format_map" => {
            let values = positional(name, arguments, 1, 1)?;
            let Value::Dict(dict) = &values[0] else {
                return Err(Error::failed("format_map() is supported with a dict only"));
            };

            let named = dict.entries().iter();
            let named =
                named.filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value.clone())));
            let arguments = Arguments {
                positional: vec![],
                named: named.collect(),
            };
            return format::braces(host, text, arguments);
        }
        "join" => {
            let values = positional(name, arguments, 1, 1)?;
            let items: Vec<Value> = values[0].items()?.into();
            return joined(host, text, &items);
        }
        "strip" | "lstrip" | "rstrip" => return stripped(name, text, arguments).map(Value::from),
        "maketrans" => return maketrans(arguments),
        "partition" | "rpartition" => return partition(name, text, arguments),
        "removeprefix" | "removesuffix" => {
            let values = positional(name, arguments, 1, 1)?;
            let affix = need_str(name, &values[0])?;
            let rest = match name {
                "removeprefix" => text.strip_prefix(affix),
                _ => text.strip_suffix(affix),
            };
            return Ok(rest.unwrap_or(text).into());
        }
        "replace" => return replace(host, text, arguments),
        "split" | "rsplit" => return split(name, text, arguments),
        "splitlines" => {
            let [keep] = arguments.bind(name, ["keepends"])?;
            let ends = if keep.is_some_and(|keep| keep.truth()) {
                Ends::Kept
            } else {
                Ends::Removed
            };
            let lines = text::lines(text, ends).into_iter().map(Value::from);
            return Ok(lines.collect::<Vec<_>>().into());
        }
        "translate" => return translate(text, arguments),
        "zfill" => {
            let values = positional(name, arguments, 1, 1)?;
            let width = usize::try_from(need_int(name, &values[0])?.max(0)).unwrap_or(usize::MAX);
            host.pay_text(width)?;
            let sign = text.strip_prefix(['+', '-']).map_or("", |_| &text[..1]);
            let zeros = width.saturating_sub(text.chars().count());
            return Ok(format!("{sign}{}{}", "0".repeat(zeros), &text[sign.len()..]).into());
        }
        _ => {}
    }

    positional(name, arguments, 0, 0)?;
    Ok(match name {
        "capitalize" => text::capitalize(text).into(),
        "casefold" => text::casefold(text).into(),
        "lower" => text.to_lowercase().into(),
        "upper" => text.to_uppercase().into(),
        "title" => text::title(text).into(),
        "swapcase" => text::swapcase(text).into(),
        "isalnum" => all(text::is_alphanumeric).into(),
        "isalpha" => all(text::is_letter).into(),
        "isascii" => text.is_ascii().into(),
        "isdecimal" => all(text::is_decimal).into(),
        "isdigit" => all(text::is_digit).into(),
        "isnumeric" => all(text::is_numeric).into(),
        "isspace" => all(is_space).into(),
        "isprintable" => text.chars().all(text::is_printable).into(),
        "isidentifier" => {
            let mut chars = text.chars();
            let starts = chars.next().is_some_and(text::is_identifier_start);
            (starts && chars.all(text::is_identifier_part)).into()
        }
        "islower" => {
            let upper = |c: char| c.is_uppercase() || text::is_title(c);
            (text.chars().any(char::is_lowercase) && !text.chars().any(upper)).into()
        }
        "isupper" => {
            let lower = |c: char| c.is_lowercase() || text::is_title(c);
            (text.chars().any(char::is_uppercase) && !text.chars().any(lower)).into()
        }
        "istitle" => is_title(text).into(),
        _ => {
            return Err(Error::failed(format!(
                "the method `{name}` of a str is not supported"
            )));
        }
    })
}

/// `istitle`: returns true if each word has one capital, at its start.
fn is_title(text: &str) -> bool {
    let mut any = false;
    let mut in_word = false;
    for c in text.chars() {
        let capital = c.is_uppercase() || text::is_title(c);
        if capital && in_word || c.is_lowercase() && !in_word {
            return false;
        }
        in_word = text::is_cased(c);
        any |= in_word;
    }

    any
}

/// Calls a method of a dictionary.
fn dict_method(dict: &Rc<Dict>, name: &str, arguments: Arguments) -> Run<Value> {
    if name == "get" {
        let values = positional(name, arguments, 1, 2)?;
        values[0].check_key()?;
        let default = || values.get(1).cloned().unwrap_or(Value::None);
        return Ok(dict.get(&values[0]).cloned().unwrap_or_else(default));
    }

    positional(name, arguments, 0, 0)?;
    let view = |view| Ok(Value::View(Rc::clone(dict), view));
    match name {
        "keys" => view(View::Keys),
        "values" => view(View::Values),
        "items" => view(View::Items),
        _ => Ok(Value::Dict(Rc::new((**dict).clone()))),
    }
}

/// Calls a method of a list or tuple.
fn list(object: &Value, items: &[Value], name: &str, arguments: Arguments) -> Run<Value> {
    match name {
        "count" => {
            let values = positional(name, arguments, 1, 1)?;
            let mut count = 0usize;
            for item in items {
                count += usize::from(value::equal(item, &values[0], 0)?);
            }
            Ok(count.into())
        }
        "index" => {
            let values = positional(name, arguments, 1, 3)?;
            let len = items.len() as i128;
            let bound = |value: Option<&Value>, default: i128| match value {
                None => Ok(default),
                Some(value) => {
                    let at = need_int(name, value)?;
                    Ok(if at < 0 {
                        (at + len).max(0)
                    } else {
                        at.min(len)
                    })
                }
            };
            let start = bound(values.get(1), 0)?;
            let end = bound(values.get(2), len)?;
            for at in start..end {
                if value::equal(&items[at as usize], &values[0], 0)? {
                    return Ok(Value::Int(at));
                }
            }

            Err(Error::failed(format!(
                "{} is not in list",
                values[0].repr()?
            )))
        }
        _ => {
            positional(name, arguments, 0, 0)?;
            Ok(object.clone())
        }
    }
}

/// Calls a method of a number.
fn number(object: &Value, name: &str, arguments: Arguments) -> Run<Value> {
    positional(name, arguments, 0, 0)?;
    let bits = || object.as_int().unwrap_or(0).unsigned_abs();
    Ok(match name {
        "conjugate" => match object {
            Value::Float(number) => Value::Float(*number),
            _ => Value::Int(object.as_int().unwrap_or(0)),
        },
        "is_integer" => match object {
            Value::Float(number) => number.fract().eq(&0.0).into(),
            _ => true.into(),
        },
        "bit_length" => ((128 - bits().leading_zeros()) as usize).into(),
        "bit_count" => (bits().count_ones() as usize).into(),
        _ => Value::tuple(vec![
            Value::Int(object.as_int().unwrap_or(0)),
            Value::Int(1),
        ]),
    })
}
