//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions").

#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    clippy::eq_op,
    reason = "an unordered comparison is the negation of an ordered one"
)]

use half::{bf16, f16};

use crate::module::code::{Combine, Comparison, Op, PairTest, PredSource, SetP, Test};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::context::row::{ArithmeticRow, rows};
use crate::module::isa::arithmetic::float_number::{Half, ftz};
use crate::module::isa::arithmetic::half_floats::ftz16;
use crate::module::registers::{
    Alu, B16, B32, B64, OperandSlots, Raw, RegisterValue, Regs, Undefined,
};
use crate::syntax::Parsed;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("setp", setp),
    ("set", set),
    ("selp", selp),
    ("testp", testp),
];

/// The types that can be compared.
const TYPES: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F16,
    Type::Bf16,
    Type::F32,
    Type::F64,
];

pub(crate) const ROWS: &[ArithmeticRow] = rows! {
    "slct.{b16,u16,s16}.s32" => |a: B16, b: B16, c: i32| -> B16 { if c >= 0 { a } else { b } }
    "slct.{b32,u32,s32,f32}.s32" => |a: B32, b: B32, c: i32| -> B32 { if c >= 0 { a } else { b } }
    "slct.{b64,u64,s64,f64}.s32" => |a: B64, b: B64, c: i32| -> B64 { if c >= 0 { a } else { b } }
    "slct.{b16,u16,s16}.f32" => |a: B16, b: B16, c: f32| -> B16 { if c >= 0.0 { a } else { b } }
    "slct.{b32,u32,s32,f32}.f32" => |a: B32, b: B32, c: f32| -> B32 { if c >= 0.0 { a } else { b } }
    "slct.ftz.{b32,u32,s32,f32}.f32" => |a: B32, b: B32, c: f32| -> B32 { if ftz(c) >= 0.0 { a } else { b } }
    "slct.{b64,u64,s64,f64}.f32" => |a: B64, b: B64, c: f32| -> B64 { if c >= 0.0 { a } else { b } }
};

#[inline(always)]
fn lanes<V: RegisterValue>(
    regs: &Regs,
    mask: u32,
    a: u32,
    b: u32,
    f: impl Fn(V, V) -> bool,
) -> Result<u32, Undefined> {
    let a = regs.get::<V::Raw>(a, mask)?;
    let b = regs.get::<V::Raw>(b, mask)?;
    let mut holds = 0;
    for i in 0..32 {
        holds |= u32::from(f(V::from_raw(a[i]), V::from_raw(b[i]))) << i;
    }
    Ok(holds)
}

/// Defines a comparison of values of type `$ty`, which are converted before they are compared.
macro_rules! comparison {
    ($ty:ty, |$x:ident| $convert:expr, |$a:ident, $b:ident| $test:expr) => {{
        fn run(regs: &Regs, mask: u32, a: u32, b: u32) -> Result<u32, Undefined> {
            lanes::<$ty>(regs, mask, a, b, |$a, $b| {
                let convert = |$x: $ty| $convert;
                let ($a, $b) = (convert($a), convert($b));
                $test
            })
        }
        Some(run as Comparison)
    }};
}

macro_rules! integers {
    ($op:expr, $ty:ty) => {
        match $op {
            ".eq" => comparison!($ty, |x| x, |a, b| a == b),
            ".ne" => comparison!($ty, |x| x, |a, b| a != b),
            ".lt" | ".lo" => comparison!($ty, |x| x, |a, b| a < b),
            ".le" | ".ls" => comparison!($ty, |x| x, |a, b| a <= b),
            ".gt" | ".hi" => comparison!($ty, |x| x, |a, b| a > b),
            ".ge" | ".hs" => comparison!($ty, |x| x, |a, b| a >= b),
            _ => None,
        }
    };
}

macro_rules! floats {
    ($op:expr, $ty:ty, |$x:ident| $convert:expr) => {
        match $op {
            ".eq" => comparison!($ty, |$x| $convert, |a, b| a == b),
            ".ne" => comparison!($ty, |$x| $convert, |a, b| a < b || a > b),
            ".lt" => comparison!($ty, |$x| $convert, |a, b| a < b),
            ".le" => comparison!($ty, |$x| $convert, |a, b| a <= b),
            ".gt" => comparison!($ty, |$x| $convert, |a, b| a > b),
            ".ge" => comparison!($ty, |$x| $convert, |a, b| a >= b),
            ".equ" => comparison!($ty, |$x| $convert, |a, b| !(a < b || a > b)),
            ".neu" => comparison!($ty, |$x| $convert, |a, b| a != b),
            ".ltu" => comparison!($ty, |$x| $convert, |a, b| !(a >= b)),
            ".leu" => comparison!($ty, |$x| $convert, |a, b| !(a > b)),
            ".gtu" => comparison!($ty, |$x| $convert, |a, b| !(a <= b)),
            ".geu" => comparison!($ty, |$x| $convert, |a, b| !(a < b)),
            ".num" => comparison!($ty, |$x| $convert, |a, b| a == a && b == b),
            ".nan" => comparison!($ty, |$x| $convert, |a, b| a != a || b != b),
            _ => None,
        }
    };
}

/// Comparison operators for unsigned numbers only.
const UNSIGNED: &[&str] = &[".lo", ".ls", ".hi", ".hs"];

/// Returns the function that compares two values of a type, if the operation exists for it.
fn comparison(op: &str, ty: Type, flush: bool) -> Option<Comparison> {
    if UNSIGNED.contains(&op) && !matches!(ty, Type::U16 | Type::U32 | Type::U64) {
        return None;
    }
    // Untyped bits have no order, so they are only compared for equality. With `.ftz`, both
    // operands are flushed before the comparison.
    match ty {
        Type::B16 if matches!(op, ".eq" | ".ne") => integers!(op, u16),
        Type::B32 if matches!(op, ".eq" | ".ne") => integers!(op, u32),
        Type::B64 if matches!(op, ".eq" | ".ne") => integers!(op, u64),
        Type::U16 => integers!(op, u16),
        Type::U32 => integers!(op, u32),
        Type::U64 => integers!(op, u64),
        Type::S16 => integers!(op, i16),
        Type::S32 => integers!(op, i32),
        Type::S64 => integers!(op, i64),
        Type::F32 if flush => floats!(op, f32, |x| ftz(x)),
        Type::F32 => floats!(op, f32, |x| x),
        Type::F64 => floats!(op, f64, |x| x),
        Type::F16 if flush => floats!(op, f16, |x| ftz16(x).wide()),
        Type::F16 => floats!(op, f16, |x| x.wide()),
        Type::Bf16 => floats!(op, bf16, |x| x.wide()),
        _ => None,
    }
}

/// The suffixes `.CmpOp{.BoolOp}{.ftz}`.
struct CompareSuffixes<'a> {
    op: &'a str,
    combine: Option<Combine>,
    flush: bool,
}

fn head<'a>(d: &mut Decode<'_, 'a>) -> Parsed<CompareSuffixes<'a>> {
    const OPS: [&str; 18] = [
        ".eq", ".ne", ".lt", ".le", ".gt", ".ge", ".lo", ".ls", ".hi", ".hs", ".equ", ".neu",
        ".ltu", ".leu", ".gtu", ".geu", ".num", ".nan",
    ];
    let choices = OPS.map(|op| (op, op));
    let op = d.require(&choices)?;
    let combine = d.choose(&[
        (".and", Combine::And),
        (".or", Combine::Or),
        (".xor", Combine::Xor),
    ]);
    Ok(CompareSuffixes {
        op,
        combine,
        flush: d.eat(".ftz"),
    })
}

/// Decodes the comparison of operands `i` and `i + 1`, and the predicate to combine it with.
fn test(d: &mut Decode<'_, '_>, head: &CompareSuffixes<'_>, ty: Type, i: usize) -> Parsed<Test> {
    let flushes = matches!(ty, Type::F32 | Type::F16);
    let Some(compare) = comparison(head.op, ty, head.flush).filter(|_| flushes || !head.flush)
    else {
        return d.error(format!("`{}` does not compare {ty} values", d.name()));
    };

    let a = d.src(i, ty)?;
    let b = d.src(i + 1, ty)?;
    let with = match head.combine {
        Some(combine) => Some((combine, d.pred(i + 2)?)),
        None => None,
    };
    Ok(Test {
        compare,
        a,
        b,
        with,
    })
}

fn setp(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let head = head(d)?;
    let ty = d.ty(&[TYPES, PAIRS].concat())?;
    let n = 3 + usize::from(head.combine.is_some());
    d.operands(n, n)?;
    let o = d.operand(0);

    // `p|q` writes the result and its negation. For pairs, it writes the results of the two halves.
    let (p, q) = match o.kind {
        OperandKind::Pair(p, q) => (d.pred_dst(p, o.at)?, d.pred_dst(q, o.at)?),
        OperandKind::Sink => (None, None),
        _ => (Some(d.dst(0, Type::Pred)?), None),
    };
    if matches!(
        (ty, &o.kind),
        (Type::F16 | Type::Bf16, OperandKind::Pair(..))
    ) {
        return d.error(format!("`{}` writes one predicate", d.name()));
    }

    if PAIRS.contains(&ty) {
        return Ok(Op::SetPairP {
            test: Box::new(pair_test(d, &head, ty)?),
            p,
            q,
        });
    }

    let test = test(d, &head, ty, 1)?;
    Ok(Op::SetP(Box::new(SetP { test, p, q })))
}

/// The value that `set` writes for true, by type.
const ONES: &[(Type, u32)] = &[
    (Type::U16, 0xffff),
    (Type::S16, 0xffff),
    (Type::U32, u32::MAX),
    (Type::S32, u32::MAX),
    (Type::F32, 0x3f80_0000),
    (Type::F16, 0x3c00),
    (Type::Bf16, 0x3f80),
    (Type::F16x2, 0x3c00_3c00),
    (Type::Bf16x2, 0x3f80_3f80),
];

fn set(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let head = head(d)?;
    let types: Vec<Type> = ONES.iter().map(|(ty, _)| *ty).collect();
    let to = d.ty(&types)?;
    let ty = d.ty(&[TYPES, PAIRS].concat())?;
    let n = 3 + usize::from(head.combine.is_some());
    d.operands(n, n)?;
    let halves = matches!(ty, Type::F16 | Type::Bf16) || PAIRS.contains(&ty);

    // The manual lists these combinations separately for each source type.
    let exists = match to {
        Type::U16 | Type::S16 => halves && ty.bits() == 16,
        Type::F16x2 | Type::Bf16x2 => to == ty,
        Type::U32 | Type::S32 => true,
        Type::F32 => !halves,
        _ => !PAIRS.contains(&ty),
    };
    if !exists {
        return d.unknown_form(format!(
            "`{}` is not an instruction: {ty} values are not compared into {to}",
            d.name()
        ));
    }

    let one = ONES
        .iter()
        .find(|(ty, _)| *ty == to)
        .map_or(u32::MAX, |(_, one)| *one);
    let to = d.dst(0, to)?;
    if PAIRS.contains(&ty) {
        Ok(Op::SetPair {
            test: Box::new(pair_test(d, &head, ty)?),
            d: to,
            one,
        })
    } else {
        Ok(Op::Set {
            test: test(d, &head, ty, 1)?,
            d: to,
            one,
        })
    }
}

/// The types of which an instruction compares two values at once.
const PAIRS: &[Type] = &[Type::F16x2, Type::Bf16x2];

/// The outcomes for which a comparison of floats holds. The bits, starting at bit 0, stand for
/// less, equal, greater and unordered.
const OUTCOMES: &[(&str, u8)] = &[
    (".eq", 0b0010),
    (".ne", 0b0101),
    (".lt", 0b0001),
    (".le", 0b0011),
    (".gt", 0b0100),
    (".ge", 0b0110),
    (".equ", 0b1010),
    (".neu", 0b1101),
    (".ltu", 0b1001),
    (".leu", 0b1011),
    (".gtu", 0b1100),
    (".geu", 0b1110),
    (".num", 0b0111),
    (".nan", 0b1000),
];

/// Decodes the comparison of two pairs, operands 1 and 2, and the predicate to combine it with.
fn pair_test(d: &mut Decode<'_, '_>, head: &CompareSuffixes<'_>, ty: Type) -> Parsed<PairTest> {
    let outcomes = OUTCOMES.iter().find(|(op, _)| *op == head.op);

    // The manual defines `.ftz` for `.f16x2` and not for `.bf16x2`.
    let (Some((_, outcomes)), true) = (outcomes, ty == Type::F16x2 || !head.flush) else {
        return d.error(format!("`{}` does not compare {ty} values", d.name()));
    };

    let wide: fn(u16) -> f32 = match ty {
        Type::F16x2 if head.flush => |h| ftz16(f16::from_bits(h)).wide(),
        Type::F16x2 => |h| f16::from_bits(h).wide(),
        _ => |h| bf16::from_bits(h).wide(),
    };
    let a = d.src(1, ty)?;
    let b = d.src(2, ty)?;
    let with = match head.combine {
        Some(combine) => Some((combine, d.pred(3)?)),
        None => None,
    };
    Ok(PairTest {
        outcomes: *outcomes,
        wide,
        a,
        b,
        with,
    })
}

fn selp(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let ty = d.ty(crate::module::isa::memory::vector_moves::ELEMENTS)?;
    d.operands(4, 4)?;
    let to = d.dst(0, ty)?;
    let a = d.src(1, ty)?;
    let b = d.src(2, ty)?;
    let slots = match d.pred(3)? {
        PredSource::Register {
            slot,
            negated: false,
        } => OperandSlots {
            d: to,
            a,
            b,
            c: slot,
            ..OperandSlots::default()
        },
        // `!p` selects the first operand where `p` is false.
        PredSource::Register {
            slot,
            negated: true,
        } => OperandSlots {
            d: to,
            a: b,
            b: a,
            c: slot,
            ..OperandSlots::default()
        },
        PredSource::Constant(holds) => {
            let a = if holds { a } else { b };
            return Ok(Op::Alu(
                crate::module::isa::memory::load_store::copy(ty),
                OperandSlots {
                    d: to,
                    a,
                    ..OperandSlots::default()
                },
            ));
        }
    };
    let run: Alu = if ty.bits() == 64 {
        select::<u64>
    } else {
        select::<u32>
    };
    Ok(Op::Alu(run, slots))
}

/// The properties that `testp` tests.
const PROPERTIES: &[(&str, usize)] = &[
    (".finite", 0),
    (".infinite", 1),
    (".number", 2),
    (".notanumber", 3),
    (".normal", 4),
    (".subnormal", 5),
];

fn testp(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let property = d.require(PROPERTIES)?;
    let ty = d.ty(&[Type::F32, Type::F64])?;
    d.operands(2, 2)?;
    let a = d.src(1, ty)?;
    let compare = match ty {
        Type::F32 => [
            comparison!(f32, |x| x, |a, _b| a.is_finite()),
            comparison!(f32, |x| x, |a, _b| a.is_infinite()),
            comparison!(f32, |x| x, |a, _b| !a.is_nan()),
            comparison!(f32, |x| x, |a, _b| a.is_nan()),
            comparison!(f32, |x| x, |a, _b| a.is_normal() || a == 0.0),
            comparison!(f32, |x| x, |a, _b| a.is_subnormal()),
        ],
        _ => [
            comparison!(f64, |x| x, |a, _b| a.is_finite()),
            comparison!(f64, |x| x, |a, _b| a.is_infinite()),
            comparison!(f64, |x| x, |a, _b| !a.is_nan()),
            comparison!(f64, |x| x, |a, _b| a.is_nan()),
            comparison!(f64, |x| x, |a, _b| a.is_normal() || a == 0.0),
            comparison!(f64, |x| x, |a, _b| a.is_subnormal()),
        ],
    }[property];

    // `testp` is a comparison of a value with itself, so it needs no operation of its own.
    let Some(compare) = compare else {
        return d.error("testp has no such property");
    };

    let test = Test {
        compare,
        a,
        b: a,
        with: None,
    };
    Ok(Op::SetP(Box::new(SetP {
        test,
        p: Some(d.dst(0, Type::Pred)?),
        q: None,
    })))
}

/// Selects between two sources. Each source is read only in the lanes that select it, because the
/// other one may be uninitialized.
fn select<R: Raw>(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let chosen = regs.pred(s.c, mask)?;
    let a = regs.get::<R>(s.a, mask & chosen)?;
    let b = regs.get::<R>(s.b, mask & !chosen)?;
    let out = std::array::from_fn(|i| if chosen >> i & 1 != 0 { a[i] } else { b[i] });
    regs.set(s.d, mask, &out);
    Ok(())
}
