//! The variables of each scope, as `jinja2/idtracking.py` finds them.
//!
//! Jinja decides where a variable is when it compiles a template. A name that a scope assigns
//! before it reads it, and that no scope around has, is a variable of that scope from its beginning
//! on: undefined until it is assigned, even where the caller passes a variable of that name. Loops
//! and other scopes inside read it as undefined until then, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::chat::jinja::parse::syntax::{
    Body, CallArguments, Expr, ExprKind, Frame, MacroDef, Stmt, StmtKind, Target,
};

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
pub(crate) fn resolve(body: &mut Body) -> Vec<String> {
    let mut symbols = Symbols::default();
    symbols.statements(body);
    inner(body, &symbols);
    symbols.hidden()
}

impl<'p> Symbols<'p> {
    /// Returns an empty scope inside another one.
    fn within(parent: &'p Symbols<'p>) -> Symbols<'p> {
        Symbols {
            parent: Some(parent),
            ..Symbols::default()
        }
    }

    /// Returns true if this scope or one around it has the name.
    fn knows(&self, name: &str) -> bool {
        self.uses.contains_key(name) || self.parent.is_some_and(|parent| parent.knows(name))
    }

    /// Records that the name is read.
    fn read(&mut self, name: &str) {
        if !self.knows(name) {
            self.uses.insert(name.to_owned(), FirstUse::Read);
        }
    }

    /// Records that the name is assigned.
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

    /// Records a name that the scope begins with.
    fn parameter(&mut self, name: &str) {
        self.stores.insert(name.to_owned());
        self.uses.insert(name.to_owned(), FirstUse::Read);
    }

    /// Returns the names that are undefined at the start of the scope.
    fn hidden(&self) -> Vec<String> {
        let hidden = self
            .uses
            .iter()
            .filter(|(_, first)| **first == FirstUse::Assigned);
        hidden.map(|(name, _)| name.clone()).collect()
    }

    /// Records the names of a target with `define`.
    fn target(&mut self, target: &Target, define: fn(&mut Symbols<'p>, &str)) {
        match target {
            Target::Name(name) => define(self, name),
            Target::Attribute(name, _) => self.read(name),
            Target::Tuple(targets) => {
                for target in targets {
                    self.target(target, define);
                }
            }
        }
    }

    /// Visits statements, but not the scopes in them.
    fn statements(&mut self, body: &Body) {
        for statement in body {
            self.statement(statement);
        }
    }

    /// Visits a statement, but not the scopes in it.
    fn statement(&mut self, statement: &Stmt) {
        match &statement.kind {
            StmtKind::Print(values) => self.exprs(values),
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
                for (_, value) in bindings {
                    self.expr(value);
                }
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

    /// Visits the branches of a condition. A name that only some of them assign begins with its
    /// value from outside.
    fn condition(&mut self, branches: &[(Expr, Body)], otherwise: &Body) {
        let Some(((test, body), rest)) = branches.split_first() else {
            return;
        };

        self.expr(test);
        let visited = |statements: &Body| {
            let mut branch = self.clone();
            branch.statements(statements);
            branch
        };

        // Jinja nests `elif` in the branch of `else`, so each further branch is a condition inside.
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

    /// Visits the arguments of a call.
    fn arguments(&mut self, arguments: &CallArguments) {
        self.exprs(&arguments.positional);
        for (_, value) in &arguments.named {
            self.expr(value);
        }
        for value in [&arguments.list, &arguments.dict].into_iter().flatten() {
            self.expr(value);
        }
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    /// Visits an expression.
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(_) => {}
            ExprKind::Name(name) => self.read(name),
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Concat(items) => {
                self.exprs(items);
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
                for bound in [start, stop, step].into_iter().flatten() {
                    self.expr(bound);
                }
            }
            ExprKind::Call(function, arguments) => {
                self.expr(function);
                self.arguments(arguments);
            }
            ExprKind::Filter(value, _, arguments) => {
                if let Some(value) = value {
                    self.expr(value);
                }
                self.arguments(arguments);
            }
            ExprKind::Test(value, _, arguments) => {
                self.expr(value);
                self.arguments(arguments);
            }
            ExprKind::Compare(first, rest) => {
                self.expr(first);
                for (_, value) in rest {
                    self.expr(value);
                }
            }
            ExprKind::Conditional {
                test,
                then,
                otherwise,
            } => {
                self.expr(test);
                self.expr(then);
                if let Some(otherwise) = otherwise {
                    self.expr(otherwise);
                }
            }
        }
    }
}

/// Finds the variables of a scope, after those that it begins with, and of the scopes in it.
fn frame(frame: &mut Frame, mut symbols: Symbols<'_>) {
    symbols.statements(&frame.body);
    inner(&mut frame.body, &symbols);
    frame.hidden = symbols.hidden();
}

/// Finds the variables of a macro.
fn function(def: &mut Arc<MacroDef>, symbols: &Symbols<'_>) {
    // The parser has not shared it yet.
    let Some(def) = Arc::get_mut(def) else { return };
    let mut own = Symbols::within(symbols);
    for name in &def.parameters {
        own.parameter(name);
    }
    own.exprs(&def.defaults);
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
                for (_, body) in branches {
                    inner(body, symbols);
                }
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
                for (target, _) in bindings {
                    names.target(target, Symbols::parameter);
                }
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
