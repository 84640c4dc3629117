//! Filters: `value | name(arguments)`, as `jinja2/filters.py` has them without automatic escaping.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::chat::jinja::builtins::names::UNSUPPORTED_FILTERS;
use crate::chat::jinja::builtins::test_functions;
use crate::chat::jinja::error::Error;
use crate::chat::jinja::parse::syntax::Operator;
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::format;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::json;
use crate::chat::jinja::python::methods;
use crate::chat::jinja::python::operators;
use crate::chat::jinja::python::text;
use crate::chat::jinja::python::value::{self, Dict, Value, View};

type Run<T> = Result<T, Error>;

/// Applies a filter.
///
/// # Errors
/// Returns an error if there is no filter of this name, if it is not supported, or if Jinja2 would
/// raise an exception.
pub(crate) fn apply(
    host: &mut dyn Host,
    name: &str,
    value: Value,
    arguments: Arguments,
) -> Run<Value> {
    host.pay(1)?;
    if let Some(len) = value.len() {
        host.pay(len / 16)?;
    }

    let what = format!("the filter `{name}`");

    // These take the arguments of other filters and tests, so their own cannot be bound to names.
    match name {
        "map" => return map(host, &value, arguments),
        "select" | "reject" | "selectattr" | "rejectattr" => {
            return select(host, name, &value, arguments);
        }
        "tojson" => return json::tojson(host, &value, arguments),
        "format" => return printf(host, &value, arguments),
        _ => {}
    }

    match name {
        "abs" => {
            let [] = arguments.bind(&what, [])?;
            match &value {
                Value::Float(number) => Ok(Value::Float(number.abs())),
                Value::Undefined(reason) => Err(Error::undefined(reason)),
                _ => match value.as_int().and_then(i128::checked_abs) {
                    Some(number) => Ok(Value::Int(number)),
                    None => Err(Error::failed(format!(
                        "bad operand type for abs(): '{}'",
                        value.type_name()
                    ))),
                },
            }
        }
        "attr" => {
            let [attribute] = arguments.bind(&what, ["name"])?;
            let Some(attribute) = attribute.as_ref().and_then(Value::as_str) else {
                return Err(Error::failed("the filter `attr` needs a name"));
            };

            let own = match &value {
                Value::Undefined(reason) => return Err(Error::undefined(reason)),
                Value::Loop(state) => host.loop_attribute(state, attribute)?,
                _ => methods::attribute(&value, attribute)?,
            };
            let missing = || format!("a {} has no attribute `{attribute}`", value.type_name());
            Ok(own.unwrap_or_else(|| Value::undefined(missing())))
        }
        "batch" => {
            let [count, fill] = arguments.bind(&what, ["linecount", "fill_with"])?;
            let items = Vec::from(value.items()?);
            batch(&items, need_int(&what, count.as_ref())?, fill)
        }
        "slice" => {
            let [count, fill] = arguments.bind(&what, ["slices", "fill_with"])?;
            slice(
                host,
                &Vec::from(value.items()?),
                need_int(&what, count.as_ref())?,
                fill,
            )
        }
        "capitalize" => {
            let [] = arguments.bind(&what, [])?;
            Ok(text::capitalize(&soft(host, &what, &value)?).into())
        }
        "lower" | "upper" | "title" => {
            let [] = arguments.bind(&what, [])?;
            let text = soft(host, &what, &value)?;
            Ok(match name {
                "lower" => text.to_lowercase().into(),
                "upper" => text.to_uppercase().into(),
                _ => title(&text).into(),
            })
        }
        "center" => {
            let [width] = arguments.bind(&what, ["width"])?;
            let text = soft(host, &what, &value)?;
            let positional = vec![width.unwrap_or(Value::Int(80))];
            let arguments = Arguments {
                positional,
                named: vec![],
            };
            methods::call(host, &Value::String(text), "center", arguments)
        }
        "trim" => {
            let [chars] = arguments.bind(&what, ["chars"])?;
            let text = soft(host, &what, &value)?;
            let arguments = Arguments {
                positional: chars.into_iter().collect(),
                named: vec![],
            };
            methods::call(host, &Value::String(text), "strip", arguments)
        }
        "replace" => {
            let [old, new, count] = arguments.bind(&what, ["old", "new", "count"])?;
            let (Some(old), Some(new)) = (old, new) else {
                return Err(Error::failed(format!("{what} needs two strings")));
            };

            let count = match count {
                None | Some(Value::None) => -1,
                count => need_int(&what, count.as_ref())?,
            };
            let text = soft(host, &what, &value)?;
            let old = soft(host, &what, &old)?;
            let new = soft(host, &what, &new)?;
            methods::replaced(host, &text, &old, &new, count)
        }
        "count" | "length" => {
            let [] = arguments.bind(&what, [])?;
            match (&value, value.len()) {
                (Value::Loop(state), _) => {
                    let state = Rc::clone(state);
                    Ok(host
                        .loop_attribute(&state, "length")?
                        .unwrap_or(Value::None))
                }
                (_, Some(len)) => Ok(len.into()),
                (_, None) => Err(Error::failed(format!(
                    "object of type '{}' has no len()",
                    value.type_name()
                ))),
            }
        }
        "d" | "default" => {
            let [default, boolean] = arguments.bind(&what, ["default_value", "boolean"])?;
            let boolean = boolean.is_some_and(|boolean| boolean.truth());
            let missing = value.is_undefined() || boolean && !value.truth();
            Ok(if missing {
                default.unwrap_or_else(|| "".into())
            } else {
                value
            })
        }
        "dictsort" => dictsort(&what, &value, arguments),
        "e" | "escape" | "forceescape" | "safe" => {
            let [] = arguments.bind(&what, [])?;
            let text = host.text(&value)?;
            let kept = name == "safe" || name != "forceescape" && matches!(value, Value::Markup(_));
            Ok(Value::Markup(if kept {
                text
            } else {
                text::html_escaped(&text).into()
            }))
        }
        "filesizeformat" => {
            let [binary] = arguments.bind(&what, ["binary"])?;
            let bytes = match value.as_str() {
                Some(text) => format::parse_float(text)?,
                None => value.as_float(),
            };
            let Some(bytes) = bytes else {
                return Err(Error::failed(format!("{what} needs a number")));
            };

            let units = if binary.is_some_and(|binary| binary.truth()) {
                SizeUnits::Binary
            } else {
                SizeUnits::Decimal
            };
            Ok(file_size(bytes, units).into())
        }
        "first" => {
            let [] = arguments.bind(&what, [])?;
            let first = value.queue()?.borrow_mut().pop_front();
            Ok(first.unwrap_or_else(|| Value::undefined("No first item, sequence was empty.")))
        }
        "last" => {
            let [] = arguments.bind(&what, [])?;
            if matches!(value, Value::Iter(_)) {
                return Err(Error::failed("'generator' object is not reversible"));
            }
            let last = value.items()?.pop_back();
            Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
        "float" => {
            let [default] = arguments.bind(&what, ["default"])?;
            let default = default.unwrap_or(Value::Float(0.0));
            match &value {
                Value::Undefined(reason) => Err(Error::undefined(reason)),
                Value::String(text) | Value::Markup(text) => {
                    Ok(format::parse_float(text)?.map_or(default, Value::Float))
                }
                _ => Ok(value.as_float().map_or(default, Value::Float)),
            }
        }
        "int" => {
            let [default, base] = arguments.bind(&what, ["default", "base"])?;
            let base = base.map_or(Ok(10), |base| need_int(&what, Some(&base)))?;
            int(&value, default.unwrap_or(Value::Int(0)), base)
        }
        "groupby" => groupby(host, &what, &value, arguments),
        "indent" => {
            let [width, first, blank] = arguments.bind(&what, ["width", "first", "blank"])?;
            let truth = |value: Option<Value>| value.is_some_and(|value| value.truth());
            let also = Indented {
                first: truth(first),
                blank: truth(blank),
            };
            indent(host, &value, width.unwrap_or(Value::Int(4)), &also)
        }
        "items" => {
            let [] = arguments.bind(&what, [])?;
            match &value {
                Value::Undefined(_) => Ok(Value::generator([])),
                Value::Dict(dict) => Ok(Value::generator(
                    Value::View(Rc::clone(dict), View::Items).items()?,
                )),
                _ => Err(Error::failed("Can only get item pairs from a mapping.")),
            }
        }
        "join" => {
            let [separator, attribute] = arguments.bind(&what, ["d", "attribute"])?;
            let separator = match separator {
                Some(separator) => host.text(&separator)?,
                None => "".into(),
            };
            let mut texts = vec![];
            for item in mapped(host, &value, attribute.as_ref())? {
                texts.push(Value::String(host.text(&item)?));
            }

            methods::joined(host, &separator, &texts)
        }
        "list" => {
            let [] = arguments.bind(&what, [])?;
            Ok(Vec::from(value.items()?).into())
        }
        "max" | "min" => {
            let [case_sensitive, attribute] =
                arguments.bind(&what, ["case_sensitive", "attribute"])?;
            let keyed = keyed(host, &value, attribute.as_ref(), case_sensitive.as_ref())?;
            let (sign, wanted) = if name == "max" {
                (">", Ordering::Greater)
            } else {
                ("<", Ordering::Less)
            };
            let mut best: Option<(Value, Value)> = None;
            for (key, item) in keyed {
                let better = match &best {
                    None => true,
                    Some((other, _)) => value::compare(&key, other, sign, 0)? == Some(wanted),
                };
                if better {
                    best = Some((key, item));
                }
            }

            let none = || Value::undefined("No aggregated item, sequence was empty.");
            Ok(best.map_or_else(none, |(_, item)| item))
        }
        "reverse" => {
            let [] = arguments.bind(&what, [])?;
            match &value {
                Value::String(text) => Ok(text.chars().rev().collect::<String>().into()),
                Value::Markup(text) => {
                    Ok(Value::Markup(text.chars().rev().collect::<String>().into()))
                }
                Value::Iter(_) => Ok(value.items()?.into_iter().rev().collect::<Vec<_>>().into()),
                _ => Ok(Value::generator(value.items()?.into_iter().rev())),
            }
        }
        "round" => {
            let [precision, method] = arguments.bind(&what, ["precision", "method"])?;
            let precision =
                precision.map_or(Ok(0), |precision| need_int(&what, Some(&precision)))?;
            let method = match &method {
                None => "common",
                Some(method) => method.as_str().unwrap_or(""),
            };
            round(&value, precision, method)
        }
        "sort" => {
            let names = ["reverse", "case_sensitive", "attribute"];
            let [reverse, case_sensitive, attribute] = arguments.bind(&what, names)?;
            let mut sorted = vec![];
            for item in value.items()? {
                let key = sort_key(host, &item, attribute.as_ref(), case_sensitive.as_ref())?;
                sorted.push((key, item));
            }

            sort(&mut sorted, Order::from_reverse(reverse.as_ref()))?;
            Ok(sorted
                .into_iter()
                .map(|(_, item)| item)
                .collect::<Vec<_>>()
                .into())
        }
        "string" => {
            let [] = arguments.bind(&what, [])?;
            Ok(match value {
                Value::Markup(text) => Value::Markup(text),
                value => Value::String(host.text(&value)?),
            })
        }
        "sum" => {
            let [attribute, start] = arguments.bind(&what, ["attribute", "start"])?;
            let attribute = attribute.filter(|attribute| !matches!(attribute, Value::None));
            let items = mapped(host, &value, attribute.as_ref())?;
            sum(host, items, start.unwrap_or(Value::Int(0)))
        }
        "truncate" => {
            let names = ["length", "killwords", "end", "leeway"];
            truncate(&what, &value, arguments.bind(&what, names)?)
        }
        "unique" => {
            let [case_sensitive, attribute] =
                arguments.bind(&what, ["case_sensitive", "attribute"])?;
            let mut seen = Dict::default();
            let mut items = vec![];
            for (key, item) in keyed(host, &value, attribute.as_ref(), case_sensitive.as_ref())? {
                key.check_key()?;
                host.pay(seen.len() / 16)?;
                if seen.get(&key).is_none() {
                    seen.insert(key, Value::None);
                    items.push(item);
                }
            }

            Ok(Value::generator(items))
        }
        "urlencode" => {
            let [] = arguments.bind(&what, [])?;
            url_encode(host, &value)
        }
        "wordcount" => {
            let [] = arguments.bind(&what, [])?;
            let text = soft(host, &what, &value)?;
            let is_word = |c: char| c == '_' || text::is_alphanumeric(c);
            Ok(text
                .split(|c| !is_word(c))
                .filter(|word| !word.is_empty())
                .count()
                .into())
        }
        _ if UNSUPPORTED_FILTERS.contains(&name) => {
            Err(Error::failed(format!("{what} is not supported")))
        }
        _ => Err(Error::failed(format!("no filter is named `{name}`"))),
    }
}

/// Jinja's `soft_str`: the text of a value. Python's methods of an escaped string would escape
/// their arguments.
fn soft(host: &mut dyn Host, what: &str, value: &Value) -> Run<std::sync::Arc<str>> {
    match value {
        Value::Markup(_) => Err(Error::failed(format!(
            "{what} of an escaped string is not supported"
        ))),
        _ => host.text(value),
    }
}

/// Returns a whole number, or an error that names the filter.
fn need_int(what: &str, value: Option<&Value>) -> Run<i128> {
    match value {
        Some(value) => value.as_int().ok_or_else(|| {
            Error::failed(format!(
                "{what} needs a whole number, not a {}",
                value.type_name()
            ))
        }),
        None => Err(Error::failed(format!("{what} needs a whole number"))),
    }
}

/// Returns the value at a path such as `a.b.0`.
fn path(host: &mut dyn Host, item: &Value, path: &Value, default: Option<&Value>) -> Run<Value> {
    let mut item = item.clone();
    let parts: Vec<Value> = match path.as_str() {
        Some(path) => path
            .split('.')
            .map(|part| match part.parse::<i128>() {
                Ok(index) if part.chars().all(|c| c.is_ascii_digit()) => Value::Int(index),
                _ => part.into(),
            })
            .collect(),
        None => vec![path.clone()],
    };
    for part in &parts {
        item = host.item(&item, part)?;
        if let Some(default) = default
            && item.is_undefined()
        {
            item = default.clone();
        }
    }

    Ok(item)
}

/// Returns the items, or an attribute of each.
fn mapped(host: &mut dyn Host, value: &Value, attribute: Option<&Value>) -> Run<Vec<Value>> {
    let items = value.items()?;
    match attribute {
        None | Some(Value::None) => Ok(items.into()),
        Some(attribute) => items
            .iter()
            .map(|item| path(host, item, attribute, None))
            .collect(),
    }
}

/// Returns a string in lower case unless case matters, as Jinja's `ignore_case` does.
fn folded(value: Value, case_sensitive: Option<&Value>) -> Value {
    match &value {
        Value::String(text) | Value::Markup(text) if !case_sensitive.is_some_and(Value::truth) => {
            text.to_lowercase().into()
        }
        _ => value,
    }
}

/// Returns each item with its key.
fn keyed(
    host: &mut dyn Host,
    value: &Value,
    attribute: Option<&Value>,
    case_sensitive: Option<&Value>,
) -> Run<Vec<(Value, Value)>> {
    let mut keyed = vec![];
    for item in value.items()? {
        let key = match attribute {
            None | Some(Value::None) => item.clone(),
            Some(attribute) => path(host, &item, attribute, None)?,
        };
        keyed.push((folded(key, case_sensitive), item));
    }
    Ok(keyed)
}

/// Returns the key of an item for `sort`, which takes several attributes with commas between them.
fn sort_key(
    host: &mut dyn Host,
    item: &Value,
    attribute: Option<&Value>,
    case_sensitive: Option<&Value>,
) -> Run<Value> {
    let keys = match attribute {
        None | Some(Value::None) => vec![item.clone()],
        Some(attribute) => match attribute.as_str() {
            Some(attributes) => attributes
                .split(',')
                .map(|attribute| path(host, item, &attribute.into(), None))
                .collect::<Run<_>>()?,
            None => vec![path(host, item, attribute, None)?],
        },
    };
    let keys = keys.into_iter().map(|key| folded(key, case_sensitive));
    Ok(keys.collect::<Vec<_>>().into())
}

/// Sorts by the first of each pair. Equal items keep their order, even if the order is reversed.
fn sort(items: &mut [(Value, Value)], order: Order) -> Run<()> {
    // Reversing before and after the stable sort keeps equal items in their order.
    if order == Order::Descending {
        items.reverse();
    }
    value::sort(items, |(key, _)| key.clone())?;
    if order == Order::Descending {
        items.reverse();
    }
    Ok(())
}

/// The order of sorted items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

impl Order {
    /// Returns the order for the argument `reverse`.
    fn from_reverse(reverse: Option<&Value>) -> Order {
        if reverse.is_some_and(Value::truth) {
            Order::Descending
        } else {
            Order::Ascending
        }
    }
}

/// `map`: applies a filter to each item, or takes an attribute of each.
fn map(host: &mut dyn Host, value: &Value, arguments: Arguments) -> Run<Value> {
    // Jinja reads an undefined value and other false ones as no items.
    if !value.truth() {
        return Ok(Value::generator([]));
    }

    let items = value.items()?;
    let mut results = vec![];
    let Arguments {
        mut positional,
        mut named,
    } = arguments;
    if positional.is_empty() {
        let mut take = |name: &str| {
            let at = named.iter().position(|(known, _)| known == name)?;
            Some(named.remove(at).1)
        };
        let Some(attribute) = take("attribute") else {
            return Err(Error::failed("map requires a filter argument"));
        };

        let default = take("default").filter(|default| !matches!(default, Value::None));
        if let Some((unknown, _)) = named.first() {
            return Err(Error::failed(format!(
                "Unexpected keyword argument '{unknown}'"
            )));
        }

        for item in &items {
            results.push(match attribute {
                Value::None => item.clone(),
                _ => path(host, item, &attribute, default.as_ref())?,
            });
        }

        return Ok(Value::generator(results));
    }

    // The arguments after the name belong to the filter.
    let name = positional.remove(0);
    let Some(name) = name.as_str() else {
        return Err(Error::failed("map requires the name of a filter"));
    };

    for item in items {
        let arguments = Arguments {
            positional: positional.clone(),
            named: named.clone(),
        };
        results.push(apply(host, name, item, arguments)?);
    }

    Ok(Value::generator(results))
}

/// `select`, `reject`, `selectattr` and `rejectattr`: keeps the items that pass or fail a test.
fn select(host: &mut dyn Host, name: &str, value: &Value, arguments: Arguments) -> Run<Value> {
    let selects = name.starts_with("select");
    let by_attribute = name.ends_with("attr");
    let mut results = vec![];

    // Jinja reads an undefined value and other false ones as no items.
    if !value.truth() {
        return Ok(Value::generator(results));
    }

    let Arguments {
        mut positional,
        named,
    } = arguments;
    let attribute = match (by_attribute, positional.is_empty()) {
        (true, true) => return Err(Error::failed("Missing parameter for attribute name")),
        (true, false) => Some(positional.remove(0)),
        (false, _) => None,
    };
    let test = if positional.is_empty() {
        None
    } else {
        Some(positional.remove(0))
    };
    for item in value.items()? {
        host.pay(1)?;
        let tested = match &attribute {
            Some(Value::None) | None => item.clone(),
            Some(attribute) => path(host, &item, attribute, None)?,
        };
        let passes = match &test {
            None => tested.truth(),
            Some(test) => {
                let Some(test) = test.as_str() else {
                    return Err(Error::failed(format!("{name} needs the name of a test")));
                };
                let arguments = Arguments {
                    positional: positional.clone(),
                    named: named.clone(),
                };
                test_functions::apply(test, &tested, arguments)?
            }
        };
        if passes == selects {
            results.push(item);
        }
    }

    Ok(Value::generator(results))
}

/// `format`: fills in a printf-style text, from positional or from named values.
fn printf(host: &mut dyn Host, value: &Value, arguments: Arguments) -> Run<Value> {
    let text = soft(host, "the filter `format`", value)?;
    let values = match (arguments.positional.is_empty(), arguments.named.is_empty()) {
        (_, true) => Value::tuple(arguments.positional),
        (true, false) => {
            let entries = arguments
                .named
                .into_iter()
                .map(|(name, value)| (name.into(), value));
            Value::Dict(Rc::new(Dict::new(entries.collect())))
        }
        (false, false) => {
            return Err(Error::failed(
                "can't handle positional and keyword arguments at the same time",
            ));
        }
    };
    format::percent(host, &text, &values)
}

/// `batch`: divides items into rows of `count` items.
fn batch(items: &[Value], count: i128, fill: Option<Value>) -> Run<Value> {
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let Some(count) = usize::try_from(count)
        .ok()
        .filter(|count| (1..1 << 20).contains(count))
    else {
        return Err(Error::failed(
            "the filter `batch` needs a number from 1 to 2^20",
        ));
    };

    let rows = items.chunks(count).map(|row| {
        let mut row = row.to_vec();
        if let Some(fill) = &fill {
            row.resize(count, fill.clone());
        }
        Value::from(row)
    });
    Ok(Value::generator(rows))
}

/// `slice`: divides items into `count` columns. The first columns are longer by one if necessary,
/// and the others are filled up.
fn slice(host: &mut dyn Host, items: &[Value], count: i128, fill: Option<Value>) -> Run<Value> {
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        return Err(Error::failed("the filter `slice` needs a number from 1 on"));
    };

    host.pay(count)?;
    let per_slice = items.len() / count;
    let longer = items.len() % count;
    let mut start = 0;
    let slices = (0..count).map(|number| {
        let len = per_slice + usize::from(number < longer);
        let mut slice = items[start..start + len].to_vec();
        start += len;
        slice.extend(fill.clone().filter(|_| number >= longer));
        Value::from(slice)
    });
    Ok(Value::generator(slices.collect::<Vec<_>>()))
}

/// `title`: a capital letter at the start of each word. Unlike Python's method, an apostrophe does
/// not start a word.
fn title(text: &str) -> String {
    let is_boundary = |c: char| text::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let boundary = is_boundary(first);
        let len = rest
            .find(|c| is_boundary(c) != boundary)
            .unwrap_or(rest.len());
        out.extend(first.to_uppercase());
        out += &rest[first.len_utf8()..len].to_lowercase();
        rest = &rest[len..];
    }

    out
}

/// `dictsort`: returns the entries of a dictionary in the order of their keys or values.
fn dictsort(what: &str, value: &Value, arguments: Arguments) -> Run<Value> {
    let [case_sensitive, by, reverse] =
        arguments.bind(what, ["case_sensitive", "by", "reverse"])?;
    let by = match by.as_ref().map(|by| by.as_str()) {
        None | Some(Some("key")) => 0,
        Some(Some("value")) => 1,
        Some(_) => {
            return Err(Error::failed(
                "You can only sort by either \"key\" or \"value\"",
            ));
        }
    };
    let dict = match value {
        Value::Dict(dict) => dict,
        Value::Undefined(reason) => return Err(Error::undefined(reason)),
        _ => {
            return Err(Error::failed(format!(
                "{what} needs a dict, not a {}",
                value.type_name()
            )));
        }
    };
    let mut sorted = vec![];
    for (key, value) in dict.entries() {
        let sort_by = if by == 0 { key } else { value };
        let pair = Value::tuple(vec![key.clone(), value.clone()]);
        sorted.push((folded(sort_by.clone(), case_sensitive.as_ref()), pair));
    }

    sort(&mut sorted, Order::from_reverse(reverse.as_ref()))?;
    Ok(sorted
        .into_iter()
        .map(|(_, pair)| pair)
        .collect::<Vec<_>>()
        .into())
}

/// `groupby`: sorts items by an attribute and returns a group for each value of it.
fn groupby(host: &mut dyn Host, what: &str, value: &Value, arguments: Arguments) -> Run<Value> {
    let [attribute, default, case_sensitive] =
        arguments.bind(what, ["attribute", "default", "case_sensitive"])?;
    let Some(attribute) = attribute else {
        return Err(Error::failed(format!("{what} needs an attribute")));
    };

    let default = default.filter(|default| !matches!(default, Value::None));
    let mut sorted = vec![];
    for item in value.items()? {
        let key = match attribute {
            Value::None => item.clone(),
            _ => path(host, &item, &attribute, default.as_ref())?,
        };
        // Keys are compared in lower case, but the group keeps the key of its first item as it is.
        let folded = folded(key.clone(), case_sensitive.as_ref());
        sorted.push((folded, Value::tuple(vec![key, item])));
    }

    sort(&mut sorted, Order::Ascending)?;
    let mut groups: Vec<(Value, Value, Vec<Value>)> = vec![];
    for (folded, pair) in sorted {
        let pair = Vec::from(pair.items()?);
        let [key, item] = &pair[..] else { continue };
        match groups.last_mut() {
            Some((last, _, items)) if value::equal(last, &folded, 0)? => items.push(item.clone()),
            _ => groups.push((folded, key.clone(), vec![item.clone()])),
        }
    }

    let group = |(_, key, items): (Value, Value, Vec<Value>)| {
        Value::Group(Rc::new(vec![key, items.into()]))
    };
    Ok(groups.into_iter().map(group).collect::<Vec<_>>().into())
}

/// The units of a size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SizeUnits {
    /// Powers of 1000.
    Decimal,
    /// Powers of 1024.
    Binary,
}

/// `filesizeformat`: returns a size with its unit.
fn file_size(bytes: f64, units: SizeUnits) -> String {
    let (base, letters, suffix): (f64, _, _) = match units {
        SizeUnits::Decimal => (1000.0, "kMGTPEZY", "B"),
        SizeUnits::Binary => (1024.0, "KMGTPEZY", "iB"),
    };
    if bytes == 1.0 {
        return "1 Byte".to_owned();
    }
    if bytes < base {
        return format!("{} Bytes", bytes.trunc() as i128);
    }

    let mut shown = String::new();
    for (i, letter) in letters.chars().enumerate() {
        // As in Jinja, the unit is the next larger one, and a size beyond the last unit keeps it.
        let unit = base.powi(i as i32 + 2);
        shown = format!("{:.1} {letter}{suffix}", base * bytes / unit);
        if bytes < unit {
            break;
        }
    }

    shown
}

/// `int`: converts a value to a whole number, or returns the default.
fn int(value: &Value, default: Value, base: i128) -> Run<Value> {
    let whole = |number: f64| format::whole(number).map(Value::Int);
    match value {
        Value::Undefined(reason) => Err(Error::undefined(reason)),
        Value::String(text) | Value::Markup(text) => {
            if let Some(number) = format::parse_int(text, base)? {
                return Ok(Value::Int(number));
            }
            match format::parse_float(text)? {
                Some(number) if number.is_finite() => whole(number),
                _ => Ok(default),
            }
        }
        Value::Float(number) if number.is_nan() => Ok(default),
        Value::Float(number) => whole(*number),
        _ => Ok(value.as_int().map_or(default, Value::Int)),
    }
}

/// The lines that `indent` changes, in addition to all lines with text after the first.
struct Indented {
    first: bool,
    blank: bool,
}

/// `indent`: puts `width` spaces, or a text, in front of lines.
fn indent(host: &mut dyn Host, value: &Value, width: Value, also: &Indented) -> Run<Value> {
    let text = match value {
        Value::String(text) => text,
        Value::Undefined(reason) => return Err(Error::undefined(reason)),
        _ => {
            let kind = value.type_name();
            return Err(Error::failed(format!(
                "the filter `indent` needs a string, not a {kind}"
            )));
        }
    };
    let indention = match width.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let width = need_int("the filter `indent`", Some(&width))?.clamp(0, 1 << 30) as usize;
            host.pay_text(width)?;
            " ".repeat(width)
        }
    };

    // Jinja adds a line break before it splits, so that an empty last line counts.
    let text = format!("{text}\n");
    let lines = text::lines(&text, text::Ends::Removed);
    host.pay_text(text.len() + lines.len().saturating_mul(indention.len()))?;
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }

        let indented = if i == 0 {
            also.first
        } else {
            also.blank || !line.is_empty()
        };
        if indented {
            out += &indention;
        }

        out += line;
    }

    Ok(out.into())
}

/// `round`: rounds to a number of decimal places with one of Jinja's methods.
fn round(value: &Value, precision: i128, method: &str) -> Run<Value> {
    if let Value::Undefined(reason) = value {
        return Err(Error::undefined(reason));
    }

    let precision = i32::try_from(precision.clamp(-400, 400)).unwrap_or(0);
    let Some(number) = value.as_float() else {
        let kind = value.type_name();
        return Err(Error::failed(format!(
            "the filter `round` needs a number, not a {kind}"
        )));
    };

    match method {
        "common" => match value.as_int() {
            Some(whole) if precision >= 0 => Ok(Value::Int(whole)),
            Some(whole) => {
                let Some(unit) = 10i128.checked_pow(precision.unsigned_abs()) else {
                    return Ok(Value::Int(0));
                };
                let lower = whole.div_euclid(unit);
                let rest = whole.rem_euclid(unit);
                // Python rounds half to even.
                let up = rest * 2 > unit || rest * 2 == unit && lower % 2 != 0;
                Ok(Value::Int((lower + i128::from(up)) * unit))
            }
            None if precision < 0 => Err(Error::failed(
                "round with a negative precision is supported for whole numbers only",
            )),
            None if !number.is_finite() => Ok(Value::Float(number)),
            None => {
                let digits = precision as usize;
                let rounded = format!("{number:.digits$}").parse().unwrap_or(number);
                Ok(Value::Float(rounded))
            }
        },
        "ceil" | "floor" => {
            let scale = 10f64.powi(precision);
            let scaled = number * scale;
            if !scaled.is_finite() {
                return Err(Error::failed("cannot round a number that is not finite"));
            }

            let whole = if method == "ceil" {
                scaled.ceil()
            } else {
                scaled.floor()
            };

            // Python divides a whole number, which has no negative zero.
            Ok(Value::Float((whole + 0.0) / scale))
        }
        _ => Err(Error::failed("method must be common, ceil or floor")),
    }
}

/// `sum`: adds items as Python's `sum` does.
///
/// Since Python 3.12 it compensates rounding errors of floats with Neumaier's algorithm
/// ("Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974).
/// Results must match to the last digit, because a template may print them.
fn sum(host: &mut dyn Host, items: Vec<Value>, start: Value) -> Run<Value> {
    if start.as_str().is_some() {
        return Err(Error::failed("sum() can't sum strings"));
    }

    let mut total = start;
    let mut lost = 0.0;
    for item in items {
        if let (Value::Float(_), Some(b)) | (Value::Int(_) | Value::Bool(_), Some(b)) =
            (&total, item.as_float())
            && (matches!(total, Value::Float(_)) || matches!(item, Value::Float(_)))
        {
            let a = total.as_float().unwrap_or(0.0);
            let sum = a + b;
            // The digits of the smaller number that the sum has lost.
            lost += if a.abs() >= b.abs() {
                (a - sum) + b
            } else {
                (b - sum) + a
            };
            total = Value::Float(sum);
        } else {
            total = operators::binary(host, Operator::Add, &total, &item)?;
        }
    }

    match total {
        Value::Float(sum) if lost != 0.0 && (sum + lost).is_finite() => {
            Ok(Value::Float(sum + lost))
        }
        total => Ok(total),
    }
}

/// `truncate`: shortens a text, by default at the end of a word.
fn truncate(
    what: &str,
    value: &Value,
    [length, kill_words, end, leeway]: [Option<Value>; 4],
) -> Run<Value> {
    let text = match value {
        Value::String(text) => text,
        Value::Undefined(_) => return Ok(value.clone()),
        _ => {
            return Err(Error::failed(format!(
                "{what} needs a string, not a {}",
                value.type_name()
            )));
        }
    };
    let number = |value: Option<Value>, default: i128| match value {
        None | Some(Value::None) => Ok(default),
        value => need_int(what, value.as_ref()),
    };
    let length = number(length, 255)?;
    let leeway = number(leeway, 5)?;
    let end = end.unwrap_or_else(|| "...".into());
    let Some(end) = end.as_str() else {
        return Err(Error::failed(format!("{what} needs a string as its end")));
    };

    let end_length = end.chars().count() as i128;
    if length < end_length || leeway < 0 {
        return Err(Error::failed(format!(
            "expected length >= {end_length} and leeway >= 0"
        )));
    }

    // A text that is only slightly too long stays as it is.
    if text.chars().count() as i128 <= length + leeway {
        return Ok(value.clone());
    }

    let kept: String = text.chars().take((length - end_length) as usize).collect();
    if kill_words.is_some_and(|kill| kill.truth()) {
        return Ok(format!("{kept}{end}").into());
    }

    let whole_words = kept.rsplit_once(' ').map_or(&*kept, |(before, _)| before);
    Ok(format!("{whole_words}{end}").into())
}

/// The part of a URL that a text is quoted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    Query,
}

/// Quotes a text as Python's `quote` and `quote_plus` do.
fn url_quoted(text: &str, part: UrlPart) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(byte.into())
            }
            b'/' if part == UrlPart::Path => out.push('/'),
            b' ' if part == UrlPart::Query => out.push('+'),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// `urlencode`: quotes a text, or makes a query of pairs.
fn url_encode(host: &mut dyn Host, value: &Value) -> Run<Value> {
    let pairs = match value {
        Value::Dict(dict) => Value::View(Rc::clone(dict), View::Items).items()?,
        Value::List(_) | Value::Tuple(_) | Value::Iter(_) | Value::View(..) => value.items()?,
        _ => {
            let text = host.text(value)?;
            host.pay_text(text.len() * 3)?;
            return Ok(url_quoted(&text, UrlPart::Path).into());
        }
    };
    let mut parts = vec![];
    for pair in pairs {
        let pair = Vec::from(pair.items()?);
        let [key, value] = &pair[..] else {
            return Err(Error::failed("urlencode needs pairs of a name and a value"));
        };
        let key = host.text(key)?;
        let value = host.text(value)?;
        let [key, value] = [key, value].map(|text| url_quoted(&text, UrlPart::Query));
        parts.push(format!("{key}={value}"));
    }

    Ok(parts.join("&").into())
}
