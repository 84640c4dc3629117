//! Extended-precision arithmetic (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").
//!
//! The condition code `CC.CF` is a hidden predicate register. One definition covers all
//! instructions:
//!
//! - Each instruction computes `left + right + carry` with zero-extended words. `.cc` stores the
//!   bit above the result.
//! - `left` is the first source, or for `mad` the low or high half of the product.
//! - `right` is the last source, and for `sub` its complement.
//! - `carry` is `CC.CF` if the opcode ends in `c`. Otherwise it is 1 for `sub` and 0 for all
//!   others.
//!
//! After a subtraction, `CC.CF` is therefore 1 if there was no borrow. The manual describes a
//! borrow, which is the same for chains of subtractions alone. Hardware keeps the carry, and
//! compiled 128-bit division reads it with `addc` after `sub.cc`.

use crate::module::code::Op;
use crate::module::context::operands::{Decode, Decoder};
use crate::module::registers::{Alu, OperandSlots, Raw, Regs, Undefined};
use crate::syntax::Parsed;
use crate::syntax::types::{Type, TypeKind};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("add", extended),
    ("addc", extended),
    ("sub", extended),
    ("subc", extended),
    ("mad", extended),
    ("madc", extended),
];

/// The first summand.
#[derive(Clone, Copy)]
enum Left {
    First,
    Low,
    High,
    HighSigned,
}

/// The source of the carry-in.
#[derive(Clone, Copy)]
enum CarryIn {
    Constant(u32),
    Flag,
}

/// Decodes `add.cc`, `addc`, `sub.cc`, `subc`, `mad.lo.cc`, `madc.hi` and so on. Forms without a
/// carry are table rows.
fn extended(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let opcode = d.inst.opcode;
    let product = match opcode {
        "mad" | "madc" => Some(d.require(&[(".lo", Left::Low), (".hi", Left::High)])?),
        _ => None,
    };
    let carry_in = opcode.ends_with('c');
    let carry_out = d.eat(".cc");

    // Without a carry, the instruction is a row. It was looked up first, so the suffixes must be
    // wrong.
    if !carry_in && !carry_out {
        return d.unknown_form(format!(
            "`{}` is not an instruction: the suffixes do not go together, or not with this type",
            d.name()
        ));
    }

    let ty = d.ty(&[Type::U32, Type::S32, Type::U64, Type::S64])?;
    let left = match product {
        Some(Left::High) if ty.kind() == TypeKind::Signed => Left::HighSigned,
        product => product.unwrap_or(Left::First),
    };
    let sources = if product.is_some() { 3 } else { 2 };
    d.operands(1 + sources, 1 + sources)?;
    let run: Alu = if ty.bits() == 32 {
        run::<u32>
    } else {
        run::<u64>
    };
    let Op::Alu(_, mut slots) = d.alu(run, ty, &[ty, ty, ty][..sources])? else {
        return d.error("not arithmetic");
    };

    slots.e = d.carry();
    slots.x = pack(left, opcode.starts_with("sub"), carry_in, carry_out);
    Ok(Op::Alu(run, slots))
}

/// Packs the variant of an instruction into the one word that [`OperandSlots`] has for it.
fn pack(left: Left, subtract: bool, carry_in: bool, carry_out: bool) -> u32 {
    u32::from(carry_in) | u32::from(carry_out) << 1 | u32::from(subtract) << 2 | (left as u32) << 3
}

/// Returns the left summand, whether the right one is complemented, the carry-in, and whether
/// `CC.CF` is written.
fn unpack(x: u32) -> (Left, bool, CarryIn, bool) {
    let left = [Left::First, Left::Low, Left::High, Left::HighSigned][(x >> 3) as usize & 3];
    let subtract = x & 4 != 0;
    let carry_in = if x & 1 != 0 {
        CarryIn::Flag
    } else {
        CarryIn::Constant(u32::from(subtract))
    };
    (left, subtract, carry_in, x & 2 != 0)
}

/// A word type for additions with carry.
trait CarryWord: Raw {
    const BITS: u32;
    fn wide(self) -> u128;
    fn signed(self) -> i128;
    fn low(wide: u128) -> Self;
}

impl CarryWord for u32 {
    const BITS: u32 = 32;
    fn wide(self) -> u128 {
        self.into()
    }
    fn signed(self) -> i128 {
        (self as i32).into()
    }
    fn low(wide: u128) -> u32 {
        wide as u32
    }
}

impl CarryWord for u64 {
    const BITS: u32 = 64;
    fn wide(self) -> u128 {
        self.into()
    }
    fn signed(self) -> i128 {
        (self as i64).into()
    }
    fn low(wide: u128) -> u64 {
        wide as u64
    }
}

fn summand<R: CarryWord>(left: Left, a: R, b: R) -> R {
    match left {
        Left::First => a,
        Left::Low => R::low(a.wide() * b.wide()),
        Left::High => R::low((a.wide() * b.wide()) >> R::BITS),
        Left::HighSigned => R::low((a.signed() * b.signed() >> R::BITS) as u128),
    }
}

fn run<R: CarryWord>(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let (left, subtract, carry_in, carry_out) = unpack(s.x);
    let flags = match carry_in {
        CarryIn::Flag => regs.pred(s.e, mask)?,
        CarryIn::Constant(carry) => carry.wrapping_neg(),
    };
    let a = regs.get::<R>(s.a, mask)?;
    let b = regs.get::<R>(s.b, mask)?;

    // `mad` has the product of the first two sources on the left, and the third source on the
    // right.
    let right = if matches!(left, Left::First) {
        b
    } else {
        regs.get::<R>(s.c, mask)?
    };
    let low = (1u128 << R::BITS) - 1;
    let mut out = [R::default(); 32];
    let mut carries = 0;
    for i in 0..32 {
        // A subtraction adds the complement, and its carry-in of 1 completes the negation.
        let right = if subtract {
            !right[i].wide() & low
        } else {
            right[i].wide()
        };
        let sum = summand(left, a[i], b[i]).wide() + right + u128::from(flags >> i & 1);
        out[i] = R::low(sum);
        carries |= ((sum >> R::BITS) as u32 & 1) << i;
    }

    regs.set(s.d, mask, &out);
    if carry_out {
        regs.set_pred(s.e, mask, carries);
    }

    Ok(())
}
