//! The effects of instructions on numbers, derived from their names, for the checks of
//! [`values`](crate::sanitize::arithmetic::value_checks).

use std::collections::BTreeMap;

use crate::module::analysis::instruction_text::{Register, named, parts, split};
use crate::module::code::{Exchange, KernelCode, Op};
use crate::module::context::names::bank;
use crate::module::isa;
use crate::module::isa::OpcodeLookup;
use crate::module::registers::{Bank, OperandSlots};
use crate::syntax::types::{Type, TypeKind};

/// The effect of an instruction on numbers.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Nothing,
    /// Divides integers, or computes a remainder.
    Divides {
        a: (Register, Type),
        b: Register,
    },
    /// Computes a float or an integer.
    Computes {
        d: (Register, Type),
        sources: Vec<(Register, Type)>,
    },
    /// Rounds a float to an integer.
    Rounds {
        a: (Register, Type),
        to: Type,
    },
    /// Returns a source, completely or in parts.
    Passes {
        to: Vec<Register>,
        from: Vec<Register>,
        exactly: bool,
    },
    /// Exchanges values between lanes.
    Exchanges {
        to: Register,
        from: Register,
    },
    /// Fills registers with values from elsewhere.
    Fills(Vec<Register>),
    /// Makes the values of registers visible to others, or multiplies them.
    Uses(Vec<Register>),
}

/// Returns the rules of all instructions.
pub(crate) fn rules(code: &KernelCode) -> Vec<Rule> {
    let mut names = BTreeMap::new();
    (0..code.ops.len())
        .map(|pc| rule(code, pc, &mut names))
        .collect()
}

/// The types of the destination and the sources of rows, by name.
type Known = BTreeMap<String, Option<(Type, &'static [Type])>>;

fn rule(code: &KernelCode, pc: usize, known: &mut Known) -> Rule {
    let (name, operands) = parts(&code.places[pc]);
    let (first, others) = split(operands);
    let named = |text: &str| named(code, pc, text);
    match &code.ops[pc].op {
        Op::Alu(_, slots) => {
            let row = *known.entry(name.to_owned()).or_insert_with(|| types(name));
            match (row, opcode(name)) {
                (Some((d, sources)), opcode) => of_row(opcode, d, sources, slots),
                (None, "cvt") => of_conversion(name, slots, [&named(first), &named(others)])
                    .unwrap_or_else(|| Rule::Uses(named(others))),
                (None, opcode) => Rule::Passes {
                    to: named(first),
                    from: named(others),
                    exactly: matches!(opcode, "mov" | "selp") && !operands.contains('{'),
                },
            }
        }
        Op::Exchange(Exchange::Shuffle(s)) => s.d.map_or(Rule::Nothing, |d| Rule::Exchanges {
            to: (Bank::W32, d),
            from: (Bank::W32, s.a),
        }),
        Op::Load(_) | Op::LoadParam(_) | Op::Copies(_) => Rule::Fills(named(first)),
        Op::Image(of) if !of.stores() => Rule::Fills(named(first)),
        op if uses(op) => Rule::Uses(named(operands)),
        _ => Rule::Nothing,
    }
}

/// Returns true if an instruction passes on the values of its registers.
fn uses(op: &Op) -> bool {
    matches!(
        op,
        Op::Store(_)
            | Op::Atomic(_)
            | Op::Atomics(_)
            | Op::Mma(_)
            | Op::Product(_)
            | Op::Wgmma(_)
            | Op::StoreFragment(_)
            | Op::StoreMatrix(_)
            | Op::AsyncStore(_)
            | Op::TensorMap(_)
            | Op::Image(_)
            | Op::Call(_)
    )
}

fn opcode(name: &str) -> &str {
    name.split('.').next().unwrap_or("")
}

/// Returns the types of the row with a name.
pub(crate) fn types(name: &str) -> Option<(Type, &'static [Type])> {
    let dotted: Vec<String> = name
        .split('.')
        .skip(1)
        .map(|part| format!(".{part}"))
        .collect();
    let suffixes: Vec<(&str, u32)> = dotted.iter().map(|part| (part.as_str(), 0)).collect();
    let row = match isa::find(opcode(name), name) {
        OpcodeLookup::Row(row) => row,
        _ => match isa::find_in_any_order(opcode(name), &suffixes) {
            OpcodeLookup::Row(row) => row,
            _ => return None,
        },
    };
    Some((row.dst, row.src))
}

fn of_row(opcode: &str, d: Type, sources: &[Type], slots: &OperandSlots) -> Rule {
    let at = |slot: u32, ty: Type| ((bank(ty), slot), ty);
    let numbered = [slots.a, slots.b, slots.c, slots.x];
    match opcode {
        "div" | "rem" if is_integer(d) => Rule::Divides {
            a: at(slots.a, d),
            b: (bank(d), slots.b),
        },
        _ => Rule::Computes {
            d: at(slots.d, d),
            sources: numbered
                .iter()
                .zip(sources)
                .map(|(slot, ty)| at(*slot, *ty))
                .collect(),
        },
    }
}

/// Returns the rule of a conversion. Its registers may be wider than their types.
fn of_conversion(
    name: &str,
    slots: &OperandSlots,
    [to_named, from_named]: [&[Register]; 2],
) -> Option<Rule> {
    let types: Vec<Type> = name.split('.').skip(1).filter_map(suffix).collect();
    let [.., to, from] = types[..] else {
        return None;
    };

    let at = |slot: u32, ty: Type, named: &[Register]| {
        (
            named
                .iter()
                .find(|register| register.1 == slot)
                .copied()
                .unwrap_or((bank(ty), slot)),
            ty,
        )
    };
    let source = |slot: u32| at(slot, from, from_named);
    let known = |ty: Type| is_integer(ty) || is_float(ty);
    if !known(to) || !known(from) {
        return None;
    }

    if is_integer(to) {
        if is_float(from) && !name.contains(".sat") {
            return Some(Rule::Rounds {
                a: source(slots.a),
                to,
            });
        }
        return Some(Rule::Nothing);
    }

    let pair = matches!(to, Type::F16x2 | Type::Bf16x2) && from == Type::F32;
    let sources = [slots.a, slots.b]
        .into_iter()
        .take(1 + usize::from(pair))
        .map(source);
    Some(Rule::Computes {
        d: at(slots.d, to, to_named),
        sources: sources.collect(),
    })
}

/// Returns the type of a suffix without its dot.
fn suffix(part: &str) -> Option<Type> {
    Type::parse(&format!(".{part}"))
}

fn is_integer(ty: Type) -> bool {
    matches!(ty.kind(), TypeKind::Unsigned | TypeKind::Signed)
}

pub(crate) fn is_float(ty: Type) -> bool {
    use Type::{Bf16, Bf16x2, F16, F16x2, F32, F32x2, F64, Tf32};
    matches!(ty, F16 | F16x2 | F32 | F32x2 | F64 | Bf16 | Bf16x2 | Tf32)
}
