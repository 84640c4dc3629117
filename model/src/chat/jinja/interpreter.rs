//! Renders a syntax tree.
//!
//! Scopes follow `jinja2/compiler.py`: loops, macros, call blocks, `with`, `filter` and captured
//! blocks have their own variables, and conditions do not. A macro keeps the scope that it was
//! defined in and sees later changes there, as Python's closures do. Only a namespace carries an
//! assignment out of a scope.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::chat::jinja::builtins::filters;
use crate::chat::jinja::builtins::globals;
use crate::chat::jinja::builtins::test_functions;
use crate::chat::jinja::error::Error;
use crate::chat::jinja::limits::{DEEPEST_RUN, LONGEST};
use crate::chat::jinja::parse::syntax::{
    Body, CallArguments, Const, Expr, ExprKind, ForLoop, Frame, Stmt, StmtKind, Target,
};
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::methods;
use crate::chat::jinja::python::operators;
use crate::chat::jinja::python::strftime::Date;
use crate::chat::jinja::python::value::{self, Closure, Dict, Loop, Scope, Value};

/// The characters around a reply while it is rendered: noncharacters of Unicode, which no text has.
pub(super) const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

type Run<T> = Result<T, Error>;

/// The way in which a body ended.
enum Flow {
    Normal,
    Break,
    Continue,
}

/// The treatment of `{% generation %}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replies {
    /// Replies are between [`MARKS`] in the text.
    Marked,
    /// Replies are plain text.
    Unmarked,
}

/// A run of a template.
pub(super) struct Interpreter {
    root: Rc<Scope>,
    /// The texts that are being written: the whole text first, then the texts of macros and
    /// captured blocks inside it.
    texts: Vec<String>,
    /// The cost that is left before the run is canceled.
    fuel: u64,
    /// The nesting depth of statements, expressions and calls.
    depth: usize,
    date: Option<Date>,
    replies: Replies,
    /// True if a reply was written into a captured text.
    pub(super) captured_reply: bool,
    /// Scopes and namespaces that can be part of a reference cycle, to be emptied at the end.
    scopes: Vec<Rc<Scope>>,
    namespaces: Vec<Rc<RefCell<Dict>>>,
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        // A macro owns its scope and the scope owns the macro, so reference counts alone would leak
        // both.
        for scope in &self.scopes {
            scope.variables.borrow_mut().clear();
        }
        for namespace in &self.namespaces {
            *namespace.borrow_mut() = Dict::default();
        }
    }
}

impl Interpreter {
    /// Prepares a run with these variables.
    pub(super) fn new(
        variables: Vec<(String, Value)>,
        date: Option<Date>,
        replies: Replies,
        fuel: u64,
    ) -> Interpreter {
        let globals = Scope::new(None);
        *globals.variables.borrow_mut() = variables;
        let root = Scope::new(Some(globals));
        Interpreter {
            root,
            texts: vec![],
            fuel,
            depth: 0,
            date,
            replies,
            captured_reply: false,
            scopes: vec![],
            namespaces: vec![],
        }
    }

    /// Returns the text of the template.
    pub(super) fn run(&mut self, frame: &Frame) -> Run<String> {
        let root = Rc::clone(&self.root);
        self.scopes.push(Rc::clone(&root));
        self.captured(|interpreter| interpreter.frame(frame, &root).map(drop))
    }

    /// Runs a step one level deeper, or returns an error beyond the limit of the stack.
    fn deeper<T>(&mut self, run: impl FnOnce(&mut Interpreter) -> Run<T>) -> Run<T> {
        self.depth += 1;
        if self.depth > DEEPEST_RUN {
            return Err(Error::failed("macros or loops call themselves too deeply"));
        }
        let result = run(self);
        self.depth -= 1;
        result
    }

    /// Returns the text that `run` writes.
    fn captured(&mut self, run: impl FnOnce(&mut Interpreter) -> Run<()>) -> Run<String> {
        self.texts.push(String::new());
        let result = run(self);
        let text = self.texts.pop().unwrap_or_default();
        result.map(|()| text)
    }

    /// Returns the text of a frame, and how it ended.
    fn captured_flow(&mut self, frame: &Frame, scope: &Rc<Scope>) -> Run<(String, Flow)> {
        let mut flow = Flow::Normal;
        let text = self.captured(|this| {
            flow = this.frame(frame, scope)?;
            Ok(())
        })?;
        Ok((text, flow))
    }

    /// Appends to the innermost text.
    fn write(&mut self, text: &str) -> Run<()> {
        self.pay(text.len() / 64)?;
        let Some(out) = self.texts.last_mut() else {
            return Ok(());
        };

        if out.len() + text.len() > LONGEST {
            return Err(Error::failed(format!(
                "a text is longer than {} MiB",
                LONGEST >> 20
            )));
        }

        out.push_str(text);
        Ok(())
    }

    // Statements

    /// Runs statements until one of them leaves the body.
    fn body(&mut self, body: &Body, scope: &Rc<Scope>) -> Run<Flow> {
        for statement in body {
            match self
                .statement(statement, scope)
                .map_err(|error| error.at(statement.line))?
            {
                Flow::Normal => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Normal)
    }

    /// Runs a body in a scope that belongs to it.
    fn frame(&mut self, frame: &Frame, scope: &Rc<Scope>) -> Run<Flow> {
        for name in &frame.hidden {
            scope.set(name, Value::undefined(format!("`{name}` is undefined")));
        }
        self.body(&frame.body, scope)
    }

    /// Runs a statement.
    fn statement(&mut self, statement: &Stmt, scope: &Rc<Scope>) -> Run<Flow> {
        self.pay(1)?;
        self.deeper(|interpreter| interpreter.execute(&statement.kind, scope))
    }

    /// Runs a statement without counting its cost.
    fn execute(&mut self, statement: &StmtKind, scope: &Rc<Scope>) -> Run<Flow> {
        match statement {
            StmtKind::Data(text) => self.write(text)?,
            StmtKind::Print(values) => {
                for value in values {
                    let value = self.eval(value, scope)?;
                    let text = self.text(&value)?;
                    self.write(&text)?;
                }
            }
            StmtKind::For(def) => {
                let value = self.eval(&def.iter, scope)?;
                self.for_loop(def, &value, scope, 0)?;
            }
            StmtKind::If {
                branches,
                otherwise,
            } => {
                for (test, body) in branches {
                    if self.eval(test, scope)?.truth() {
                        return self.body(body, scope);
                    }
                }
                return self.body(otherwise, scope);
            }
            StmtKind::Set(target, value) => {
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            StmtKind::SetBlock {
                target,
                filter,
                frame,
            } => {
                let inner = Scope::new(Some(Rc::clone(scope)));
                let (text, flow) = self.captured_flow(frame, &inner)?;
                // A loop that is left within the block drops its text.
                let Flow::Normal = flow else { return Ok(flow) };
                let mut value = Value::from(text);
                if let Some(filter) = filter {
                    value = self.filter(filter, value, &inner)?;
                }
                self.assign(target, value, scope)?;
            }
            StmtKind::With { bindings, frame } => {
                // The values see only variables from outside.
                let mut values = vec![];
                for (_, value) in bindings {
                    values.push(self.eval(value, scope)?);
                }

                let inner = Scope::new(Some(Rc::clone(scope)));
                for ((target, _), value) in bindings.iter().zip(values) {
                    self.assign(target, value, &inner)?;
                }

                return self.frame(frame, &inner);
            }
            StmtKind::Macro(def) => {
                let closure = Closure {
                    def: Arc::clone(def),
                    scope: Rc::clone(scope),
                };
                scope.set(
                    def.name.as_deref().unwrap_or_default(),
                    Value::Macro(Rc::new(closure)),
                );
                // The scope and the macro now own each other.
                self.scopes.push(Rc::clone(scope));
            }
            StmtKind::CallBlock { body, call } => {
                let caller = Closure {
                    def: Arc::clone(body),
                    scope: Rc::clone(scope),
                };
                let ExprKind::Call(function, arguments) = &call.kind else {
                    return Err(Error::failed("{% call %} needs a call of a macro"));
                };

                let function = self.eval(function, scope)?;
                let mut arguments = self.arguments(arguments, scope)?;
                arguments
                    .named
                    .push(("caller".to_owned(), Value::Macro(Rc::new(caller))));
                let value = self
                    .call(&function, arguments)
                    .map_err(|error| error.at(call.line))?;
                self.write_string(&value)?;
            }
            StmtKind::FilterBlock { filter, frame } => {
                let inner = Scope::new(Some(Rc::clone(scope)));
                let (text, flow) = self.captured_flow(frame, &inner)?;
                let Flow::Normal = flow else { return Ok(flow) };
                let value = self.filter(filter, text.into(), &inner)?;
                self.write_string(&value)?;
            }
            StmtKind::Generation(def) => {
                let body = Closure {
                    def: Arc::clone(def),
                    scope: Rc::clone(scope),
                };

                // Filters or assignments may change a captured text, so its marks would be
                // unreliable.
                self.captured_reply |= self.texts.len() > 1;
                if self.replies == Replies::Marked {
                    self.write(MARKS[0].encode_utf8(&mut [0; 4]))?;
                }

                let reply = self.call_macro(&body, Arguments::default())?;
                self.write_string(&reply)?;
                if self.replies == Replies::Marked {
                    self.write(MARKS[1].encode_utf8(&mut [0; 4]))?;
                }
            }
            StmtKind::Block(frame) => {
                let inner = Scope::new(Some(Rc::clone(&self.root)));
                self.frame(frame, &inner)?;
            }
            StmtKind::Scoped(frame) => {
                let inner = Scope::new(Some(Rc::clone(scope)));
                return self.frame(frame, &inner);
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    /// Writes the result of a call or filter block, which has to be a string.
    fn write_string(&mut self, value: &Value) -> Run<()> {
        match value.as_str() {
            Some(text) => self.write(text),
            None => Err(Error::failed(format!(
                "the block makes a {}, not a string",
                value.type_name()
            ))),
        }
    }

    /// Assigns a value to a target.
    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Run<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => match self.name(name, scope) {
                Value::Namespace(namespace) => {
                    namespace
                        .borrow_mut()
                        .insert(attribute.as_str().into(), value);
                }
                Value::Undefined(reason) => return Err(Error::undefined(&reason)),
                other => {
                    let kind = other.type_name();
                    return Err(Error::failed(format!(
                        "only attributes of a namespace can be assigned to, and `{name}` is a {kind}"
                    )));
                }
            },
            Target::Tuple(targets) => {
                let items = value.items()?;
                if items.len() != targets.len() {
                    let [expected, found] = [targets.len(), items.len()];
                    return Err(Error::failed(format!(
                        "expected {expected} values to unpack, found {found}"
                    )));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
        }
        Ok(())
    }

    // Loops

    /// Runs a loop. `depth0` is its recursion depth, from 0.
    fn for_loop(
        &mut self,
        def: &Arc<ForLoop>,
        value: &Value,
        scope: &Rc<Scope>,
        depth0: i128,
    ) -> Run<()> {
        let state = Rc::new(RefCell::new(Loop {
            queue: value.queue()?,
            def: Arc::clone(def),
            scope: Rc::clone(scope),
            tested: def.test.is_none(),
            length: if def.test.is_none() {
                value.len()
            } else {
                None
            },
            index0: -1,
            depth0,
            after: None,
            before: None,
            current: None,
            changed: None,
        }));
        self.pay(state.borrow().queue.borrow().len() / 64)?;
        let mut completed = false;
        while let Some(item) = self.next_item(&state)? {
            {
                let mut state = state.borrow_mut();
                state.index0 += 1;
                state.before = state.current.replace(item.clone());
            }

            self.pay(1)?;
            let inner = Scope::new(Some(Rc::clone(scope)));
            inner.set("loop", Value::Loop(Rc::clone(&state)));
            self.assign(&def.target, item, &inner)?;
            match self.frame(&def.frame, &inner)? {
                Flow::Normal => completed = true,
                // Jinja runs `else` unless an iteration reached its end.
                Flow::Continue => {}
                Flow::Break => break,
            }
        }

        if !completed && !def.otherwise.body.is_empty() {
            let inner = Scope::new(Some(Rc::clone(scope)));
            self.frame(&def.otherwise, &inner)?;
        }

        Ok(())
    }

    /// Takes the next item of a loop that passes its test.
    fn next_item(&mut self, state: &Rc<RefCell<Loop>>) -> Run<Option<Value>> {
        if let Some(item) = state.borrow_mut().after.take() {
            return Ok(Some(item));
        }
        loop {
            let item = state.borrow().queue.borrow_mut().pop_front();
            let Some(item) = item else { return Ok(None) };
            if state.borrow().tested {
                return Ok(Some(item));
            }

            let def = Arc::clone(&state.borrow().def);
            let scope = Scope::new(Some(Rc::clone(&state.borrow().scope)));
            self.pay(1)?;
            self.assign(&def.target, item.clone(), &scope)?;
            match &def.test {
                Some(test) if !self.eval(test, &scope)?.truth() => {}
                _ => return Ok(Some(item)),
            }
        }
    }

    /// Returns the item after the current one, which is read early.
    fn peek(&mut self, state: &Rc<RefCell<Loop>>) -> Run<Option<Value>> {
        let item = self.next_item(state)?;
        state.borrow_mut().after = item.clone();
        Ok(item)
    }

    /// Returns the number of items of a loop. Items that have to pass a test are read for it.
    fn loop_length(&mut self, state: &Rc<RefCell<Loop>>) -> Run<i128> {
        if let Some(length) = state.borrow().length {
            return Ok(length as i128);
        }

        let after = state.borrow_mut().after.take();
        let mut rest = VecDeque::new();
        while let Some(item) = self.next_item(state)? {
            rest.push_back(item);
        }

        let mut state = state.borrow_mut();
        let length = rest.len() + (state.index0 + 1) as usize + usize::from(after.is_some());
        state.after = after;
        state.queue = Rc::new(RefCell::new(rest));
        state.tested = true;
        state.length = Some(length);
        Ok(length as i128)
    }

    /// Calls `loop.cycle` or `loop.changed`.
    fn loop_method(
        &mut self,
        state: &Rc<RefCell<Loop>>,
        name: &str,
        arguments: Arguments,
    ) -> Run<Value> {
        if let Some((unknown, _)) = arguments.named.first() {
            return Err(Error::failed(format!(
                "loop.{name} has no argument named `{unknown}`"
            )));
        }

        let values = arguments.positional;
        let mut state = state.borrow_mut();
        if name == "cycle" {
            if values.is_empty() {
                return Err(Error::failed("no items for cycling given"));
            }
            let at = state.index0.rem_euclid(values.len() as i128) as usize;
            return Ok(values[at].clone());
        }

        let same = match &state.changed {
            Some(last) if last.len() == values.len() => {
                let mut pairs = last.iter().zip(&values);
                pairs.try_fold(true, |same, (a, b)| Ok(same && value::equal(a, b, 0)?))?
            }
            _ => false,
        };
        state.changed = Some(values);
        Ok(Value::Bool(!same))
    }

    // Expressions

    /// Returns the value of a variable, or an undefined value.
    fn name(&mut self, name: &str, scope: &Rc<Scope>) -> Value {
        match scope.get(name).or_else(|| globals::global(name, self.date)) {
            Some(value) => value,
            None => Value::undefined(format!("`{name}` is undefined")),
        }
    }

    /// Evaluates an expression.
    fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Run<Value> {
        self.pay(1)?;
        let result = self.deeper(|interpreter| interpreter.evaluate(&expr.kind, scope));
        result.map_err(|error| error.at(expr.line))
    }

    /// Evaluates expressions in their order.
    fn all(&mut self, items: &[Expr], scope: &Rc<Scope>) -> Run<Vec<Value>> {
        items.iter().map(|item| self.eval(item, scope)).collect()
    }

    /// Evaluates an expression without counting its cost.
    fn evaluate(&mut self, expr: &ExprKind, scope: &Rc<Scope>) -> Run<Value> {
        match expr {
            ExprKind::Const(value) => Ok(match value {
                Const::None => Value::None,
                Const::Bool(value) => Value::Bool(*value),
                Const::Int(number) => Value::Int(*number),
                Const::Float(number) => Value::Float(*number),
                Const::String(text) => Value::String(Arc::clone(text)),
            }),
            ExprKind::Name(name) => match &**name {
                "self" | "super" if scope.get(name).is_none() => Err(Error::failed(format!(
                    "`{name}` is not supported: there are no blocks to call"
                ))),
                _ => Ok(self.name(name, scope)),
            },
            ExprKind::List(items) => Ok(self.all(items, scope)?.into()),
            ExprKind::Tuple(items) => Ok(Value::tuple(self.all(items, scope)?)),
            ExprKind::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    let key = self.eval(key, scope)?;
                    key.check_key()?;
                    dict.insert(key, self.eval(value, scope)?);
                }
                Ok(Value::Dict(Rc::new(dict)))
            }
            ExprKind::Attribute(object, name) => {
                let object = self.eval(object, scope)?;
                self.attribute(&object, name)
            }
            ExprKind::Item(object, index) => {
                let object = self.eval(object, scope)?;
                if let ExprKind::Slice(start, stop, step) = &index.kind {
                    let mut bounds = [Value::None, Value::None, Value::None];
                    for (bound, expr) in bounds.iter_mut().zip([start, stop, step]) {
                        if let Some(expr) = expr {
                            *bound = self.eval(expr, scope)?;
                        }
                    }
                    return operators::slice(&object, &bounds);
                }

                let index = self.eval(index, scope)?;
                self.item(&object, &index)
            }
            ExprKind::Slice(..) => Err(Error::failed("several slices at once are not supported")),
            ExprKind::Call(function, arguments) => {
                let function = self.eval(function, scope)?;
                let arguments = self.arguments(arguments, scope)?;
                self.call(&function, arguments)
            }
            ExprKind::Filter(value, name, arguments) => {
                let Some(value) = value else {
                    return Err(Error::failed(format!("the filter `{name}` has no value")));
                };
                let value = self.eval(value, scope)?;
                let arguments = self.arguments(arguments, scope)?;
                filters::apply(self, name, value, arguments)
            }
            ExprKind::Test(value, name, arguments) => {
                let value = self.eval(value, scope)?;
                let arguments = self.arguments(arguments, scope)?;
                test_functions::apply(name, &value, arguments).map(Value::Bool)
            }
            ExprKind::Not(value) => Ok(Value::Bool(!self.eval(value, scope)?.truth())),
            ExprKind::Negative(value) => operators::negative(&self.eval(value, scope)?),
            ExprKind::Positive(value) => operators::positive(&self.eval(value, scope)?),
            ExprKind::And(left, right) => {
                let left = self.eval(left, scope)?;
                if left.truth() {
                    self.eval(right, scope)
                } else {
                    Ok(left)
                }
            }
            ExprKind::Or(left, right) => {
                let left = self.eval(left, scope)?;
                if left.truth() {
                    Ok(left)
                } else {
                    self.eval(right, scope)
                }
            }
            ExprKind::Binary(operator, left, right) => {
                let left = self.eval(left, scope)?;
                let right = self.eval(right, scope)?;
                operators::binary(self, *operator, &left, &right)
            }
            ExprKind::Concat(parts) => {
                let mut text = String::new();
                for part in parts {
                    let part = self.eval(part, scope)?;
                    text += &self.text(&part)?;
                    self.pay_text(text.len())?;
                }
                Ok(text.into())
            }
            ExprKind::Compare(first, rest) => {
                // As in Python, `a < b < c` evaluates `b` once, and `c` only if the first
                // comparison holds.
                let mut left = self.eval(first, scope)?;
                for (comparison, right) in rest {
                    let right = self.eval(right, scope)?;
                    if !operators::compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            ExprKind::Conditional {
                test,
                then,
                otherwise,
            } => {
                if self.eval(test, scope)?.truth() {
                    return self.eval(then, scope);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise, scope),
                    None => Ok(Value::undefined(
                        "the condition is false, and there is no `else`",
                    )),
                }
            }
        }
    }

    /// Evaluates the arguments of a call.
    fn arguments(&mut self, arguments: &CallArguments, scope: &Rc<Scope>) -> Run<Arguments> {
        let mut values = Arguments {
            positional: self.all(&arguments.positional, scope)?,
            named: vec![],
        };
        for (name, value) in &arguments.named {
            values.named.push((name.clone(), self.eval(value, scope)?));
        }
        if let Some(list) = &arguments.list {
            values.positional.extend(self.eval(list, scope)?.items()?);
        }

        if let Some(dict) = &arguments.dict {
            let dict = self.eval(dict, scope)?;
            let Value::Dict(dict) = &dict else {
                return Err(Error::failed(format!(
                    "`**` needs a dict, not a {}",
                    dict.type_name()
                )));
            };
            for (key, value) in dict.entries() {
                let Some(name) = key.as_str() else {
                    return Err(Error::failed("the keys of `**` must be strings"));
                };
                if values.named.iter().any(|(known, _)| known == name) {
                    return Err(Error::failed(format!(
                        "two values for the argument `{name}`"
                    )));
                }
                values.named.push((name.to_owned(), value.clone()));
            }
        }

        Ok(values)
    }

    /// Applies the filters in the head of a block to its text.
    fn filter(&mut self, filter: &Expr, value: Value, scope: &Rc<Scope>) -> Run<Value> {
        let ExprKind::Filter(inner, name, arguments) = &filter.kind else {
            return Err(Error::failed("expected a filter").at(filter.line));
        };
        let value = match inner {
            Some(inner) => self.filter(inner, value, scope)?,
            None => value,
        };
        let arguments = self.arguments(arguments, scope)?;
        filters::apply(self, name, value, arguments).map_err(|error| error.at(filter.line))
    }

    /// Returns the attribute that the Python object has, which is undefined if the sandbox hides
    /// it.
    fn own_attribute(&mut self, object: &Value, name: &str) -> Run<Option<Value>> {
        if let Value::Loop(state) = object
            && let Some(value) = self.loop_attribute(state, name)?
        {
            return Ok(Some(value));
        }
        methods::attribute(object, name)
    }

    /// Calls a value.
    fn call(&mut self, function: &Value, arguments: Arguments) -> Run<Value> {
        self.pay(1)?;
        match function {
            Value::Macro(closure) => {
                self.deeper(|interpreter| interpreter.call_macro(closure, arguments))
            }
            Value::Function(name) => globals::call(self, name, arguments),
            Value::Method(method) => match &**method {
                (Value::Loop(state), name) => self.loop_method(state, name, arguments),
                (object, name) => methods::call(self, object, name, arguments),
            },
            Value::Loop(state) => {
                let [iterable] = arguments.bind("loop", ["iterable"])?;
                let Some(iterable) = iterable else {
                    return Err(Error::failed("loop() needs the items to loop over"));
                };

                let def = Arc::clone(&state.borrow().def);
                let scope = Rc::clone(&state.borrow().scope);
                let depth = state.borrow().depth0 + 1;
                if !def.recursive {
                    return Err(Error::failed(
                        "only a loop with the marker `recursive` can be called",
                    ));
                }

                let run = |this: &mut Interpreter| this.for_loop(&def, &iterable, &scope, depth);
                self.deeper(|this| this.captured(run)).map(Value::from)
            }
            Value::Joiner(joiner) => {
                let [] = arguments.bind("joiner", [])?;
                let used = joiner.used.replace(true);
                Ok(if used {
                    joiner.separator.clone()
                } else {
                    "".into()
                })
            }
            Value::Undefined(reason) => Err(Error::undefined(reason)),
            _ => Err(Error::failed(format!(
                "'{}' object is not callable",
                function.type_name()
            ))),
        }
    }

    /// Binds arguments as `Macro.__call__` in `jinja2/runtime.py` does, and runs the body.
    fn call_macro(&mut self, closure: &Closure, arguments: Arguments) -> Run<Value> {
        let def = &closure.def;
        let name = def.name.as_deref().unwrap_or("caller");
        let scope = Scope::new(Some(Rc::clone(&closure.scope)));
        let Arguments {
            positional,
            mut named,
        } = arguments;
        let mut take = |parameter: &str| {
            let at = named.iter().position(|(name, _)| name == parameter)?;
            Some(named.remove(at).1)
        };

        // Defaults are evaluated last, so a parameter without an argument is undefined until then.
        let mut given = positional.into_iter();
        let mut missing = vec![];
        let mut caller_found = false;
        for (i, parameter) in def.parameters.iter().enumerate() {
            let value = given.next().or_else(|| take(parameter));
            caller_found |= parameter == "caller";
            if value.is_none() {
                missing.push(i);
            }
            let undefined =
                || Value::undefined(format!("parameter '{parameter}' was not provided"));
            scope.set(parameter, value.unwrap_or_else(undefined));
        }

        if def.uses.caller && !caller_found {
            let caller = take("caller").unwrap_or_else(|| Value::undefined("no caller defined"));
            scope.set("caller", caller);
        }

        if def.uses.kwargs {
            let entries = named.drain(..).map(|(name, value)| (name.into(), value));
            scope.set("kwargs", Value::Dict(Rc::new(Dict::new(entries.collect()))));
        } else if let Some((unknown, _)) = named.first() {
            return Err(Error::failed(format!(
                "macro '{name}' takes no keyword argument '{unknown}'"
            )));
        }

        let rest: Vec<Value> = given.collect();
        if def.uses.varargs {
            scope.set("varargs", Value::tuple(rest));
        } else if !rest.is_empty() {
            let most = def.parameters.len();
            return Err(Error::failed(format!(
                "macro '{name}' takes not more than {most} argument(s)"
            )));
        }

        // A default sees the parameters in front of it.
        let first_default = def.parameters.len() - def.defaults.len();
        for i in missing {
            if let Some(default) = i
                .checked_sub(first_default)
                .and_then(|at| def.defaults.get(at))
            {
                let value = self.eval(default, &scope)?;
                scope.set(&def.parameters[i], value);
            }
        }

        self.captured(|this| this.frame(&def.frame, &scope).map(drop))
            .map(Value::from)
    }
}

impl Host for Interpreter {
    fn pay(&mut self, amount: usize) -> Run<()> {
        match self.fuel.checked_sub(amount as u64) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(Error::failed(
                "the template takes too many steps or too much memory",
            )),
        }
    }

    fn loop_attribute(&mut self, state: &Rc<RefCell<Loop>>, name: &str) -> Run<Option<Value>> {
        let index0 = state.borrow().index0;
        Ok(Some(match name {
            "index0" => Value::Int(index0),
            "index" => Value::Int(index0 + 1),
            "first" => Value::Bool(index0 == 0),
            "last" => Value::Bool(self.peek(state)?.is_none()),
            "length" => Value::Int(self.loop_length(state)?),
            "revindex" => Value::Int(self.loop_length(state)? - index0),
            "revindex0" => Value::Int(self.loop_length(state)? - index0 - 1),
            "depth0" => Value::Int(state.borrow().depth0),
            "depth" => Value::Int(state.borrow().depth0 + 1),
            "previtem" => match state.borrow().before.clone() {
                Some(item) if index0 > 0 => item,
                _ => Value::undefined("there is no previous item"),
            },
            "nextitem" => match self.peek(state)? {
                Some(item) => item,
                None => Value::undefined("there is no next item"),
            },
            "cycle" | "changed" => {
                Value::Method(Rc::new((Value::Loop(Rc::clone(state)), name.to_owned())))
            }
            _ => return Ok(None),
        }))
    }

    fn attribute(&mut self, object: &Value, name: &str) -> Run<Value> {
        if let Some(value) = self.own_attribute(object, name)? {
            return Ok(value);
        }
        match object {
            Value::Undefined(reason) => Err(Error::undefined(reason)),
            Value::Dict(dict) if dict.get_str(name).is_some() => {
                Ok(dict.get_str(name).cloned().unwrap_or(Value::None))
            }
            _ => Ok(Value::undefined(format!(
                "a {} has no attribute `{name}`",
                object.type_name()
            ))),
        }
    }

    fn item(&mut self, object: &Value, index: &Value) -> Run<Value> {
        if let Value::Undefined(reason) = object {
            return Err(Error::undefined(reason));
        }
        if let Some(item) = operators::item(object, index) {
            return Ok(item);
        }

        if let Some(name) = index.as_str()
            && let Some(value) = self.own_attribute(object, name)?
        {
            return Ok(value);
        }

        Ok(Value::undefined(format!(
            "a {} has no item {}",
            object.type_name(),
            index.repr()?
        )))
    }

    fn date(&self) -> Option<Date> {
        self.date
    }

    fn keep(&mut self, namespace: &Rc<RefCell<Dict>>) {
        self.namespaces.push(Rc::clone(namespace));
    }
}
