//! Values of a template while it is rendered, with Python's equality, order, and texts.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::chat::jinja::error::Error;
use crate::chat::jinja::limits::{DEEPEST_VALUE, LONGEST};
use crate::chat::jinja::parse::syntax::{ForLoop, MacroDef};
use crate::chat::jinja::python::text;
use crate::chat::value::Value as Json;

/// A value of a template.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// The reason why there is no value.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    String(Arc<str>),
    /// A string that the filters `escape` and `safe` return.
    Markup(Arc<str>),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    /// A tuple of `grouper` and `list`, from the filter `groupby`.
    Group(Rc<Vec<Value>>),
    Dict(Rc<Dict>),
    View(Rc<Dict>, View),
    Range(Range),
    /// A generator, which can be read once.
    Iter(Rc<RefCell<VecDeque<Value>>>),
    Namespace(Rc<RefCell<Dict>>),
    Macro(Rc<Closure>),
    Loop(Rc<RefCell<Loop>>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    Function(&'static str),
    /// A method and its object.
    Method(Rc<(Value, String)>),
}

/// A view of a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Keys,
    Values,
    Items,
}

/// Python's `range`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: i128,
    pub(crate) stop: i128,
    pub(crate) step: i128,
}

/// Jinja's `cycler`.
#[derive(Debug)]
pub(crate) struct Cycler {
    pub(crate) items: Vec<Value>,
    pub(crate) at: RefCell<usize>,
}

/// Jinja's `joiner`.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(crate) separator: Value,
    pub(crate) used: RefCell<bool>,
}

/// The variables of a part of the template.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) variables: RefCell<Vec<(String, Value)>>,
    pub(crate) parent: Option<Rc<Scope>>,
}

/// A macro, or the body of a call block, with the scope that it was defined in.
#[derive(Debug)]
pub(crate) struct Closure {
    pub(crate) def: Arc<MacroDef>,
    pub(crate) scope: Rc<Scope>,
}

/// The variable `loop`.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) queue: Rc<RefCell<VecDeque<Value>>>,
    pub(crate) def: Arc<ForLoop>,
    /// The scope around the loop.
    pub(crate) scope: Rc<Scope>,
    /// False once the rest of the items has passed the test of the loop.
    pub(crate) tested: bool,
    pub(crate) length: Option<usize>,
    /// The index of the current item, or -1 before the first one.
    pub(crate) index0: i128,
    pub(crate) depth0: i128,
    /// The next item, if it was read early.
    pub(crate) after: Option<Value>,
    pub(crate) before: Option<Value>,
    pub(crate) current: Option<Value>,
    pub(crate) changed: Option<Vec<Value>>,
}

/// A dictionary in the order of insertion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
}

impl Closure {
    pub(crate) fn name(&self) -> Option<&str> {
        self.def.name.as_deref()
    }
}

impl Loop {
    /// Returns the number of items, if it is known without reading them.
    pub(crate) fn known_length(&self) -> Option<usize> {
        self.length
    }
}

impl Scope {
    pub(crate) fn new(parent: Option<Rc<Scope>>) -> Rc<Scope> {
        Rc::new(Scope {
            variables: RefCell::new(vec![]),
            parent,
        })
    }

    /// Returns the value of a variable in this scope or in the nearest one around it.
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            let variables = here.variables.borrow();
            if let Some((_, value)) = variables.iter().find(|(known, _)| known == name) {
                return Some(value.clone());
            }
            scope = here.parent.as_deref();
        }
        None
    }

    /// Assigns a variable of this scope.
    pub(crate) fn set(&self, name: &str, value: Value) {
        let mut variables = self.variables.borrow_mut();
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => variables.push((name.to_owned(), value)),
        }
    }
}

impl Range {
    pub(crate) fn len(&self) -> usize {
        let (low, high) = if self.step > 0 {
            (self.start, self.stop)
        } else {
            (self.stop, self.start)
        };
        let step = self.step.unsigned_abs();
        if high <= low {
            0
        } else {
            ((high - low) as u128).div_ceil(step) as usize
        }
    }

    pub(crate) fn items(&self) -> impl DoubleEndedIterator<Item = Value> + use<> {
        let Range { start, step, .. } = *self;
        (0..self.len()).map(move |i| Value::Int(start + i as i128 * step))
    }
}

impl Dict {
    pub(crate) fn new(entries: Vec<(Value, Value)>) -> Dict {
        Dict { entries }
    }

    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, key: &Value) -> Option<&Value> {
        self.entries
            .iter()
            .find(|(known, _)| same_key(known, key))
            .map(|(_, value)| value)
    }

    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        let is = |known: &Value| matches!(known, Value::String(text) | Value::Markup(text) if **text == *key);
        self.entries
            .iter()
            .find(|(known, _)| is(known))
            .map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: Value, value: Value) {
        match self
            .entries
            .iter_mut()
            .find(|(known, _)| same_key(known, &key))
        {
            Some((_, old)) => *old = value,
            None => self.entries.push((key, value)),
        }
    }
}

/// Returns true if two keys are equal. Keys are never nested deeply enough to fail.
fn same_key(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        _ => equal(a, b, 0).unwrap_or(false),
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::Int(value as i128)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }
}

impl Value {
    /// Returns an undefined value. The reason is for error messages.
    pub(crate) fn undefined(reason: impl Into<String>) -> Value {
        Value::Undefined(reason.into().into())
    }

    pub(crate) fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(Rc::new(items))
    }

    /// Returns a generator of items that were computed already.
    pub(crate) fn generator(items: impl IntoIterator<Item = Value>) -> Value {
        Value::Iter(Rc::new(RefCell::new(items.into_iter().collect())))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) | Value::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of an integer or a bool, because bools are integers in Python.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    /// Returns the name of the type in Python.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::String(_) => "str",
            Value::Markup(_) => "Markup",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Group(_) => "_GroupTuple",
            Value::Dict(_) => "dict",
            Value::View(_, View::Keys) => "dict_keys",
            Value::View(_, View::Values) => "dict_values",
            Value::View(_, View::Items) => "dict_items",
            Value::Range(_) => "range",
            Value::Iter(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Loop(_) => "LoopContext",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
            Value::Function(_) => "function",
            Value::Method(_) => "method",
        }
    }

    /// Returns the result of Python's `bool`.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::String(text) | Value::Markup(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => !items.is_empty(),
            Value::Dict(dict) | Value::View(dict, _) => dict.len() > 0,
            Value::Range(range) => range.len() > 0,
            Value::Iter(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Cycler(_)
            | Value::Joiner(_)
            | Value::Function(_)
            | Value::Method(_) => true,
        }
    }

    /// Returns the result of Python's `len`, or `None` if it raises an exception.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Value::Undefined(_) => Some(0),
            Value::String(text) | Value::Markup(text) => Some(text.chars().count()),
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => Some(items.len()),
            Value::Dict(dict) | Value::View(dict, _) => Some(dict.len()),
            Value::Range(range) => Some(range.len()),
            _ => None,
        }
    }

    /// Returns the items that a loop over the value reads. Those of a generator are taken from it.
    pub(crate) fn items(&self) -> Result<VecDeque<Value>, Error> {
        match self {
            Value::Undefined(_) => Ok(VecDeque::new()),
            Value::String(text) | Value::Markup(text) => {
                Ok(text.chars().map(|c| c.to_string().into()).collect())
            }
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                Ok(items.iter().cloned().collect())
            }
            Value::Dict(dict) | Value::View(dict, View::Keys) => {
                Ok(dict.entries().iter().map(|(key, _)| key.clone()).collect())
            }
            Value::View(dict, View::Values) => Ok(dict
                .entries()
                .iter()
                .map(|(_, value)| value.clone())
                .collect()),
            Value::View(dict, View::Items) => {
                let pair =
                    |(key, value): &(Value, Value)| Value::tuple(vec![key.clone(), value.clone()]);
                Ok(dict.entries().iter().map(pair).collect())
            }
            Value::Range(range) => Ok(range.items().collect()),
            Value::Iter(items) => Ok(std::mem::take(&mut *items.borrow_mut())),
            _ => Err(Error::failed(format!(
                "'{}' object is not iterable",
                self.type_name()
            ))),
        }
    }

    /// Returns a queue of the items. The queue of a generator is the generator's own, so that
    /// reading it uses it up.
    pub(crate) fn queue(&self) -> Result<Rc<RefCell<VecDeque<Value>>>, Error> {
        match self {
            Value::Iter(items) => Ok(Rc::clone(items)),
            _ => Ok(Rc::new(RefCell::new(self.items()?))),
        }
    }

    /// Returns an error if the value cannot be a key.
    pub(crate) fn check_key(&self) -> Result<(), Error> {
        match self {
            Value::List(_) | Value::Dict(_) | Value::View(_, View::Keys | View::Items) => Err(
                Error::failed(format!("unhashable type: '{}'", self.type_name())),
            ),
            Value::Tuple(items) | Value::Group(items) => {
                items.iter().try_for_each(Value::check_key)
            }
            _ => Ok(()),
        }
    }

    /// Returns the result of Python's `str`.
    pub(crate) fn text(&self) -> Result<Arc<str>, Error> {
        match self {
            Value::String(text) | Value::Markup(text) => Ok(Arc::clone(text)),
            Value::Undefined(_) => Ok("".into()),
            _ => Ok(self.repr()?.into()),
        }
    }

    /// Returns the result of Python's `repr`.
    pub(crate) fn repr(&self) -> Result<String, Error> {
        let mut out = String::new();
        self.write_repr(&mut out, 0)?;
        Ok(out)
    }

    /// Appends the result of Python's `repr`. `depth` is the number of values around this one.
    fn write_repr(&self, out: &mut String, depth: usize) -> Result<(), Error> {
        // The parts of a value may be shared, so the length of its text can be exponential in its
        // size.
        if depth > DEEPEST_VALUE {
            return Err(Error::failed(format!(
                "a value is nested more than {DEEPEST_VALUE} deep"
            )));
        }

        if out.len() > LONGEST {
            return Err(Error::failed("the text of a value is too long"));
        }

        match self {
            Value::Undefined(_) => out.push_str("Undefined"),
            Value::None => out.push_str("None"),
            Value::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::Float(number) => out.push_str(&text::float(*number)),
            Value::String(text) => out.push_str(&text::quoted(text)),
            Value::Markup(text) => {
                out.push_str(&format!("Markup({})", text::quoted(text)));
            }
            Value::List(items) => write_items(out, "[", items, "]", depth)?,
            Value::Tuple(items) | Value::Group(items) => {
                let close = if items.len() == 1 { ",)" } else { ")" };
                write_items(out, "(", items, close, depth)?;
            }
            Value::Dict(dict) => write_dict(out, dict, depth)?,
            Value::View(_, _) => {
                let items: Vec<Value> = self.items()?.into();
                out.push_str(self.type_name());
                write_items(out, "([", &items, "])", depth)?;
            }
            Value::Range(Range {
                start,
                stop,
                step: 1,
            }) => {
                out.push_str(&format!("range({start}, {stop})"));
            }
            Value::Range(Range { start, stop, step }) => {
                out.push_str(&format!("range({start}, {stop}, {step})"));
            }
            Value::Namespace(names) => {
                out.push_str("<Namespace ");
                write_dict(out, &names.borrow(), depth)?;
                out.push('>');
            }
            Value::Macro(closure) => match closure.name() {
                Some(name) => out.push_str(&format!("<Macro {}>", text::quoted(name))),
                None => out.push_str("<Macro anonymous>"),
            },
            Value::Loop(state) => {
                let state = state.borrow();
                let Some(length) = state.known_length() else {
                    return Err(Error::failed(
                        "the text of `loop` is not supported for a generator",
                    ));
                };
                out.push_str(&format!("<LoopContext {}/{length}>", state.index0 + 1));
            }
            Value::Iter(_)
            | Value::Cycler(_)
            | Value::Joiner(_)
            | Value::Function(_)
            | Value::Method(_) => {
                let kind = self.type_name();
                return Err(Error::failed(format!(
                    "a {kind} has no text of its own; if it is a generator, use the filter `list`"
                )));
            }
        }

        Ok(())
    }
}

/// Appends the texts of items between brackets.
fn write_items(
    out: &mut String,
    open: &str,
    items: &[Value],
    close: &str,
    depth: usize,
) -> Result<(), Error> {
    out.push_str(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        item.write_repr(out, depth + 1)?;
    }
    out.push_str(close);
    Ok(())
}

/// Appends the text of a dictionary.
fn write_dict(out: &mut String, dict: &Dict, depth: usize) -> Result<(), Error> {
    out.push('{');
    for (i, (key, value)) in dict.entries().iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        key.write_repr(out, depth + 1)?;
        out.push_str(": ");
        value.write_repr(out, depth + 1)?;
    }

    out.push('}');
    Ok(())
}

/// Compares an integer with a float exactly.
fn compare_int_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }

    // Floats from 2^127 on are greater than every integer here.
    if float >= 2f64.powi(127) {
        return Some(Ordering::Less);
    }
    if float < -(2f64.powi(127)) {
        return Some(Ordering::Greater);
    }

    let whole = float.trunc();
    match int.cmp(&(whole as i128)) {
        Ordering::Equal => 0.0.partial_cmp(&(float - whole)),
        order => Some(order),
    }
}

/// The order of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberOrder {
    Ordered(Ordering),
    /// One of the numbers is NaN.
    Unordered,
}

impl NumberOrder {
    fn ordering(self) -> Option<Ordering> {
        match self {
            NumberOrder::Ordered(order) => Some(order),
            NumberOrder::Unordered => None,
        }
    }
}

/// Compares numbers, or returns `None` if one of the values is not a number.
fn compare_numbers(a: &Value, b: &Value) -> Option<NumberOrder> {
    let order = match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Float(a), b) => compare_int_float(b.as_int()?, *a).map(Ordering::reverse),
        (a, Value::Float(b)) => compare_int_float(a.as_int()?, *b),
        (a, b) => Some(a.as_int()?.cmp(&b.as_int()?)),
    };
    Some(order.map_or(NumberOrder::Unordered, NumberOrder::Ordered))
}

/// Returns the result of Python's `==`.
pub(crate) fn equal(a: &Value, b: &Value, depth: usize) -> Result<bool, Error> {
    if depth > DEEPEST_VALUE {
        return Err(Error::failed(format!(
            "values are compared that are nested more than {DEEPEST_VALUE} deep"
        )));
    }

    if let Some(order) = compare_numbers(a, b) {
        return Ok(order == NumberOrder::Ordered(Ordering::Equal));
    }

    let all = |a: &[Value], b: &[Value]| {
        if a.len() != b.len() {
            return Ok(false);
        }
        for (a, b) in a.iter().zip(b) {
            if !equal(a, b, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => Ok(true),
        (Value::String(a) | Value::Markup(a), Value::String(b) | Value::Markup(b)) => Ok(a == b),
        (Value::List(a), Value::List(b)) => all(a, b),
        (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => all(a, b),
        (Value::Dict(a), Value::Dict(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.entries() {
                match b.get(key) {
                    Some(other) if equal(value, other, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::View(a, View::Keys), Value::View(b, View::Keys)) => {
            Ok(a.len() == b.len() && a.entries().iter().all(|(key, _)| b.get(key).is_some()))
        }
        (Value::View(_, View::Items), Value::View(_, View::Items)) => Err(Error::failed(
            "comparing the items of dictionaries is not supported",
        )),
        (Value::Range(a), Value::Range(b)) => {
            // Ranges are equal if their items are, so an empty one has no start and a short one no
            // step.
            let same_start = a.len() == 0 || a.start == b.start;
            Ok(a.len() == b.len() && same_start && (a.len() < 2 || a.step == b.step))
        }
        (Value::Iter(a), Value::Iter(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Namespace(a), Value::Namespace(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Macro(a), Value::Macro(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Loop(a), Value::Loop(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Cycler(a), Value::Cycler(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Joiner(a), Value::Joiner(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Function(a), Value::Function(b)) => Ok(a == b),
        (Value::Method(_), Value::Method(_)) => {
            Err(Error::failed("comparing methods is not supported"))
        }
        _ => Ok(false),
    }
}

/// Returns the order of two values as Python's comparisons see it, or `None` for NaN. `sign` is for
/// errors.
pub(crate) fn compare(
    a: &Value,
    b: &Value,
    sign: &str,
    depth: usize,
) -> Result<Option<Ordering>, Error> {
    if let Some(order) = compare_numbers(a, b) {
        return Ok(order.ordering());
    }
    if depth > DEEPEST_VALUE {
        return Err(Error::failed(format!(
            "values are compared that are nested more than {DEEPEST_VALUE} deep"
        )));
    }
    match (a, b) {
        (Value::String(a) | Value::Markup(a), Value::String(b) | Value::Markup(b)) => {
            Ok(Some(a.cmp(b)))
        }
        (Value::List(a), Value::List(b))
        | (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => {
            // The first items that differ decide. Items that are equal need not be ordered.
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, depth + 1)? {
                    return compare(a, b, sign, depth + 1);
                }
            }
            Ok(Some(a.len().cmp(&b.len())))
        }
        (Value::View(..), Value::View(..)) => Err(Error::failed(
            "comparing views of dictionaries is not supported",
        )),
        (Value::Undefined(reason), _) | (_, Value::Undefined(reason)) => {
            Err(Error::undefined(reason))
        }
        _ => Err(Error::failed(format!(
            "'{sign}' not supported between instances of '{}' and '{}'",
            a.type_name(),
            b.type_name()
        ))),
    }
}

/// Sorts items by a key as Python does: stably, and with an error for keys that cannot be compared.
pub(crate) fn sort<T>(items: &mut [T], key: impl Fn(&T) -> Value) -> Result<(), Error> {
    let mut problem = None;
    items.sort_by(|a, b| match compare(&key(a), &key(b), "<", 0) {
        Ok(order) => order.unwrap_or(Ordering::Equal),
        Err(error) => {
            problem.get_or_insert(error);
            Ordering::Equal
        }
    });
    problem.map_or(Ok(()), Err)
}

impl From<&Json> for Value {
    fn from(value: &Json) -> Value {
        match value {
            Json::Null => Value::None,
            Json::Bool(value) => Value::Bool(*value),
            Json::Int(number) => Value::Int(*number),
            Json::Float(number) => Value::Float(*number),
            Json::String(text) => text.as_str().into(),
            Json::Array(items) => items.iter().map(Value::from).collect::<Vec<_>>().into(),
            Json::Object(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    dict.insert(key.as_str().into(), value.into());
                }
                Value::Dict(Rc::new(dict))
            }
        }
    }
}
