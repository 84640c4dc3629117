//! The syntax tree of a template.

use std::sync::Arc;

/// An expression and the line that it begins in.
#[derive(Debug)]
pub(in crate::chat::jinja) struct Expr {
    pub(in crate::chat::jinja) line: u32,
    pub(in crate::chat::jinja) kind: ExprKind,
}

#[derive(Debug)]
pub(in crate::chat::jinja) enum ExprKind {
    Const(Const),
    Name(String),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, String),
    Item(Box<Expr>, Box<Expr>),
    Slice(Option<Box<Expr>>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call(Box<Expr>, CallArguments),
    /// The value is absent in the head of `{% filter %}` and `{% set x | filter %}`.
    Filter(Option<Box<Expr>>, String, CallArguments),
    Test(Box<Expr>, String, CallArguments),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    Conditional {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
}

#[derive(Debug)]
pub(in crate::chat::jinja) enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    String(Arc<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat::jinja) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat::jinja) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}

/// `f(a, k=b, *list, **dict)`
#[derive(Debug, Default)]
pub(in crate::chat::jinja) struct CallArguments {
    pub(in crate::chat::jinja) positional: Vec<Expr>,
    pub(in crate::chat::jinja) named: Vec<(String, Expr)>,
    pub(in crate::chat::jinja) list: Option<Box<Expr>>,
    pub(in crate::chat::jinja) dict: Option<Box<Expr>>,
}

/// What a value is assigned to.
#[derive(Debug)]
pub(in crate::chat::jinja) enum Target {
    Name(String),
    /// An attribute of a namespace.
    Attribute(String, String),
    Tuple(Vec<Target>),
}

/// A statement and the line that it begins in.
#[derive(Debug)]
pub(in crate::chat::jinja) struct Stmt {
    pub(in crate::chat::jinja) line: u32,
    pub(in crate::chat::jinja) kind: StmtKind,
}

pub(in crate::chat::jinja) type Body = Vec<Stmt>;

/// A body with its own variables.
#[derive(Debug, Default)]
pub(in crate::chat::jinja) struct Frame {
    pub(in crate::chat::jinja) body: Body,
    /// The variables that begin as undefined, even if the name has a value outside.
    pub(in crate::chat::jinja) hidden: Vec<String>,
}

#[derive(Debug)]
pub(in crate::chat::jinja) enum StmtKind {
    Data(String),
    Print(Vec<Expr>),
    For(Arc<ForLoop>),
    If {
        branches: Vec<(Expr, Body)>,
        otherwise: Body,
    },
    Set(Target, Expr),
    SetBlock {
        target: Target,
        filter: Option<Expr>,
        frame: Frame,
    },
    With {
        bindings: Vec<(Target, Expr)>,
        frame: Frame,
    },
    Macro(Arc<MacroDef>),
    CallBlock {
        body: Arc<MacroDef>,
        call: Expr,
    },
    FilterBlock {
        filter: Expr,
        frame: Frame,
    },
    /// `{% generation %}`, which transformers adds to Jinja. It calls its body like a macro.
    Generation(Arc<MacroDef>),
    /// The body sees only the variables of the top level.
    Block(Frame),
    /// A body in a scope, for example `{% block a scoped %}`.
    Scoped(Frame),
    Break,
    Continue,
}

#[derive(Debug)]
pub(in crate::chat::jinja) struct ForLoop {
    pub(in crate::chat::jinja) target: Target,
    pub(in crate::chat::jinja) iter: Expr,
    pub(in crate::chat::jinja) test: Option<Expr>,
    pub(in crate::chat::jinja) recursive: bool,
    pub(in crate::chat::jinja) frame: Frame,
    pub(in crate::chat::jinja) otherwise: Frame,
}

/// A macro, or the body of a call block.
#[derive(Debug)]
pub(in crate::chat::jinja) struct MacroDef {
    pub(in crate::chat::jinja) name: Option<String>,
    pub(in crate::chat::jinja) parameters: Vec<String>,
    /// The defaults of the last parameters.
    pub(in crate::chat::jinja) defaults: Vec<Expr>,
    pub(in crate::chat::jinja) frame: Frame,
    /// The special variables that the body uses.
    pub(in crate::chat::jinja) uses: MacroUses,
}

#[derive(Debug, Default, Clone, Copy)]
pub(in crate::chat::jinja) struct MacroUses {
    pub(in crate::chat::jinja) caller: bool,
    pub(in crate::chat::jinja) varargs: bool,
    pub(in crate::chat::jinja) kwargs: bool,
}
