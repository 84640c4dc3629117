//! The syntax tree: the structure of the text before names are resolved.

use crate::syntax::types::Type;
use crate::syntax::{At, Error};

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    pub(crate) version: Option<((u32, u32), At)>,
    pub(crate) target: Option<(&'a str, At)>,
    /// The indices and names of `.file` directives.
    pub(crate) files: Vec<(u32, &'a str)>,
    pub(crate) variables: Vec<DeclaredVariable<'a>>,
    pub(crate) entries: Vec<Entry<'a>>,
    /// The device functions, declared and defined.
    pub(crate) functions: Vec<Entry<'a>>,
    /// The `.alias` directives: the new name, and the name of the function.
    pub(crate) aliases: Vec<(&'a str, &'a str)>,
    /// The errors outside of kernels and functions.
    pub(crate) errors: Vec<Error>,
    /// Whether the errors make the whole text unusable, because they are in the header or between
    /// declarations.
    pub(crate) unusable: bool,
    /// Names whose declarations have errors.
    pub(crate) broken: Vec<&'a str>,
}

/// The state space of a declared variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredSpace {
    Global,
    Const,
    Shared,
    Local,
    Param,
    /// A register parameter or result of a function.
    Reg,
}

/// A declared variable or parameter.
#[derive(Debug)]
pub(crate) struct DeclaredVariable<'a> {
    pub(crate) space: DeclaredSpace,
    pub(crate) ty: Type,
    /// The number of elements per declared element: 2 or 4 for `.v2` and `.v4`.
    pub(crate) vector: u32,
    pub(crate) name: &'a str,
    pub(crate) at: At,
    /// The alignment from `.align`, or 0.
    pub(crate) align: u32,
    /// The total number of elements, or `None` for `[]`.
    pub(crate) count: Option<u64>,
    /// Whether it was declared as an array.
    pub(crate) array: bool,
    pub(crate) external: bool,
    pub(crate) init: Vec<Initial<'a>>,
}

/// An initial value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Initial<'a> {
    Number(Number),
    /// Zeros for missing values between other values.
    Zeros(u64),
    /// The address of a variable or function plus an offset, or the byte of it that a mask selects.
    Address {
        name: &'a str,
        at: At,
        offset: i64,
        mask: u64,
    },
}

/// An `.entry` or a `.func`.
#[derive(Debug, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    /// Whether it is a `.func`.
    pub(crate) function: bool,
    /// Whether it has a body.
    pub(crate) defined: bool,
    pub(crate) params: Vec<DeclaredVariable<'a>>,
    /// The results of a function.
    pub(crate) returns: Vec<DeclaredVariable<'a>>,
    pub(crate) reqntid: Option<[u32; 3]>,
    pub(crate) maxntid: Option<[u32; 3]>,
    pub(crate) minnctapersm: Option<u32>,
    /// The number of blocks per cluster, from `.reqnctapercluster`.
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) body: Body<'a>,
    /// The syntax errors.
    pub(crate) errors: Vec<Error>,
}

/// The statements between two braces.
#[derive(Debug, Default)]
pub(crate) struct Body<'a> {
    pub(crate) statements: Vec<Statement<'a>>,
    /// Names whose declarations in the body have errors.
    pub(crate) broken: Vec<&'a str>,
}

/// A statement of a body. Nested scopes are flattened between `Open` and `Close`.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    Label(&'a str, At),
    /// A `.reg` declaration.
    Registers(Type, Vec<RegisterName<'a>>),
    Variable(DeclaredVariable<'a>),
    Loc(Loc),
    /// `name: .branchtargets a, b;`
    Targets(&'a str, Vec<(&'a str, At)>),
    /// `name: .calltargets f, g;`
    Callees(&'a str, Vec<(&'a str, At)>),
    /// `name: .callprototype (..) _ (..);`
    Prototype,
    Inst(ParsedInstruction<'a>),
}

/// A position in the source that a compiler translated to PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SourcePosition {
    /// The index of a `.file` directive.
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A `.loc` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loc {
    pub(crate) position: SourcePosition,
    /// The call at which the code was inlined.
    pub(crate) inlined_at: Option<SourcePosition>,
}

/// A name of a `.reg` declaration, with the count of `%r<count>`.
#[derive(Debug)]
pub(crate) struct RegisterName<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    pub(crate) count: Option<u32>,
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct ParsedInstruction<'a> {
    pub(crate) at: At,
    /// The offset of the semicolon.
    pub(crate) end: At,
    /// The guard, `@p` or `@!p`.
    pub(crate) guard: Option<Guard<'a>>,
    pub(crate) opcode: &'a str,
    /// The suffixes with their dots.
    pub(crate) mods: Vec<(&'a str, At)>,
    pub(crate) operands: Vec<ParsedOperand<'a>>,
}

/// A guard, `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: At,
    pub(crate) negated: bool,
}

/// An operand and its offset in the text.
#[derive(Debug)]
pub(crate) struct ParsedOperand<'a> {
    pub(crate) at: At,
    pub(crate) kind: OperandKind<'a>,
}

impl<'a> ParsedOperand<'a> {
    /// Returns the names in the operand, in order.
    pub(crate) fn names(&self) -> Vec<(&'a str, At)> {
        match &self.kind {
            OperandKind::Name(n)
            | OperandKind::Not(n)
            | OperandKind::Negative(n)
            | OperandKind::Sum(n, _)
            | OperandKind::Address(Some(n), _) => vec![(n, self.at)],
            OperandKind::Vector(all) => all.iter().flat_map(ParsedOperand::names).collect(),
            OperandKind::Tensor(n, all) | OperandKind::Resident(all, n) => [(*n, self.at)]
                .into_iter()
                .chain(all.iter().flat_map(ParsedOperand::names))
                .collect(),
            OperandKind::Pair(p, q) => vec![(p, self.at), (q, self.at)],
            // Literals, addresses without a register and `_` contain no names. Lists belong to
            // calls.
            _ => Vec::new(),
        }
    }
}

/// The form of an operand.
#[derive(Debug)]
pub(crate) enum OperandKind<'a> {
    /// A register, variable or label. A special register includes its `.x`.
    Name(&'a str),
    /// `!p`
    Not(&'a str),
    /// `-r`
    Negative(&'a str),
    /// `variable+4`
    Sum(&'a str, i64),
    Number(Number),
    /// `{a, b}`
    Vector(Vec<ParsedOperand<'a>>),
    /// `{a, b}|p`
    Resident(Vec<ParsedOperand<'a>>, &'a str),
    /// `[base+offset]`
    Address(Option<&'a str>, i64),
    /// `[map, {x, y}]`
    Tensor(&'a str, Vec<ParsedOperand<'a>>),
    /// `(a, b)`, the arguments of a call.
    List(Vec<ParsedOperand<'a>>),
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
    /// `0dXXXXXXXXXXXXXXXX`, and decimal literals.
    F64(u64),
}

/// The predefined constant for the number of threads of a warp.
pub(crate) const WARP_SIZE: &str = "WARP_SZ";
