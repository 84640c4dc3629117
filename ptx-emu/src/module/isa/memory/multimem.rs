//! `multimem` (PTX ISA, "multimem").
//!
//! There is one device, so a multicast address is an address of its own memory, and a reduction
//! over all devices is a load.

use crate::module::code::{
    AccessOrdering, Atomic, InstructionSpace, MemoryScope, Op, RegisterOperand, Transfer,
    Unwritten, Width,
};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::memory::atomic::update_of;
use crate::module::isa::memory::load_store::SCOPES;
use crate::syntax::Parsed;
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::{Type, TypeKind};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("multimem", multimem)];

const INTEGERS: &[Type] = &[
    Type::B32,
    Type::B64,
    Type::U32,
    Type::U64,
    Type::S32,
    Type::S64,
];
const FLOATS: &[Type] = &[
    Type::F16,
    Type::F16x2,
    Type::Bf16,
    Type::Bf16x2,
    Type::F32,
    Type::F64,
];

/// The instruction of the family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MultimemInstruction {
    Load,
    Store,
    Reduce,
}

/// The meaning of the suffixes.
struct MultimemSuffixes {
    order: AccessOrdering,
    scope: MemoryScope,
    space: InstructionSpace,
    op: &'static str,
    count: usize,
    ty: Type,
}

/// Decodes the instructions of the family.
///
/// - `multimem.ld_reduce{.sem}{.scope}{.ss}.op{.acc}{.vec}.type d, [a]`
/// - `multimem.st{.sem}{.scope}{.ss}{.vec}.type [a], b`
/// - `multimem.red{.sem}{.scope}{.ss}.op{.vec}.type [a], b`
fn multimem(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let form = d.require(&[
        (".ld_reduce", MultimemInstruction::Load),
        (".st", MultimemInstruction::Store),
        (".red", MultimemInstruction::Reduce),
    ])?;
    let s = suffixes(d, form)?;
    d.operands(2, 2)?;
    let (at, other) = if form == MultimemInstruction::Load {
        (1, 0)
    } else {
        (0, 1)
    };
    let elements = elements(d, other, s.count)?;
    if form == MultimemInstruction::Reduce {
        return reduce(d, &s, elements);
    }

    let mut regs = Vec::new();
    for element in elements {
        let slot = match form {
            MultimemInstruction::Load => d.element_dst(element, s.ty)?,
            _ => d.element_src(element, s.ty)?,
        };
        regs.push(Some(RegisterOperand {
            slot,
            bits: s.ty.bits(),
        }));
    }

    // With one device, a reduction over all devices returns the only value.
    let transfer = Transfer {
        space: s.space,
        address: d.address(at, false)?,
        width: Width {
            bytes: s.ty.bytes(),
            signed: s.ty.kind() == TypeKind::Signed,
        },
        regs,
        read_only: false,
        unwritten: Unwritten::Fault,
        order: s.order,
        scope: s.scope,
        site: d.site(),
    };
    Ok(if form == MultimemInstruction::Load {
        Op::Load(Box::new(transfer))
    } else {
        Op::Store(Box::new(transfer))
    })
}

fn suffixes(d: &mut Decode<'_, '_>, form: MultimemInstruction) -> Parsed<MultimemSuffixes> {
    let orders: &[(&str, AccessOrdering)] = match form {
        MultimemInstruction::Load => &[
            (".weak", AccessOrdering::Weak),
            (".relaxed", AccessOrdering::Relaxed),
            (".acquire", AccessOrdering::Acquire),
        ],
        MultimemInstruction::Store => &[
            (".weak", AccessOrdering::Weak),
            (".relaxed", AccessOrdering::Relaxed),
            (".release", AccessOrdering::Release),
        ],
        MultimemInstruction::Reduce => &[
            (".relaxed", AccessOrdering::Relaxed),
            (".release", AccessOrdering::Release),
        ],
    };
    let named = d.choose(orders);
    let scope = match named {
        Some(AccessOrdering::Relaxed | AccessOrdering::Acquire | AccessOrdering::Release) => {
            // A semantics other than `.weak` needs a scope (PTX ISA, "multimem").
            Some(d.require(SCOPES)?)
        }
        _ => None,
    };
    let usual = if form == MultimemInstruction::Reduce {
        AccessOrdering::Relaxed
    } else {
        AccessOrdering::Weak
    };
    let space = if d.eat(".global") {
        InstructionSpace::Global
    } else {
        InstructionSpace::Generic
    };
    let operations = [".add", ".min", ".max", ".and", ".or", ".xor"].map(|op| (op, op));
    let op = if form == MultimemInstruction::Store {
        ""
    } else {
        d.require(&operations)?
    };
    let accumulates = d.eat(".acc::f32");
    let count = d.choose(&[(".v2", 2), (".v4", 4), (".v8", 8)]).unwrap_or(1);
    let ty = d.ty(&[INTEGERS, FLOATS].concat())?;
    let halves = ty.bits() == 16 || matches!(ty, Type::F16x2 | Type::Bf16x2);
    let floats = FLOATS.contains(&ty);
    let bits = matches!(op, ".and" | ".or" | ".xor");

    // The manual lists the valid combinations of operation and type (PTX ISA, "multimem").
    let wrong = accumulates && !(halves && op == ".add")
        || count as u32 * ty.bytes() > 16
        || count > 1 && !floats
        || floats && (bits || !halves && matches!(op, ".min" | ".max"))
        || matches!(ty, Type::B32 | Type::B64) && matches!(op, ".add" | ".min" | ".max")
        || bits && !matches!(ty, Type::B32 | Type::B64);
    if wrong {
        return d.unknown_form(format!(
            "`{}`: the operation does not support this type",
            d.name()
        ));
    }

    Ok(MultimemSuffixes {
        order: named.unwrap_or(usual),
        scope: scope.unwrap_or(MemoryScope::Device),
        space,
        op,
        count,
        ty,
    })
}

/// Returns the elements of a vector, or one register.
fn elements<'a>(d: &Decode<'_, 'a>, i: usize, count: usize) -> Parsed<&'a [ParsedOperand<'a>]> {
    let elements = d.elements(i);
    let vector = matches!(d.operand(i).kind, OperandKind::Vector(_));
    if elements.len() == count && vector == (count > 1) {
        Ok(elements)
    } else {
        d.error(format!("`{}` needs {count} elements", d.name()))
    }
}

fn reduce<'a>(
    d: &mut Decode<'_, 'a>,
    s: &MultimemSuffixes,
    elements: &'a [ParsedOperand<'a>],
) -> Parsed<Op> {
    let halves = s.ty.bits() == 16 || matches!(s.ty, Type::F16x2 | Type::Bf16x2);
    let name = if halves {
        // Reductions of 16-bit floats do not flush, although the opcode has no `.noftz`.
        format!("{}.noftz", s.op)
    } else {
        s.op.to_string()
    };
    let like = if s.ty == Type::S64 && s.op == ".add" {
        Type::U64
    } else {
        s.ty
    };
    let Some(f) = update_of(&name, like) else {
        return d.unknown_form(format!(
            "`{}`: the operation does not support this type",
            d.name()
        ));
    };

    let mut atomics = Vec::new();
    for (i, element) in elements.iter().enumerate() {
        let mut address = d.address(0, false)?;
        address.offset += i as i64 * i64::from(s.ty.bytes());
        let b = RegisterOperand {
            slot: d.element_src(element, s.ty)?,
            bits: s.ty.bits(),
        };
        atomics.push(Atomic {
            space: s.space,
            address,
            bytes: s.ty.bytes(),
            f,
            d: None,
            b,
            c: None,
            high: None,
            order: s.order,
            scope: s.scope,
            site: d.site(),
        });
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
