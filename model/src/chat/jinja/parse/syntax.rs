//! The syntax tree of a template.

use std::sync::Arc;

/// An expression and the line that it begins in.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) line: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
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
pub(crate) enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    String(Arc<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
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
pub(crate) struct CallArguments {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(String, Expr)>,
    pub(crate) list: Option<Box<Expr>>,
    pub(crate) dict: Option<Box<Expr>>,
}

/// What a value is assigned to.
#[derive(Debug)]
pub(crate) enum Target {
    Name(String),
    /// An attribute of a namespace.
    Attribute(String, String),
    Tuple(Vec<Target>),
}

/// A statement and the line that it begins in.
#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) line: u32,
    pub(crate) kind: StmtKind,
}

pub(crate) type Body = Vec<Stmt>;

/// A body with its own variables.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) body: Body,
    /// The variables that begin as undefined, even if the name has a value outside.
    pub(crate) hidden: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
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
pub(crate) struct ForLoop {
    pub(crate) target: Target,
    pub(crate) iter: Expr,
    pub(crate) test: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) frame: Frame,
    pub(crate) otherwise: Frame,
}

/// A macro, or the body of a call block.
#[derive(Debug)]
pub(crate) struct MacroDef {
    pub(crate) name: Option<String>,
    pub(crate) parameters: Vec<String>,
    /// The defaults of the last parameters.
    pub(crate) defaults: Vec<Expr>,
    pub(crate) frame: Frame,
    /// The special variables that the body uses.
    pub(crate) uses: MacroUses,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MacroUses {
    pub(crate) caller: bool,
    pub(crate) varargs: bool,
    pub(crate) kwargs: bool,
}
