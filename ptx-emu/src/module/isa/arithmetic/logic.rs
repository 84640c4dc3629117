//! Logic, shifts and permutations (PTX ISA, "Logic and Shift Instructions", "prmt").

use crate::module::code::Op;
use crate::module::context::operands::{Decode, Decoder};
use crate::module::context::row::{ArithmeticRow, rows};
use crate::module::isa::arithmetic::integer::{insert32, insert64};
use crate::module::registers::{Alu, B16, B32, B64, OperandSlots, Regs, Undefined, map3};
use crate::syntax::Parsed;
use crate::syntax::ast::{Number, OperandKind};
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("and", predicates),
    ("or", predicates),
    ("xor", predicates),
    ("not", predicates),
    ("lop3", lop3),
    ("bfi", bfi),
];

fn shl(x: u64, n: u32, bits: u32) -> u64 {
    if n >= bits { 0 } else { x << n }
}

fn shr(x: u64, n: u32, bits: u32) -> u64 {
    if n >= bits { 0 } else { x >> n }
}

fn funnel_left(low: u32, high: u32, n: u32) -> B32 {
    B32((((u64::from(high) << 32 | u64::from(low)) << n) >> 32) as u32)
}

fn funnel_right(low: u32, high: u32, n: u32) -> B32 {
    B32(((u64::from(high) << 32 | u64::from(low)) >> n) as u32)
}

/// Returns one of the eight bytes in `b:a`. Bit 3 of the selector replicates its sign.
fn pick(bytes: u64, selector: u32) -> u32 {
    let byte = (bytes >> (8 * (selector & 7))) as u8;
    let sign = if byte & 0x80 != 0 { 0xff } else { 0 };
    if selector & 8 != 0 { sign } else { byte.into() }
}

fn permute(a: u32, b: u32, selectors: [u32; 4]) -> B32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let [s0, s1, s2, s3] = selectors.map(|s| pick(bytes, s));
    B32(s0 | s1 << 8 | s2 << 16 | s3 << 24)
}

fn nibbles(c: u32) -> [u32; 4] {
    [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15]
}

fn mask_bits(a: u32, b: u32, wrap: bool) -> u32 {
    let (a, b) = if wrap {
        (a & 31, b & 31)
    } else {
        (a.min(32), b.min(32))
    };
    ((((1u64 << b) - 1) << a) & 0xffff_ffff) as u32
}

pub(crate) const ROWS: &[ArithmeticRow] = rows! {
    "and.b16" => |a: B16, b: B16| -> B16 { B16(a.0 & b.0) }
    "and.b32" => |a: B32, b: B32| -> B32 { B32(a.0 & b.0) }
    "and.b64" => |a: B64, b: B64| -> B64 { B64(a.0 & b.0) }
    "or.b16" => |a: B16, b: B16| -> B16 { B16(a.0 | b.0) }
    "or.b32" => |a: B32, b: B32| -> B32 { B32(a.0 | b.0) }
    "or.b64" => |a: B64, b: B64| -> B64 { B64(a.0 | b.0) }
    "xor.b16" => |a: B16, b: B16| -> B16 { B16(a.0 ^ b.0) }
    "xor.b32" => |a: B32, b: B32| -> B32 { B32(a.0 ^ b.0) }
    "xor.b64" => |a: B64, b: B64| -> B64 { B64(a.0 ^ b.0) }
    "not.b16" => |a: B16| -> B16 { B16(!a.0) }
    "not.b32" => |a: B32| -> B32 { B32(!a.0) }
    "not.b64" => |a: B64| -> B64 { B64(!a.0) }
    "cnot.b16" => |a: B16| -> B16 { B16((a.0 == 0).into()) }
    "cnot.b32" => |a: B32| -> B32 { B32((a.0 == 0).into()) }
    "cnot.b64" => |a: B64| -> B64 { B64((a.0 == 0).into()) }

    "shl.b16" => |a: B16, n: u32| -> B16 { B16(shl(a.0.into(), n, 16) as u16) }
    "shl.b32" => |a: B32, n: u32| -> B32 { B32(if n > 31 { 0 } else { a.0 << (n & 31) }) }
    "shl.b64" => |a: B64, n: u32| -> B64 { B64(shl(a.0, n, 64)) }
    "shr.{b16,u16}" => |a: B16, n: u32| -> B16 { B16(shr(a.0.into(), n, 16) as u16) }
    "shr.{b32,u32}" => |a: B32, n: u32| -> B32 { B32(if n > 31 { 0 } else { a.0 >> (n & 31) }) }
    "shr.{b64,u64}" => |a: B64, n: u32| -> B64 { B64(shr(a.0, n, 64)) }
    "shr.s16" => |a: i16, n: u32| -> i16 { a >> n.min(15) }
    "shr.s32" => |a: i32, n: u32| -> i32 { a >> n.min(31) }
    "shr.s64" => |a: i64, n: u32| -> i64 { a >> n.min(63) }
    "shf.l.wrap.b32" => |a: B32, b: B32, n: u32| -> B32 { funnel_left(a.0, b.0, n & 31) }
    "shf.l.clamp.b32" => |a: B32, b: B32, n: u32| -> B32 { funnel_left(a.0, b.0, n.min(32)) }
    "shf.r.wrap.b32" => |a: B32, b: B32, n: u32| -> B32 { funnel_right(a.0, b.0, n & 31) }
    "shf.r.clamp.b32" => |a: B32, b: B32, n: u32| -> B32 { funnel_right(a.0, b.0, n.min(32)) }
    "bmsk.clamp.b32" => |a: u32, b: u32| -> B32 { B32(mask_bits(a, b, false)) }
    "bmsk.wrap.b32" => |a: u32, b: u32| -> B32 { B32(mask_bits(a, b, true)) }

    "prmt.b32" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, nibbles(c.0)) }
    "prmt.b32.f4e" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [0, 1, 2, 3].map(|i| (c.0 & 3) + i)) }
    "prmt.b32.b4e" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [8, 7, 6, 5].map(|i| ((c.0 & 3) + i) & 7)) }
    "prmt.b32.rc8" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [c.0 & 3; 4]) }
    "prmt.b32.ecl" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [0, 1, 2, 3].map(|i| i.max(c.0 & 3))) }
    "prmt.b32.ecr" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [0, 1, 2, 3].map(|i| i.min(c.0 & 3))) }
    "prmt.b32.rc16" => |a: B32, b: B32, c: B32| -> B32 { permute(a.0, b.0, [0, 1, 0, 1].map(|i| (c.0 & 1) * 2 + i)) }
};

/// Decodes logic instructions on predicates, such as `and.pred`.
fn predicates(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.ty(&[Type::Pred, Type::B16, Type::B32, Type::B64])?;
    let (table, sources) = match d.inst.opcode {
        "and" => (0b1000, 2),
        "or" => (0b1110, 2),
        "xor" => (0b0110, 2),
        // Both inputs are the same predicate, and the result is set where it is false.
        _ => (0b0001, 1),
    };
    d.operands(1 + sources, 1 + sources)?;
    let to = d.dst(0, Type::Pred)?;
    let a = d.pred(1)?;
    let b = d.pred(sources)?;
    Ok(Op::Logic { table, d: to, a, b })
}

fn lop3(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.ty(&[Type::B32])?;
    d.operands(5, 5)?;

    // ptxas 13.5 uses the low eight bits of a larger number.
    let OperandKind::Number(Number::Int(table)) = d.operand(4).kind else {
        return d.error("the table of lop3 is an integer literal");
    };

    let x = table as u32 & 0xff;
    let slots = OperandSlots {
        d: d.dst(0, Type::B32)?,
        e: 0,
        a: d.src(1, Type::B32)?,
        b: d.src(2, Type::B32)?,
        c: d.src(3, Type::B32)?,
        x,
    };
    Ok(Op::Alu(lop3_lanes, slots))
}

/// Computes `lop3`: each bit of the result is bit `4a + 2b + c` of the table.
fn lop3_lanes(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    // Each entry of the table is widened to a full word, so one expression selects for all 32 bits
    // at once.
    let bit = |i: u32| if s.x >> i & 1 != 0 { u32::MAX } else { 0 };
    let t: [u32; 8] = std::array::from_fn(|i| bit(i as u32));
    map3(regs, mask, s, |a: B32, b: B32, c: B32| {
        let a = a.0;
        let b = b.0;
        let c = c.0;
        let low = !b & (!c & t[0] | c & t[1]) | b & (!c & t[2] | c & t[3]);
        let high = !b & (!c & t[4] | c & t[5]) | b & (!c & t[6] | c & t[7]);
        B32(!a & low | a & high)
    })
}

fn bfi(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let ty = d.ty(&[Type::B32, Type::B64])?;
    d.operands(5, 5)?;
    let run: Alu = if ty == Type::B32 { bfi32 } else { bfi64 };
    d.alu(run, ty, &[ty, ty, Type::U32, Type::U32])
}

fn bfi32(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let length = *regs.get::<u32>(s.x, mask)?;
    let a = regs.get::<u32>(s.a, mask)?;
    let b = regs.get::<u32>(s.b, mask)?;
    let c = regs.get::<u32>(s.c, mask)?;
    let out = std::array::from_fn(|i| insert32(a[i], b[i], c[i], length[i]));
    regs.set(s.d, mask, &out);
    Ok(())
}

fn bfi64(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let length = *regs.get::<u32>(s.x, mask)?;
    let a = regs.get::<u64>(s.a, mask)?;
    let b = regs.get::<u64>(s.b, mask)?;
    let c = regs.get::<u32>(s.c, mask)?;
    let out = std::array::from_fn(|i| insert64(a[i], b[i], c[i], length[i]));
    regs.set(s.d, mask, &out);
    Ok(())
}
