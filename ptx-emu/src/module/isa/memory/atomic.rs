//! `atom` and `red` (PTX ISA, "Parallel Synchronization and Communication Instructions").

use half::{bf16, f16};

use crate::module::code::asynchronous::{AsyncStore, Reduction};
use crate::module::code::{
    AccessOrdering, Address, Atomic, High, InstructionSpace, MemoryScope, Op, RegisterOperand,
};
use crate::module::context::operands::{BrokenRule, Decode, Decoder, invalid, unknown};
use crate::module::isa::arithmetic::float_number::{canon, ftz};
use crate::module::isa::arithmetic::half_floats;
use crate::module::isa::memory::{load_store, wide};
use crate::syntax::Parsed;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("atom", atom), ("red", red)];

/// A function that computes the new value from the old value and the operands.
type Update = fn(u64, u64, u64) -> u64;

/// The operations with their types and updates. The old value is `m`.
const OPERATIONS: &[(&str, &[Type], Update)] = &[
    (".add", &[Type::U32, Type::S32], |m, b, _| {
        u64::from((m as u32).wrapping_add(b as u32))
    }),
    (".add", &[Type::U64], |m, b, _| m.wrapping_add(b)),
    (".add", &[Type::F32], |m, b, _| {
        f32s(m, b, |m, b| ftz(canon(ftz(m) + ftz(b))))
    }),
    (".add", &[Type::F64], |m, b, _| {
        (f64::from_bits(m) + f64::from_bits(b)).to_bits()
    }),
    (".add.noftz", &[Type::F16, Type::F16x2], |m, b, _| {
        f16s(m, b, half_floats::add)
    }),
    (".min.noftz", &[Type::F16, Type::F16x2], |m, b, _| {
        f16s(m, b, half_floats::min)
    }),
    (".max.noftz", &[Type::F16, Type::F16x2], |m, b, _| {
        f16s(m, b, half_floats::max)
    }),
    (".add.noftz", &[Type::Bf16, Type::Bf16x2], |m, b, _| {
        bf16s(m, b, half_floats::add)
    }),
    (".min.noftz", &[Type::Bf16, Type::Bf16x2], |m, b, _| {
        bf16s(m, b, half_floats::min)
    }),
    (".max.noftz", &[Type::Bf16, Type::Bf16x2], |m, b, _| {
        bf16s(m, b, half_floats::max)
    }),
    (
        ".inc",
        &[Type::U32],
        |m, b, _| if m >= b { 0 } else { m + 1 },
    ),
    (".dec", &[Type::U32], |m, b, _| {
        if m == 0 || m > b { b } else { m - 1 }
    }),
    (".min", &[Type::U32, Type::U64], |m, b, _| m.min(b)),
    (".max", &[Type::U32, Type::U64], |m, b, _| m.max(b)),
    (".min", &[Type::S32], |m, b, _| {
        u64::from((m as i32).min(b as i32) as u32)
    }),
    (".max", &[Type::S32], |m, b, _| {
        u64::from((m as i32).max(b as i32) as u32)
    }),
    (".min", &[Type::S64], |m, b, _| {
        (m as i64).min(b as i64) as u64
    }),
    (".max", &[Type::S64], |m, b, _| {
        (m as i64).max(b as i64) as u64
    }),
    (".and", &[Type::B32, Type::B64], |m, b, _| m & b),
    (".or", &[Type::B32, Type::B64], |m, b, _| m | b),
    (".xor", &[Type::B32, Type::B64], |m, b, _| m ^ b),
    (".exch", &[Type::B32, Type::B64], |_, b, _| b),
    (".cas", &[Type::B16, Type::B32, Type::B64], |m, b, c| {
        if m == b { c } else { m }
    }),
];

/// `.add.f32` on shared memory and by bulk copies, which keeps subnormals. The variant for global
/// memory in [`OPERATIONS`] flushes them.
const ADD_SUBNORMALS: Update = |m, b, _| f32s(m, b, |m, b| canon(m + b));

/// The semantics of `atom`. `red` returns no value, so it has only the first two.
const ORDERS: &[(&str, AccessOrdering)] = &[
    (".relaxed", AccessOrdering::Relaxed),
    (".release", AccessOrdering::Release),
    (".acquire", AccessOrdering::Acquire),
    (".acq_rel", AccessOrdering::AcquireRelease),
];

fn f32s(a: u64, b: u64, f: impl Fn(f32, f32) -> f32) -> u64 {
    f(f32::from_bits(a as u32), f32::from_bits(b as u32))
        .to_bits()
        .into()
}

/// Applies `f` to two 16-bit floats each. A scalar is the lower half, and its upper half is not
/// stored.
fn f16s(m: u64, b: u64, f: fn(f16, f16) -> f16) -> u64 {
    pairs(m, b, |m, b| {
        f(f16::from_bits(m), f16::from_bits(b)).to_bits()
    })
}

fn bf16s(m: u64, b: u64, f: fn(bf16, bf16) -> bf16) -> u64 {
    pairs(m, b, |m, b| {
        f(bf16::from_bits(m), bf16::from_bits(b)).to_bits()
    })
}

fn pairs(m: u64, b: u64, f: impl Fn(u16, u16) -> u16) -> u64 {
    u64::from(f(m as u16, b as u16)) | u64::from(f((m >> 16) as u16, (b >> 16) as u16)) << 16
}

fn atom(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    decode(d, 1)
}

fn red(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.eat(".async") {
        return asynchronous(d);
    }
    decode(d, 0)
}

/// The operations of `red.async` with their types. Sums of signed integers equal those of unsigned
/// ones.
const ASYNCHRONOUS: &[(&str, &[Type])] = &[
    (".add", &[Type::U32, Type::S32, Type::U64, Type::S64]),
    (".min", &[Type::U32, Type::S32]),
    (".max", &[Type::U32, Type::S32]),
    (".inc", &[Type::U32]),
    (".dec", &[Type::U32]),
    (".and", &[Type::B32]),
    (".or", &[Type::B32]),
    (".xor", &[Type::B32]),
];

/// Decodes `red.async` (PTX ISA, "red.async").
///
/// The forms are `red.async.relaxed.cluster{.shared::cluster}.mbarrier::complete_tx::bytes.op.type
/// [a], b, [bar]` and `red.async{.mmio}.release.scope{.global}.op.type [a], b`. The second form is
/// executed at once.
fn asynchronous(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let mmio = d.eat(".mmio");
    if mmio || d.peek() == Some(".release") {
        d.require(&[(".release", ())])?;
        d.require(if mmio {
            &[(".sys", ())]
        } else {
            &[(".sys", ()), (".gpu", ())][..]
        })?;
        let space = if d.eat(".global") {
            InstructionSpace::Global
        } else {
            InstructionSpace::Generic
        };
        let (ty, f) = asynchronous_operation(d)?;
        d.operands(2, 2)?;
        let address = d.address(0, false)?;
        let b = d.word(1, ty)?;

        // The release form completes on no mbarrier, so it is an ordinary atomic.
        let order = AccessOrdering::Release;
        let scope = MemoryScope::Device;
        let site = d.site();
        let bytes = ty.bytes();
        let atomic = Atomic {
            space,
            address,
            bytes,
            f,
            d: None,
            b,
            c: None,
            high: None,
            order,
            scope,
            site,
        };
        return Ok(Op::Atomic(Box::new(atomic)));
    }

    d.require(&[(".relaxed", ())])?;
    d.require(&[(".cluster", ())])?;
    let space = if d.eat(".shared::cluster") {
        InstructionSpace::Cluster
    } else {
        InstructionSpace::Generic
    };
    d.require(&[(".mbarrier::complete_tx::bytes", ())])?;
    let (ty, f) = asynchronous_operation(d)?;
    d.operands(3, 3)?;
    let [to, barrier] = [
        asynchronous_address(d, 0, space)?,
        asynchronous_address(d, 2, space)?,
    ];
    let values = vec![d.word(1, ty)?];
    let reduction = Some(Reduction {
        bytes: ty.bytes(),
        f,
    });
    Ok(Op::AsyncStore(Box::new(AsyncStore {
        space,
        to,
        values,
        barrier,
        reduction,
    })))
}

/// Returns an address of shared memory. ptxas also accepts a 32-bit generic address, which the
/// manual does not mention.
fn asynchronous_address(
    d: &mut Decode<'_, '_>,
    operand: usize,
    space: InstructionSpace,
) -> Parsed<Address> {
    let short = space == InstructionSpace::Cluster;
    let address = d.address(operand, short);
    if short {
        address
    } else {
        address.or_else(|_| {
            d.unknown_form(format!(
                "`{}` needs an address in brackets as operand {}, in a .u64 register",
                d.name(),
                operand + 1
            ))
        })
    }
}

fn asynchronous_operation(d: &mut Decode<'_, '_>) -> Parsed<(Type, Update)> {
    let (op, types) = d.require(
        &ASYNCHRONOUS
            .iter()
            .map(|row| (row.0, *row))
            .collect::<Vec<_>>(),
    )?;
    let ty = d.ty(types)?;

    // Two's complement sums do not depend on the sign, so the row of unsigned integers serves both.
    let like = if ty == Type::S64 { Type::U64 } else { ty };
    match of(op).find(|(_, types, _)| types.contains(&like)) {
        Some((.., f)) => Ok((ty, *f)),
        None => d.error(format!("`{}` does not exist for {ty}", d.name())),
    }
}

/// The meaning of the suffixes. The suffixes before the type may have any order.
struct AtomicSuffixes {
    order: AccessOrdering,
    scope: MemoryScope,
    space: InstructionSpace,
    op: String,
    cache_hint: bool,
    count: usize,
    ty: Type,
}

/// Decodes `{.sem}{.scope}{.space}.op{.noftz}{.level::cache_hint}{.vec}.type`.
fn suffixes(d: &mut Decode<'_, '_>, orders: &[(&str, AccessOrdering)]) -> Parsed<AtomicSuffixes> {
    let mut order = None;
    let mut scope = None;
    let mut space = None;
    let mut op = None;
    let mut no_flush = None;
    let mut cache_hint = None;
    let mut count = None;
    let mut early = None;
    let operations: Vec<(&str, &str)> = OPERATIONS
        .iter()
        .map(|(name, ..)| (*name, *name))
        .filter(|(name, _)| !name.ends_with("noftz"))
        .collect();
    let types = OPERATIONS
        .iter()
        .flat_map(|(_, types, _)| types.iter().map(|ty| (ty.name(), *ty)));
    let types: Vec<(&str, Type)> = types.chain([(Type::B128.name(), Type::B128)]).collect();
    while take(d, &mut order, orders)
        || take(d, &mut scope, load_store::SCOPES)
        || take(d, &mut space, load_store::SPACES)
        || take(d, &mut op, &operations)
        || take(d, &mut count, &[(".v2", 2), (".v4", 4), (".v8", 8)])
        || take(d, &mut no_flush, &[(".noftz", ())])
        || take(d, &mut cache_hint, &[(".L2::cache_hint", ())])
        // ptxas accepts a type before the operation. After it, the type is read below with the
        // types of the operation.
        || op.is_none() && take(d, &mut early, &types)
    {}

    let Some(op) = op else {
        return d.unknown_form(format!(
            "`{}` needs an operation, for example .add",
            d.name()
        ));
    };

    let op = if no_flush.is_some() {
        format!("{op}.noftz")
    } else {
        op.to_string()
    };

    // `red` returns no value, so it has no 128-bit form. The number of orders tells the two apart.
    let wide = wide::update_of(&op)
        .filter(|_| orders.len() == ORDERS.len())
        .map(|_| Type::B128);
    let types: Vec<Type> = of(&op)
        .flat_map(|(_, types, _)| types.iter().copied())
        .chain(wide)
        .collect();
    Ok(AtomicSuffixes {
        order: order.unwrap_or(AccessOrdering::Relaxed),
        scope: scope.unwrap_or(MemoryScope::Device),
        space: space.unwrap_or(InstructionSpace::Generic),
        op,
        cache_hint: cache_hint.is_some(),
        count: count.unwrap_or(1),
        ty: match early {
            Some(ty) if !types.contains(&ty) => {
                return d.error(format!("`{}` does not exist for {ty}", d.name()));
            }
            Some(ty) => ty,
            None => d.ty(&types)?,
        },
    })
}

/// Consumes the next suffix if it is one of `choices` and none of them came before.
fn take<T: Copy>(d: &mut Decode<'_, '_>, kept: &mut Option<T>, choices: &[(&str, T)]) -> bool {
    if kept.is_none() {
        *kept = d.choose(choices);
        return kept.is_some();
    }
    false
}

/// Returns the rows of an operation.
fn of(op: &str) -> impl Iterator<Item = &'static (&'static str, &'static [Type], Update)> {
    OPERATIONS.iter().filter(move |(name, ..)| *name == op)
}

/// Decodes `.op{.noftz}.type` of a bulk reduction. It flushes nothing, as an H100.
pub(crate) fn reduction(d: &mut Decode<'_, '_>) -> Parsed<(Type, Update)> {
    const OPS: &[&str] = &[
        ".add", ".inc", ".dec", ".min", ".max", ".and", ".or", ".xor",
    ];
    let op = d.require(&OPS.iter().map(|op| (*op, *op)).collect::<Vec<_>>())?;
    let name = if d.eat(".noftz") {
        format!("{op}.noftz")
    } else {
        op.to_string()
    };

    // Minima and maxima of 16-bit floats do not flush, and they have no suffix that selects it.
    let scalars = |(_, types, f): &(&str, &'static [Type], Update)| {
        types.iter().map(|ty| (*ty, *f)).collect::<Vec<_>>()
    };
    let halves = if matches!(op, ".min" | ".max") {
        format!("{op}.noftz")
    } else {
        String::new()
    };
    let rows: Vec<(Type, Update)> = of(&name).chain(of(&halves)).flat_map(scalars).collect();
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(ty, _)| !matches!(ty, Type::F16x2 | Type::Bf16x2))
        .collect();
    let ty = d.ty(&rows.iter().map(|(ty, _)| *ty).collect::<Vec<_>>())?;
    match rows.into_iter().find(|(of, _)| *of == ty) {
        Some((Type::F32, _)) if op == ".add" => Ok((ty, ADD_SUBNORMALS)),
        Some(row) => Ok(row),
        None => d.error(format!("`{}` does not exist for {ty}", d.name())),
    }
}

/// Returns the update of a scalar type, if the operation supports it.
pub(crate) fn update_of(op: &str, ty: Type) -> Option<Update> {
    of(op)
        .find(|(_, types, _)| types.contains(&ty))
        .map(|(.., f)| *f)
}

/// Returns the reduction of tensor elements. 16-bit floats are not flushed, and bits have no sign.
pub(crate) fn tensor_reduction(op: &str, ty: Type) -> Option<Reduction> {
    let (name, ty) = match (op, ty) {
        (".add" | ".min" | ".max", Type::F16 | Type::Bf16) => (format!("{op}.noftz"), ty),
        (".and" | ".or" | ".xor", Type::U32 | Type::S32) => (op.into(), Type::B32),
        (".and" | ".or" | ".xor", Type::U64 | Type::S64) => (op.into(), Type::B64),
        _ => (op.into(), ty),
    };
    update_of(&name, ty).map(|f| Reduction {
        bytes: ty.bytes(),
        f,
    })
}

/// Returns the reason why the combination of suffixes is illegal, if it is.
fn illegal(s: &AtomicSuffixes) -> Option<BrokenRule> {
    let halves = s.ty.bits() == 16 && s.op != ".cas" || matches!(s.ty, Type::F16x2 | Type::Bf16x2);
    let bytes = s.count as u32 * s.ty.bytes();
    let vector = s.count > 1;

    // The first rule that is broken is reported. Vectors exist for `.f32` additions and for 16-bit
    // floats only, and ptxas rejects the others.
    let wrong = [
        (
            matches!(s.space, InstructionSpace::Const | InstructionSpace::Local),
            invalid("atomics act on .global and .shared"),
        ),
        (
            vector
                && !matches!(
                    s.space,
                    InstructionSpace::Global | InstructionSpace::Generic
                ),
            invalid("atomics on vectors act on .global"),
        ),
        (
            vector && !(halves || s.ty == Type::F32 && s.op == ".add"),
            invalid("there are no vectors of this type"),
        ),
        (bytes > 16, unknown("a vector has at most 16 bytes")),
        (
            s.cache_hint && s.ty == Type::B128,
            invalid("atomics on 128 bits take no cache policy"),
        ),
        (
            halves && !vector && s.op != ".add.noftz",
            invalid("halves alone are added only"),
        ),
    ];
    wrong
        .iter()
        .find(|(wrong, _)| *wrong)
        .map(|(_, rule)| *rule)
}

/// Decodes an atomic whose address is operand `at`.
fn decode(d: &mut Decode<'_, '_>, at: usize) -> Parsed<Op> {
    let s = suffixes(d, &ORDERS[..if at == 0 { 2 } else { 4 }])?;
    if let Some(rule) = illegal(&s) {
        return d.breaks(rule);
    }
    if let Some(f) = wide::update_of(&s.op).filter(|_| s.ty == Type::B128) {
        return of_128_bits(d, &s, f);
    }
    let Some((.., f)) = of(&s.op).find(|(_, types, _)| types.contains(&s.ty)) else {
        return d.error(format!("`{}` does not exist for {}", d.name(), s.ty));
    };

    // Sums in shared memory keep subnormals, which sums in global memory flush.
    let in_shared = (s.op.as_str(), s.ty, s.space) == (".add", Type::F32, InstructionSpace::Shared);
    let f = if in_shared { ADD_SUBNORMALS } else { *f };
    let sources = if s.op == ".cas" { 2 } else { 1 };
    let n = at + 1 + sources;
    d.operands(n + usize::from(s.cache_hint), n + usize::from(s.cache_hint))?;
    if s.cache_hint {
        d.src(n, Type::B64)?;
    }

    let mut atomics = vec![];
    for i in 0..s.count {
        atomics.push(one(d, &s, f, (at, i, sources == 2))?);
    }

    // The atomics run one after another, so an earlier destination would overwrite the source of a
    // later one.
    let mixed = |(i, a): (usize, &Atomic)| {
        a.d.is_some_and(|d| atomics[i + 1..].iter().any(|b| b.b.slot == d.slot))
    };
    if atomics.iter().enumerate().any(mixed) {
        return d.unsupported("an element of d that is a later element of b");
    }

    match atomics.pop() {
        Some(atomic) if atomics.is_empty() => Ok(Op::Atomic(Box::new(atomic))),
        last => {
            atomics.extend(last);
            Ok(Op::Atomics(Box::new((
                s.count as u32 * s.ty.bytes(),
                atomics,
            ))))
        }
    }
}

/// Decodes the atomic of element `i`.
fn one(
    d: &mut Decode<'_, '_>,
    s: &AtomicSuffixes,
    f: Update,
    (at, i, two): (usize, usize, bool),
) -> Parsed<Atomic> {
    let element = |d: &Decode<'_, '_>, operand: usize| {
        if d.elements(operand).len() == s.count {
            Ok(())
        } else {
            d.error(format!(
                "`{}` needs vectors of {} elements",
                d.name(),
                s.count
            ))
        }
    };
    element(d, at + 1)?;
    let old = match (at, matches!(d.operand(0).kind, OperandKind::Sink)) {
        (1, false) => {
            element(d, 0)?;
            Some(RegisterOperand {
                slot: d.element_dst(&d.elements(0)[i], s.ty)?,
                bits: s.ty.bits(),
            })
        }
        _ => None,
    };
    let mut address = d.address(
        at,
        matches!(
            s.space,
            InstructionSpace::Shared | InstructionSpace::Cluster
        ),
    )?;

    // The elements of a vector are separate atomics at consecutive addresses (PTX ISA, "atom").
    address.offset += i as i64 * i64::from(s.ty.bytes());
    let b = RegisterOperand {
        slot: d.element_src(&d.elements(at + 1)[i], s.ty)?,
        bits: s.ty.bits(),
    };
    let c = if two {
        Some(d.word(at + 2, s.ty)?)
    } else {
        None
    };
    let space = s.space;
    let order = s.order;
    let scope = s.scope;
    let site = d.site();
    Ok(Atomic {
        space,
        address,
        bytes: s.ty.bytes(),
        f,
        d: old,
        b,
        c,
        high: None,
        order,
        scope,
        site,
    })
}

/// Decodes `atom.exch.b128` and `atom.cas.b128`.
fn of_128_bits(d: &mut Decode<'_, '_>, s: &AtomicSuffixes, f: wide::WideUpdate) -> Parsed<Op> {
    let n = if s.op == ".cas" { 4 } else { 3 };
    d.operands(n, n)?;
    let halves = |slots: [u32; 2]| slots.map(|slot| RegisterOperand { slot, bits: 64 });
    let old = match d.operand(0).kind {
        OperandKind::Sink => None,
        _ => Some(halves(d.halves_dst(d.operand(0))?)),
    };
    let address = d.address(
        1,
        matches!(
            s.space,
            InstructionSpace::Shared | InstructionSpace::Cluster
        ),
    )?;
    let b = halves(d.halves_src(d.operand(2))?);
    let c = if n == 4 {
        Some(halves(d.halves_src(d.operand(3))?))
    } else {
        None
    };
    let high = High {
        f,
        d: old.map(|d| d[1]),
        b: b[1],
        c: c.map(|c| c[1]),
    };
    Ok(Op::Atomic(Box::new(Atomic {
        space: s.space,
        address,
        bytes: s.ty.bytes(),
        // The 64-bit update is never called, because `high` replaces it.
        f: |m, _, _| m,
        d: old.map(|d| d[0]),
        b: b[0],
        c: c.map(|c| c[0]),
        high: Some(Box::new(high)),
        order: s.order,
        scope: s.scope,
        site: d.site(),
    })))
}
