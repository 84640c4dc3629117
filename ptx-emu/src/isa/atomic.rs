//! `atom` and `red` (manual, "Parallel Synchronization and Communication Instructions").

use half::f16;

use super::number::{Half, canon, ftz, max64, min64};
use super::{Decoder, memory};
use crate::code::{Atomic, MemoryOrder, Op, RegisterOperand, Scope, Space};
use crate::decode::Decode;
use crate::parse::Parsed;
use crate::parse::ast::OperandKind;
use crate::parse::types::Type;

pub(super) const DECODERS: &[(&str, Decoder)] = &[("atom", atom), ("red", red)];

/// New value from the old one and the operands.
type Update = fn(u64, u64, u64) -> u64;

/// Operation, types, and the update. The old value is `m`.
const OPERATIONS: &[(&str, &[Type], Update)] = &[
    (".add", &[Type::U32, Type::S32], |m, b, _| u64::from((m as u32).wrapping_add(b as u32))),
    (".add", &[Type::U64], |m, b, _| m.wrapping_add(b)),
    (".add", &[Type::F32], |m, b, _| f32s(m, b, |m, b| ftz(canon(ftz(m) + ftz(b))))),
    (".add", &[Type::F64], |m, b, _| (f64::from_bits(m) + f64::from_bits(b)).to_bits()),
    (".add.noftz", &[Type::F16], |m, b, _| add16(m as u32, b as u32).into()),
    (".add.noftz", &[Type::F16x2], |m, b, _| {
        u64::from(add16(m as u32, b as u32)) | u64::from(add16(m as u32 >> 16, b as u32 >> 16)) << 16
    }),
    (".inc", &[Type::U32], |m, b, _| if m >= b { 0 } else { m + 1 }),
    (".dec", &[Type::U32], |m, b, _| if m == 0 || m > b { b } else { m - 1 }),
    (".min", &[Type::U32, Type::U64], |m, b, _| m.min(b)),
    (".max", &[Type::U32, Type::U64], |m, b, _| m.max(b)),
    (".min", &[Type::S32], |m, b, _| u64::from((m as i32).min(b as i32) as u32)),
    (".max", &[Type::S32], |m, b, _| u64::from((m as i32).max(b as i32) as u32)),
    (".min", &[Type::S64], |m, b, _| (m as i64).min(b as i64) as u64),
    (".max", &[Type::S64], |m, b, _| (m as i64).max(b as i64) as u64),
    (".min", &[Type::F64], |m, b, _| min64(f64::from_bits(m), f64::from_bits(b)).to_bits()),
    (".max", &[Type::F64], |m, b, _| max64(f64::from_bits(m), f64::from_bits(b)).to_bits()),
    (".and", &[Type::B32, Type::B64], |m, b, _| m & b),
    (".or", &[Type::B32, Type::B64], |m, b, _| m | b),
    (".xor", &[Type::B32, Type::B64], |m, b, _| m ^ b),
    (".exch", &[Type::B32, Type::B64], |_, b, _| b),
    (".cas", &[Type::B16, Type::B32, Type::B64], |m, b, c| if m == b { c } else { m }),
];

/// `.add.f32` on shared memory keeps subnormals; [`OPERATIONS`] has the one on global memory, which flushes them.
const ADD_SHARED: Update = |m, b, _| f32s(m, b, |m, b| canon(m + b));

/// The semantics of `atom`; `red`, which gives no value, has the first two.
const ORDERS: &[(&str, MemoryOrder)] = &[
    (".relaxed", MemoryOrder::Relaxed),
    (".release", MemoryOrder::Release),
    (".acquire", MemoryOrder::Acquire),
    (".acq_rel", MemoryOrder::AcquireRelease),
];

fn f32s(a: u64, b: u64, f: impl Fn(f32, f32) -> f32) -> u64 {
    f(f32::from_bits(a as u32), f32::from_bits(b as u32)).to_bits().into()
}

fn add16(a: u32, b: u32) -> u16 {
    let wide = |x: u32| f64::from(f16::from_bits(x as u16).wide());
    f16::round(wide(a) + wide(b)).to_bits()
}

/// The operations by their suffix alone.
fn names() -> Vec<(&'static str, &'static str)> {
    let first = |name: &'static str| name.split_at(name[1..].find('.').map_or(name.len(), |i| i + 1)).0;
    OPERATIONS.iter().map(|(name, ..)| (first(name), first(name))).collect()
}

fn atom(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    decode(d, 1)
}

fn red(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    decode(d, 0)
}

/// `{.sem}{.scope}{.space}.op{.level::cache_hint}.type`, the address being operand `at`.
fn decode(d: &mut Decode<'_, '_>, at: usize) -> Parsed<Op> {
    let orders = &ORDERS[..if at == 0 { 2 } else { 4 }];
    let order = d.choose(orders).unwrap_or(MemoryOrder::Relaxed);
    let scope = d.choose(memory::SCOPES).unwrap_or(Scope::Device);
    let space = d.choose(memory::SPACES).unwrap_or(Space::Generic);
    if matches!(space, Space::Const | Space::Local) {
        return d.error(format!("`{}`: atomics act on .global and .shared", d.name()));
    }
    let Some(op) = d.choose(&names()) else {
        return d.error(format!("`{}` lacks an operation such as .add", d.name()));
    };
    let mut op = op.to_string();
    if d.eat(".noftz") {
        op += ".noftz";
    }
    let of_op: Vec<_> = OPERATIONS.iter().filter(|(name, ..)| *name == op).collect();
    let types: Vec<Type> = of_op.iter().flat_map(|(_, types, _)| types.iter().copied()).collect();
    let ty = d.ty(&types)?;
    let Some((.., f)) = of_op.into_iter().find(|(_, types, _)| types.contains(&ty)) else {
        return d.error(format!("`{}` has no such type", d.name()));
    };
    let in_shared = (op.as_str(), ty, space) == (".add", Type::F32, Space::Shared);
    let f = if in_shared { ADD_SHARED } else { *f };
    let sources = if op == ".cas" { 2 } else { 1 };
    d.operands(at + 1 + sources, at + 1 + sources)?;
    let old = match (at, matches!(d.operand(0).kind, OperandKind::Sink)) {
        (1, false) => Some(RegisterOperand { slot: d.dst(0, ty)?, bits: ty.bits() }),
        _ => None,
    };
    let address = d.address(at, space == Space::Shared)?;
    let b = d.word(at + 1, ty)?;
    let c = if sources == 2 { Some(d.word(at + 2, ty)?) } else { None };
    let site = d.site();
    Ok(Op::Atomic(Box::new(Atomic {
        space,
        address,
        bytes: ty.bytes(),
        f,
        d: old,
        b,
        c,
        order,
        scope,
        site,
    })))
}
