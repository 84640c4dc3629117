//! The syntax tree: what the text says, before names are resolved.

use super::types::Type;
use super::{At, Error};

/// A whole module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    pub(crate) version: Option<((u32, u32), At)>,
    pub(crate) target: Option<(&'a str, At)>,
    /// `.file` index and name.
    pub(crate) files: Vec<(u32, &'a str)>,
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Device functions, declared and defined.
    pub(crate) functions: Vec<Entry<'a>>,
    /// `.alias` of a function: its name, and whose other name it is.
    pub(crate) aliases: Vec<(&'a str, &'a str)>,
    /// Errors outside of kernels and functions.
    pub(crate) errors: Vec<Error>,
    /// Whether the errors make the whole text unusable: they are in its header, or between its declarations.
    pub(crate) unusable: bool,
    /// Names that items with errors were about to declare.
    pub(crate) broken: Vec<&'a str>,
}

/// A state space a variable can be declared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateSpace {
    Global,
    Const,
    Shared,
    Local,
    Param,
    /// A register that a function is called with, or gives back.
    Reg,
}

/// A declared variable or parameter.
#[derive(Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) space: StateSpace,
    pub(crate) ty: Type,
    /// Elements per declared element: 2 or 4 for `.v2`, `.v4`.
    pub(crate) vector: u32,
    pub(crate) name: &'a str,
    pub(crate) at: At,
    /// From `.align`, else 0.
    pub(crate) align: u32,
    /// Elements in all; `None` for `[]`.
    pub(crate) count: Option<u64>,
    /// Whether declared as an array.
    pub(crate) array: bool,
    pub(crate) external: bool,
    pub(crate) init: Vec<Initial<'a>>,
}

/// An initial value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Initial<'a> {
    Number(Number),
    /// Zeros in place of values that are missing between others.
    Zeros(u64),
    /// The address of a variable or function plus an offset; of such an address, the byte that a mask selects.
    Address {
        name: &'a str,
        at: At,
        offset: i64,
        mask: u64,
    },
}

/// One `.entry` or `.func`.
#[derive(Debug, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    /// Whether it is a `.func`, which is called and not launched.
    pub(crate) function: bool,
    /// Whether it has a body.
    pub(crate) defined: bool,
    pub(crate) params: Vec<Variable<'a>>,
    /// What a function gives back.
    pub(crate) returns: Vec<Variable<'a>>,
    pub(crate) reqntid: Option<[u32; 3]>,
    pub(crate) maxntid: Option<[u32; 3]>,
    pub(crate) minnctapersm: Option<u32>,
    /// Blocks of a cluster, from `.reqnctapercluster`.
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) body: Body<'a>,
    /// What is wrong with its syntax.
    pub(crate) errors: Vec<Error>,
}

/// The statements between two braces.
#[derive(Debug, Default)]
pub(crate) struct Body<'a> {
    pub(crate) statements: Vec<Statement<'a>>,
    /// Names that declarations with errors were about to declare.
    pub(crate) broken: Vec<&'a str>,
}

/// One statement of a body. Nested scopes are flattened between `Open` and `Close`.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    Label(&'a str, At),
    /// A `.reg` declaration.
    Registers(Type, Vec<RegisterName<'a>>),
    Variable(Variable<'a>),
    Loc(Loc),
    /// `name: .branchtargets a, b;`
    Targets(&'a str, Vec<(&'a str, At)>),
    /// `name: .calltargets f, g;`
    Callees(&'a str, Vec<(&'a str, At)>),
    /// `name: .callprototype (..) _ (..);`
    Prototype,
    Inst(Inst<'a>),
}

/// A `.loc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loc {
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Where the code was inlined: file, line and column of the call.
    pub(crate) inlined_at: Option<(u32, u32, u32)>,
}

/// One name of a `.reg` declaration, with the count of `%r<count>`.
#[derive(Debug)]
pub(crate) struct RegisterName<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    pub(crate) count: Option<u32>,
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Inst<'a> {
    pub(crate) at: At,
    /// Offset of the semicolon.
    pub(crate) end: At,
    /// `@p` or `@!p`.
    pub(crate) guard: Option<Guard<'a>>,
    pub(crate) opcode: &'a str,
    /// Suffixes with their dots.
    pub(crate) mods: Vec<(&'a str, At)>,
    pub(crate) operands: Vec<Operand<'a>>,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    pub(crate) negated: bool,
}

/// One operand and where it starts.
#[derive(Debug)]
pub(crate) struct Operand<'a> {
    pub(crate) at: At,
    pub(crate) kind: OperandKind<'a>,
}

impl<'a> Operand<'a> {
    /// The names in it, in their order.
    pub(crate) fn names(&self) -> Vec<(&'a str, At)> {
        match &self.kind {
            OperandKind::Name(n)
            | OperandKind::Not(n)
            | OperandKind::Negative(n)
            | OperandKind::Sum(n, _)
            | OperandKind::Address(Some(n), _) => vec![(n, self.at)],
            OperandKind::Vector(all) => all.iter().flat_map(Operand::names).collect(),
            OperandKind::Tensor(n, all) | OperandKind::Resident(all, n) => [(*n, self.at)]
                .into_iter()
                .chain(all.iter().flat_map(Operand::names))
                .collect(),
            OperandKind::Pair(p, q) => vec![(p, self.at), (q, self.at)],
            _ => Vec::new(),
        }
    }
}

/// The forms of operands.
#[derive(Debug)]
pub(crate) enum OperandKind<'a> {
    /// A register, variable or label; special registers with their `.x`.
    Name(&'a str),
    /// `!p`
    Not(&'a str),
    /// `-r`
    Negative(&'a str),
    /// `variable+4`
    Sum(&'a str, i64),
    Number(Number),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `{a, b}|p`
    Resident(Vec<Operand<'a>>, &'a str),
    /// `[base+offset]`
    Address(Option<&'a str>, i64),
    /// `[map, {x, y}]`
    Tensor(&'a str, Vec<Operand<'a>>),
    /// `(a, b)`, what a call passes
    List(Vec<Operand<'a>>),
    /// `p|q`
    Pair(&'a str, &'a str),
    /// `_`
    Sink,
}

/// A literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    /// `0fXXXXXXXX`
    F32(u32),
    /// `0dXXXXXXXXXXXXXXXX` and decimal literals
    F64(u64),
}
