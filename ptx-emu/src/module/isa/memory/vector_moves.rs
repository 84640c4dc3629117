//! `mov.v2` and `mov.v4`, which are two or four moves at the same time.

use crate::module::code::Op;
use crate::module::context::names::bank;
use crate::module::context::operands::Decode;
use crate::module::registers::RegisterCopy;
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error, unsupported};

/// The types of elements, which are also the types of `selp`.
pub(crate) const ELEMENTS: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];

/// Decodes `mov.vec.type d, a` with vector operands. `a` may be a special register that is a
/// vector.
pub(crate) fn mov(d: &mut Decode<'_, '_>, count: usize) -> Parsed<Op> {
    let ty = d.ty(ELEMENTS)?;
    d.operands(2, 2)?;
    let to = vector(d, 0, count)?;
    let mut copies = Vec::new();
    if let (OperandKind::Name(name), Type::B32 | Type::U32 | Type::S32) = (&d.operand(1).kind, ty) {
        for (element, part) in to.iter().zip([".x", ".y", ".z", ".w"]) {
            let from = match part {
                ".w" => Some(d.literal(bank(ty), 0)),
                _ => d.special(&format!("{name}{part}")),
            };
            let Some(from) = from else { break };
            copies.push(RegisterCopy {
                bank: bank(ty),
                to: d.element_dst(element, ty)?,
                from,
            });
        }
    }

    // The source is a special register with enough components. Otherwise it must be a vector in
    // braces.
    if copies.len() == count {
        return Ok(Op::Copies(copies.into()));
    }

    if let (OperandKind::Name(name), true) = (&d.operand(1).kind, ty.bits() == 16)
        && d.special(&format!("{name}.x")).is_some()
    {
        return unsupported(d.inst.at, format!("mov.v{count}{ty} of `{name}`"));
    }

    let from = vector(d, 1, count)?;
    let mut copies = Vec::new();
    for (to, from) in to.iter().zip(from) {
        let to = d.element_dst(to, ty)?;
        let from = d.element_src(from, ty)?;
        copies.push(RegisterCopy {
            bank: bank(ty),
            to,
            from,
        });
    }

    Ok(Op::Copies(copies.into()))
}

fn vector<'a>(d: &Decode<'_, 'a>, i: usize, count: usize) -> Parsed<&'a [ParsedOperand<'a>]> {
    let o = d.operand(i);
    match &o.kind {
        OperandKind::Vector(elements) if elements.len() == count => Ok(elements),
        _ => error(
            o.at,
            format!("`{}` needs a vector of {count} elements", d.name()),
        ),
    }
}
