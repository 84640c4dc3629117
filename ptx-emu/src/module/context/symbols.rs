//! The names that a kernel declares, by scope.

use std::collections::{HashMap, HashSet};

use crate::syntax::ast::{DeclaredVariable, OperandKind, Statement};
use crate::syntax::types::Type;
use crate::syntax::{At, ast};

/// The meaning of a declared name.
#[derive(Clone, Debug)]
pub(crate) enum DeclaredSymbol {
    Register {
        ty: Type,
        declaration: u32,
        at: At,
    },
    Shared {
        address: u32,
        bytes: Option<u32>,
    },
    Local {
        address: u32,
        bytes: u32,
    },
    Label(u32),
    Targets(Vec<u32>),
    /// Functions by number.
    Callees(Vec<u32>),
}

#[derive(Debug, Default)]
pub(crate) struct NameScope<'a> {
    pub(crate) parent: Option<usize>,
    pub(crate) names: HashMap<&'a str, DeclaredSymbol>,
    /// The register families `%r<N>`: type, declaration, count and place.
    pub(crate) families: HashMap<&'a str, (Type, u32, u32, At)>,
}

/// Returns the size and the alignment of a variable in bytes, or `None` if the size overflows.
pub(crate) fn layout(v: &DeclaredVariable<'_>) -> Option<(u64, u32)> {
    let element = v.ty.bytes() * v.vector;
    let bytes = u64::from(element).checked_mul(v.count.unwrap_or(0))?;
    Some((bytes, element.max(v.align)))
}

/// Adds all names that the operands of a kernel or function mention.
pub(crate) fn mentioned<'a>(entry: &ast::Entry<'a>, names: &mut HashSet<&'a str>) {
    fn visit<'a>(operand: &ast::ParsedOperand<'a>, names: &mut HashSet<&'a str>) {
        match &operand.kind {
            OperandKind::Name(n) | OperandKind::Sum(n, _) | OperandKind::Address(Some(n), _) => {
                _ = names.insert(n)
            }
            OperandKind::Vector(v)
            | OperandKind::Tensor(_, v)
            | OperandKind::Resident(v, _)
            | OperandKind::List(v) => {
                for o in v {
                    visit(o, names);
                }
            }
            _ => {}
        }
    }
    for statement in &entry.body.statements {
        match statement {
            Statement::Inst(inst) => {
                for o in &inst.operands {
                    visit(o, names);
                }
            }
            // A call through a register names its possible targets only in such a list.
            Statement::Callees(_, list) => names.extend(list.iter().map(|(name, _)| *name)),
            _ => {}
        }
    }
}
