//! The variables of each scope, as `jinja2/idtracking.py` finds them.
//!
//! Jinja decides where a variable is when it compiles a template. A name that a scope assigns before it reads it, and that
//! no scope around has, is a variable of that scope from its beginning on: undefined until it is assigned, even where the
//! caller passes a variable of that name. Loops and other scopes inside read it as undefined until then, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::syntax::{Body, CallArguments, Expr, ExprKind, Frame, MacroDef, Stmt, StmtKind, Target};

/// The first use of a name in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstUse {
    /// An assignment, and no scope around has the name.
    Assigned,
    /// Anything else: the name begins with the value that it has outside.
    Read,
}

/// The names of a scope.
#[derive(Clone, Default)]
struct Symbols<'p> {
    parent: Option<&'p Symbols<'p>>,
    uses: BTreeMap<String, FirstUse>,
    stores: BTreeSet<String>,
}

/// Finds the variables of all scopes, and returns those of the top level that begin as undefined.
pub(super) fn resolve(body: &mut Body) -> Vec<String> {
    let mut symbols = Symbols::default();
    body.iter()
        .for_each(|statement| symbols.statement(statement));
    inner(body, &symbols);
    symbols.hidden()
}

impl<'p> Symbols<'p> {
    fn within(parent: &'p Symbols<'p>) -> Symbols<'p> {
        Symbols {
            parent: Some(parent),
            ..Symbols::default()
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.uses.contains_key(name) || self.parent.is_some_and(|parent| parent.knows(name))
    }

    fn read(&mut self, name: &str) {
        if !self.knows(name) {
            self.uses.insert(name.to_owned(), FirstUse::Read);
        }
    }

    fn assign(&mut self, name: &str) {
        self.stores.insert(name.to_owned());
        if !self.uses.contains_key(name) {
            let first = if self.knows(name) {
                FirstUse::Read
            } else {
                FirstUse::Assigned
            };
            self.uses.insert(name.to_owned(), first);
        }
    }

    fn parameter(&mut self, name: &str) {
        self.stores.insert(name.to_owned());
        self.uses.insert(name.to_owned(), FirstUse::Read);
    }

    fn hidden(&self) -> Vec<String> {
        let hidden = self
            .uses
            .iter()
            .filter(|(_, first)| **first == FirstUse::Assigned);
        hidden.map(|(name, _)| name.clone()).collect()
    }

    fn target(&mut self, target: &Target, define: fn(&mut Symbols<'p>, &str)) {
        match target {
            Target::Name(name) => define(self, name),
            Target::Attribute(name, _) => self.read(name),
            Target::Tuple(targets) => targets
                .iter()
                .for_each(|target| self.target(target, define)),
        }
    }

    /// Visits a statement, but not the scopes in it.
    fn statement(&mut self, statement: &Stmt) {
        match &statement.kind {
            StmtKind::Print(values) => values.iter().for_each(|value| self.expr(value)),
            StmtKind::For(def) => self.expr(&def.iter),
            StmtKind::If {
                branches,
                otherwise,
            } => self.condition(branches, otherwise),
            StmtKind::Set(target, value) => {
                self.expr(value);
                self.target(target, Symbols::assign);
            }
            StmtKind::SetBlock { target, .. } => self.target(target, Symbols::assign),
            StmtKind::With { bindings, .. } => {
                bindings.iter().for_each(|(_, value)| self.expr(value))
            }
            StmtKind::Macro(def) => self.assign(def.name.as_deref().unwrap_or_default()),
            StmtKind::CallBlock { call, .. } => self.expr(call),
            StmtKind::FilterBlock { filter, .. } => self.expr(filter),
            StmtKind::Data(_)
            | StmtKind::Generation(_)
            | StmtKind::Block(_)
            | StmtKind::Scoped(_)
            | StmtKind::Break
            | StmtKind::Continue => {}
        }
    }

    /// Visits the branches of a condition. A name that only some of them assign begins with its value from outside.
    fn condition(&mut self, branches: &[(Expr, Body)], otherwise: &Body) {
        let Some(((test, body), rest)) = branches.split_first() else {
            return;
        };
        self.expr(test);
        let visited = |statements: &Body| {
            let mut branch = self.clone();
            statements
                .iter()
                .for_each(|statement| branch.statement(statement));
            branch
        };
        let first = visited(body);
        let last = visited(otherwise);
        let mut middle = self.clone();
        for branch in rest {
            middle.condition(std::slice::from_ref(branch), &vec![]);
        }
        let branches = [first, middle, last];
        let mut stores: BTreeSet<String> = branches
            .iter()
            .flat_map(|branch| branch.stores.clone())
            .collect();
        stores.retain(|name| !self.stores.contains(name));
        for branch in branches {
            self.uses.extend(branch.uses);
            self.stores.extend(branch.stores);
        }
        self.uses
            .extend(stores.into_iter().map(|name| (name, FirstUse::Read)));
    }

    fn arguments(&mut self, arguments: &CallArguments) {
        arguments
            .positional
            .iter()
            .for_each(|value| self.expr(value));
        arguments
            .named
            .iter()
            .for_each(|(_, value)| self.expr(value));
        let more = [&arguments.list, &arguments.dict];
        more.into_iter()
            .flatten()
            .for_each(|value| self.expr(value));
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(_) => {}
            ExprKind::Name(name) => self.read(name),
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Concat(items) => {
                items.iter().for_each(|item| self.expr(item));
            }
            ExprKind::Dict(entries) => {
                for (key, value) in entries {
                    self.expr(key);
                    self.expr(value);
                }
            }
            ExprKind::Attribute(value, _)
            | ExprKind::Not(value)
            | ExprKind::Negative(value)
            | ExprKind::Positive(value) => self.expr(value),
            ExprKind::Item(left, right)
            | ExprKind::And(left, right)
            | ExprKind::Or(left, right)
            | ExprKind::Binary(_, left, right) => {
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Slice(start, stop, step) => {
                let bounds = [start, stop, step];
                bounds
                    .into_iter()
                    .flatten()
                    .for_each(|bound| self.expr(bound));
            }
            ExprKind::Call(function, arguments) => {
                self.expr(function);
                self.arguments(arguments);
            }
            ExprKind::Filter(value, _, arguments) => {
                value.iter().for_each(|value| self.expr(value));
                self.arguments(arguments);
            }
            ExprKind::Test(value, _, arguments) => {
                self.expr(value);
                self.arguments(arguments);
            }
            ExprKind::Compare(first, rest) => {
                self.expr(first);
                rest.iter().for_each(|(_, value)| self.expr(value));
            }
            ExprKind::Conditional {
                test,
                then,
                otherwise,
            } => {
                self.expr(test);
                self.expr(then);
                otherwise.iter().for_each(|value| self.expr(value));
            }
        }
    }
}

/// Finds the variables of a scope, after those that it begins with, and of the scopes in it.
fn frame(frame: &mut Frame, mut symbols: Symbols<'_>) {
    frame
        .body
        .iter()
        .for_each(|statement| symbols.statement(statement));
    inner(&mut frame.body, &symbols);
    frame.hidden = symbols.hidden();
}

fn function(def: &mut Arc<MacroDef>, symbols: &Symbols<'_>) {
    // The parser has not shared it yet.
    let Some(def) = Arc::get_mut(def) else { return };
    let mut own = Symbols::within(symbols);
    def.parameters.iter().for_each(|name| own.parameter(name));
    def.defaults.iter().for_each(|value| own.expr(value));
    frame(&mut def.frame, own);
}

/// Finds the variables of the scopes in a body.
fn inner(body: &mut Body, symbols: &Symbols<'_>) {
    for statement in body {
        match &mut statement.kind {
            StmtKind::For(def) => {
                let Some(def) = Arc::get_mut(def) else {
                    continue;
                };
                let mut own = Symbols::within(symbols);
                own.parameter("loop");
                own.target(&def.target, Symbols::parameter);
                frame(&mut def.frame, own);
                frame(&mut def.otherwise, Symbols::within(symbols));
            }
            StmtKind::If {
                branches,
                otherwise,
            } => {
                branches
                    .iter_mut()
                    .for_each(|(_, body)| inner(body, symbols));
                inner(otherwise, symbols);
            }
            StmtKind::SetBlock { frame: own, .. } | StmtKind::FilterBlock { frame: own, .. } => {
                frame(own, Symbols::within(symbols));
            }
            StmtKind::With {
                bindings,
                frame: own,
            } => {
                let mut names = Symbols::within(symbols);
                bindings
                    .iter()
                    .for_each(|(target, _)| names.target(target, Symbols::parameter));
                frame(own, names);
            }
            StmtKind::Macro(def)
            | StmtKind::Generation(def)
            | StmtKind::CallBlock { body: def, .. } => {
                function(def, symbols);
            }
            StmtKind::Block(own) => frame(own, Symbols::default()),
            StmtKind::Scoped(own) => frame(own, Symbols::within(symbols)),
            StmtKind::Data(_)
            | StmtKind::Print(_)
            | StmtKind::Set(..)
            | StmtKind::Break
            | StmtKind::Continue => {}
        }
    }
}
