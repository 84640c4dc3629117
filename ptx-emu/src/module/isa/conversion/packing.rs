//! `mov` between a register and a vector of narrower registers.

use crate::module::code::Op;
use crate::module::context::operands::Decode;
use crate::module::registers::{Alu, B16, B32, B64, OperandSlots, Regs, Undefined, map2};
use crate::syntax::ast::{Number, OperandKind};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, unsupported};

/// Returns the type of an element if `count` elements make a `ty`.
fn part(d: &Decode<'_, '_>, ty: Type, count: usize) -> Parsed<Type> {
    match (ty, count) {
        (Type::B16, 2) | (Type::B32, 4) => Ok(Type::B8),
        (Type::B32, 2) | (Type::B64, 4) => Ok(Type::B16),
        (Type::B64, 2) => Ok(Type::B32),
        _ => unsupported(d.inst.at, format!("mov{ty} of {count} elements")),
    }
}

/// Decodes a `mov` from the elements of a vector into a register.
pub(crate) fn pack(d: &mut Decode<'_, '_>, ty: Type) -> Parsed<Op> {
    let elements = d.elements(1);
    let part = part(d, ty, elements.len())?;
    let mut s = [0; 4];
    for (s, element) in s.iter_mut().zip(elements) {
        // ptxas 13.5 uses the low bits of the `f64`, which the manual does not mention.
        if matches!(element.kind, OperandKind::Number(Number::F64(_))) {
            return unsupported(element.at, format!("a float as a part of a mov{ty}"));
        }
        *s = d.element_src(element, part)?;
    }

    let run: Alu = match (ty, elements.len()) {
        (Type::B16, _) => pack_bytes::<2>,
        (Type::B32, 4) => pack_bytes::<4>,
        (Type::B32, _) => |r, m, s| {
            map2(r, m, s, |a: B16, b: B16| {
                B32(u32::from(a.0) | u32::from(b.0) << 16)
            })
        },
        (_, 2) => |r, m, s| {
            map2(r, m, s, |a: B32, b: B32| {
                B64(u64::from(a.0) | u64::from(b.0) << 32)
            })
        },
        _ => pack4,
    };
    Ok(Op::Alu(
        run,
        OperandSlots {
            d: d.dst(0, ty)?,
            e: 0,
            a: s[0],
            b: s[1],
            c: s[2],
            x: s[3],
        },
    ))
}

/// Packs bytes, lowest first.
fn pack_bytes<const N: usize>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
) -> Result<(), Undefined> {
    let mut out = [0u32; 32];
    for (i, slot) in [s.a, s.b, s.c, s.x].into_iter().take(N).enumerate() {
        let part = regs.get::<u32>(slot, mask)?;
        for (out, part) in out.iter_mut().zip(part) {
            *out |= (*part & 0xff) << (8 * i);
        }
    }
    regs.set(s.d, mask, &out);
    Ok(())
}

fn unpack_bytes<const N: usize>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
) -> Result<(), Undefined> {
    let a = *regs.get::<u32>(s.a, mask)?;
    for (i, slot) in [s.d, s.e, s.b, s.c].into_iter().take(N).enumerate() {
        regs.set(slot, mask, &a.map(|a| a >> (8 * i) & 0xff));
    }
    Ok(())
}

fn pack4(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let mut out = [0u64; 32];
    for (i, slot) in [s.a, s.b, s.c, s.x].into_iter().enumerate() {
        let part = regs.get::<u32>(slot, mask)?;
        for (out, part) in out.iter_mut().zip(part) {
            *out |= u64::from(*part & 0xffff) << (16 * i);
        }
    }
    regs.set(s.d, mask, &out);
    Ok(())
}

/// Decodes a `mov` from a register into the elements of a vector.
pub(crate) fn unpack(d: &mut Decode<'_, '_>, ty: Type) -> Parsed<Op> {
    let elements = d.elements(0);
    let part = part(d, ty, elements.len())?;
    let mut to = [0; 4];
    for (to, element) in to.iter_mut().zip(elements) {
        *to = d.element_dst(element, part)?;
    }

    let run: Alu = match (ty, elements.len()) {
        (Type::B16, _) => unpack_bytes::<2>,
        (Type::B32, 4) => unpack_bytes::<4>,
        (Type::B32, _) => unpack32,
        (_, 2) => unpack64,
        _ => unpack4,
    };
    Ok(Op::Alu(
        run,
        OperandSlots {
            d: to[0],
            e: to[1],
            a: d.src(1, ty)?,
            b: to[2],
            c: to[3],
            x: 0,
        },
    ))
}

fn unpack32(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let a = *regs.get::<u32>(s.a, mask)?;
    regs.set(s.d, mask, &a.map(|a| a & 0xffff));
    regs.set(s.e, mask, &a.map(|a| a >> 16));
    Ok(())
}

fn unpack64(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let a = *regs.get::<u64>(s.a, mask)?;
    regs.set(s.d, mask, &a.map(|a| a as u32));
    regs.set(s.e, mask, &a.map(|a| (a >> 32) as u32));
    Ok(())
}

fn unpack4(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let a = *regs.get::<u64>(s.a, mask)?;
    for (i, slot) in [s.d, s.e, s.b, s.c].into_iter().enumerate() {
        regs.set(slot, mask, &a.map(|a| (a >> (16 * i)) as u32 & 0xffff));
    }
    Ok(())
}
