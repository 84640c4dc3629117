//! Moves and atomics of 128 bits, which two 64-bit registers contain (PTX ISA, "mov", "atom").

use crate::module::code::Op;
use crate::module::context::operands::Decode;
use crate::module::registers::{Alu, OperandSlots, Regs, Undefined};
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error, unsupported};

/// A function that computes the new value from the old value, `b` and `c`.
pub(crate) type WideUpdate = fn(u128, u128, u128) -> u128;

/// Returns the update of a 128-bit atomic.
pub(crate) fn update_of(op: &str) -> Option<WideUpdate> {
    match op {
        ".exch" => Some(|_, b, _| b),
        ".cas" => Some(|m, b, c| if m == b { c } else { m }),
        _ => None,
    }
}

/// Decodes `mov.b128` from one register to another, or from or to two or four parts.
pub(crate) fn mov(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let to = d.operand(0);
    let from = d.operand(1);
    if [to, from]
        .iter()
        .all(|o| matches!(o.kind, OperandKind::Vector(_)))
    {
        return error(to.at, "mov.b128 needs a .b128 register on one side");
    }

    let (run, slots): (Alu, OperandSlots) = match (parts(to)?, parts(from)?) {
        (Some([x, y, z, w]), _) => {
            let [a, b] = d.halves_src(from)?;
            let [x, y, z, w] = [x, y, z, w].map(|part| d.element_dst(part, Type::B32));
            (
                unpack_words,
                OperandSlots {
                    d: x?,
                    e: y?,
                    b: z?,
                    c: w?,
                    a,
                    // A row has six slots, so `x` and `c` contain slots here instead of a constant
                    // and a source.
                    x: b,
                },
            )
        }
        (None, Some([x, y, z, w])) => {
            let [x, y, z, w] = [x, y, z, w].map(|part| d.element_src(part, Type::B32));
            let [low, high] = d.halves_dst(to)?;
            (
                pack_words,
                OperandSlots {
                    d: low,
                    e: high,
                    a: x?,
                    b: y?,
                    c: z?,
                    x: w?,
                },
            )
        }
        (None, None) => {
            let ([a, b], [low, high]) = (source(d, from)?, target(d, to)?);
            (
                copy,
                OperandSlots {
                    d: low,
                    e: high,
                    a,
                    b,
                    ..OperandSlots::default()
                },
            )
        }
    };
    Ok(Op::Alu(run, slots))
}

/// Returns the four parts of an operand, if it has four.
fn parts<'a>(o: &'a ParsedOperand<'a>) -> Parsed<Option<[&'a ParsedOperand<'a>; 4]>> {
    let OperandKind::Vector(elements) = &o.kind else {
        return Ok(None);
    };
    match &elements[..] {
        [x, y, z, w] => Ok(Some([x, y, z, w])),
        [_, _] => Ok(None),
        _ => unsupported(o.at, format!("mov.b128 of {} elements", elements.len())),
    }
}

fn source<'a>(d: &mut Decode<'_, 'a>, o: &'a ParsedOperand<'a>) -> Parsed<[u32; 2]> {
    match &o.kind {
        OperandKind::Vector(halves) => Ok([
            d.element_src(&halves[0], Type::B64)?,
            d.element_src(&halves[1], Type::B64)?,
        ]),
        _ => d.halves_src(o),
    }
}

fn target<'a>(d: &mut Decode<'_, 'a>, o: &'a ParsedOperand<'a>) -> Parsed<[u32; 2]> {
    match &o.kind {
        OperandKind::Vector(halves) => Ok([
            d.element_dst(&halves[0], Type::B64)?,
            d.element_dst(&halves[1], Type::B64)?,
        ]),
        _ => d.halves_dst(o),
    }
}

/// Copies a register. Both halves are read before one is written, because they may overlap.
fn copy(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let low = *regs.get::<u64>(s.a, mask)?;
    let high = *regs.get::<u64>(s.b, mask)?;
    regs.set(s.d, mask, &low);
    regs.set(s.e, mask, &high);
    Ok(())
}

fn pack_words(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    for (to, low, high) in [(s.d, s.a, s.b), (s.e, s.c, s.x)] {
        let low = regs.get::<u32>(low, mask)?;
        let high = regs.get::<u32>(high, mask)?;
        let half = std::array::from_fn(|i| u64::from(low[i]) | u64::from(high[i]) << 32);
        regs.set::<u64>(to, mask, &half);
    }
    Ok(())
}

fn unpack_words(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    for (from, low, high) in [(s.a, s.d, s.e), (s.x, s.b, s.c)] {
        let half = *regs.get::<u64>(from, mask)?;
        regs.set(low, mask, &half.map(|half| half as u32));
        regs.set(high, mask, &half.map(|half| (half >> 32) as u32));
    }
    Ok(())
}
