//! Operands that consist of the registers of a fragment.

use crate::module::context::operands::Decode;
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

/// Returns a vector of `count` registers of a type.
pub(crate) fn registers(
    d: &mut Decode<'_, '_>,
    i: usize,
    ty: Type,
    count: usize,
) -> Parsed<Vec<u32>> {
    let elements = d.elements(i);
    let at = d.operand(i).at;
    if elements.len() != count {
        return error(
            at,
            format!(
                "a vector of {count} {ty} registers was expected, not of {}",
                elements.len()
            ),
        );
    }

    // A destination may be `_`, and a source may be a literal.
    let fits = |o: &ParsedOperand<'_>| match o.kind {
        OperandKind::Name(_) => true,
        OperandKind::Sink => i == 0,
        OperandKind::Number(_) => i > 0,
        _ => false,
    };
    if !elements.iter().all(fits) {
        return error(at, format!("{ty} registers were expected"));
    }

    elements
        .iter()
        .map(|element| element_of(d, element, ty))
        .collect()
}

pub(crate) fn element_of<'a>(
    d: &mut Decode<'_, 'a>,
    o: &'a ParsedOperand<'a>,
    ty: Type,
) -> Parsed<u32> {
    match o.kind {
        OperandKind::Number(_) if ty == Type::F16x2 => d.element_src(o, Type::B32),
        OperandKind::Number(_) => d.element_src(o, ty),
        _ => d.element_dst(o, ty),
    }
}
