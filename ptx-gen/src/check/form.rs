//! Form checks: operands match their row of the instruction table, and notes are ASCII.

use super::error::{BuildError, ErrorKind};
use crate::ir::*;
use crate::isa::Slot;
use crate::ty::{Class, Kind};

/// Checks the operands of an instruction.
///
/// `dst` and `src` are the operands as slices, which the caller has already dereferenced.
#[inline]
pub(super) fn inst(i: &Inst, dst: &[Reg], src: &[Operand], errors: &mut Vec<BuildError>) {
    if !(has_types(i) && has_results(i, dst) && has_operands(i, src)) {
        let kind = ErrorKind::Operand {
            text: crate::print::inst(i),
            what: wrong(i),
        };
        errors.push(BuildError {
            at: Some(i.at),
            kind,
        });
    }
}

pub(super) fn note(text: &str, at: At) -> Option<BuildError> {
    let fits = text.bytes().all(|b| b.is_ascii() && !b.is_ascii_control());
    (!fits).then_some(BuildError {
        at: Some(at),
        kind: ErrorKind::NotAscii,
    })
}

#[inline]
fn has_types(i: &Inst) -> bool {
    let op = i.op;
    (op.types.is_empty() || op.types.contains(&i.kind))
        && i.from.is_none_or(|from| op.from.contains(&from))
}

#[inline]
fn has_results(i: &Inst, dst: &[Reg]) -> bool {
    match (i.op.form.dst, dst) {
        ([], []) => true,
        // Slots for several registers come first, because they match `[slot]` as well.
        ([Slot::Vec(n)], regs) => are(regs, *n, i.kind.class()),
        ([Slot::Regs(kind, n)], regs) => are(regs, *n, kind.class()),
        ([Slot::Accumulators(kind)], regs) => {
            are(regs, regs.len() as u32, kind.class()) && columns(regs.len()).is_some()
        }
        ([Slot::Halves], regs) => are(regs, 2, Class::Half),
        ([slot], [r]) => holds(r, slot_kind(*slot, i)),
        (slots, regs) => {
            slots.len() == regs.len()
                && slots
                    .iter()
                    .zip(regs)
                    .all(|(s, r)| holds(r, slot_kind(*s, i)))
        }
    }
}

/// Returns the number of columns of a matmul with `registers` accumulators per lane, if it is
/// allowed.
fn columns(registers: usize) -> Option<usize> {
    Some(2 * registers).filter(|n| n.is_multiple_of(8) && (8..=256).contains(n))
}

/// Returns true if `regs` are `n` registers of `class`.
fn are(regs: &[Reg], n: u32, class: Class) -> bool {
    regs.len() == n as usize && regs.iter().all(|r| r.kind.class() == class)
}

#[inline]
fn has_operands(i: &Inst, src: &[Operand]) -> bool {
    let slots = i.op.form.src;
    slots.len() == src.len() && slots.iter().zip(src).all(|(slot, o)| fits(*slot, o, i))
}

/// Returns the message for an instruction with invalid operands.
#[cold]
fn wrong(i: &Inst) -> String {
    let op = i.op;
    let slots = op.form.src;

    // The checks are repeated in the order of `inst`, so that the message names the first failure.
    if !op.types.is_empty() && !op.types.contains(&i.kind) {
        return format!("{} has no .{} form", op.template, i.kind.name());
    }

    if let Some(from) = i.from
        && !op.from.contains(&from)
    {
        return format!("{} does not convert from .{}", op.template, from.name());
    }

    if !has_results(i, &i.dst) {
        if let [Slot::Accumulators(_)] = op.form.dst {
            return format!(
                "{} columns of accumulators: expected a multiple of 8 up to 256",
                2 * i.dst.len()
            );
        }
        return "the registers written are not those of the row".into();
    }

    match slots
        .iter()
        .zip(&i.src)
        .position(|(slot, o)| !fits(*slot, o, i))
    {
        Some(bad) if slots.len() == i.src.len() => {
            format!("operand {} must be {}", bad + 1, describe(slots[bad], i))
        }
        _ => format!("takes {} operands, not {}", slots.len(), i.src.len()),
    }
}

/// Returns true if a register of this class can hold a value of `kind`.
fn holds(r: &Reg, kind: Kind) -> bool {
    r.kind.class() == kind.class()
}

fn slot_kind(slot: Slot, i: &Inst) -> Kind {
    match slot {
        Slot::S => i.from.unwrap_or(i.kind),
        Slot::Is(kind) => kind,
        Slot::Wide if i.kind == Kind::S32 => Kind::S64,
        Slot::Wide => Kind::U64,
        Slot::Global | Slot::Param | Slot::Policy | Slot::Descriptor | Slot::TensorMap => Kind::U64,
        Slot::Shared
        | Slot::Barrier
        | Slot::Parity
        | Slot::Bytes
        | Slot::Threads
        | Slot::Cluster => Kind::U32,
        // PTX wants a 16-bit register of any type, and `f16` is the 16-bit type of the table.
        Slot::Blocks => Kind::F16,
        Slot::Regs(kind, _) => kind,
        _ => i.kind,
    }
}

#[inline]
fn fits(slot: Slot, o: &Operand, i: &Inst) -> bool {
    match o {
        Operand::Reg(r) => is_value(slot) && holds(r, slot_kind(slot, i)),
        Operand::Imm(imm) => fits_literal(slot, *imm, i),
        Operand::Group(regs) => match slot {
            Slot::Vec(n) | Slot::Regs(_, n) => are(regs, n, slot_kind(slot, i).class()),
            Slot::Halves => are(regs, 2, Class::Half),
            _ => false,
        },
        Operand::Addr(Base::Reg(r), _) => {
            // The register class separates the spaces: global addresses have 64 bits, and shared
            // ones 32.
            use Slot::{Barrier, Cluster, Global, Shared, TensorMap};
            matches!(slot, Global | Shared | Barrier | Cluster | TensorMap)
                && holds(r, slot_kind(slot, i))
        }
        Operand::Addr(Base::Symbol(_), _) => slot == Slot::Param,
        Operand::Special(..) => slot == Slot::Any,
        Operand::Symbol(_) => slot == Slot::ParamName || slot == Slot::Any && i.kind == Kind::U32,
        Operand::Tensor(regs) => slot == Slot::Tensor && is_place(regs),
    }
}

/// Returns true if `regs` are the address of a tensor map and one to five coordinates.
fn is_place(regs: &[Reg]) -> bool {
    match regs {
        [map, coordinates @ ..] => {
            holds(map, Kind::U64)
                && (1..=5).contains(&coordinates.len())
                && are(coordinates, coordinates.len() as u32, Class::Word)
        }
        [] => false,
    }
}

/// Returns true if `slot` accepts a plain register.
fn is_value(slot: Slot) -> bool {
    use Slot::*;
    matches!(
        slot,
        T | S | Is(_) | Wide | Any | Parity | Bytes | Threads | Policy | Descriptor | Blocks
    )
}

fn fits_literal(slot: Slot, imm: Imm, i: &Inst) -> bool {
    match slot {
        Slot::Parity => imm.bits <= 1,
        Slot::Threads => imm.bits.is_multiple_of(32) && imm.bits > 0,
        Slot::Bytes => imm.bits.is_multiple_of(16),
        Slot::T | Slot::Is(_) | Slot::Wide | Slot::Any => {
            imm.kind == register_kind(slot_kind(slot, i))
        }
        Slot::Lit(low, high) => (u64::from(low)..=u64::from(high)).contains(&imm.bits),
        _ => false,
    }
}

/// Returns the type of a register that holds a value of `kind`, because bytes and 16-bit integers
/// widen.
fn register_kind(kind: Kind) -> Kind {
    match kind {
        Kind::U8 | Kind::U16 => Kind::U32,
        Kind::S8 => Kind::S32,
        _ => kind,
    }
}

fn describe(slot: Slot, i: &Inst) -> String {
    match slot {
        Slot::Lit(low, high) => format!("a literal from {low} to {high}"),
        Slot::Vec(n) => format!("{n} registers of .{}", i.kind.name()),
        Slot::Regs(kind, n) => format!("{n} registers of .{}", kind.name()),
        Slot::Halves => "two registers of .f16".into(),
        Slot::Barrier => "the address of an mbarrier".into(),
        Slot::Parity => "0 or 1".into(),
        Slot::Bytes => "a multiple of 16".into(),
        Slot::Threads => "a positive multiple of 32".into(),
        Slot::Global => "an address in global memory".into(),
        Slot::Shared => "an address in shared memory".into(),
        Slot::Param | Slot::ParamName => "a parameter".into(),
        Slot::Descriptor => "the descriptor of a tile".into(),
        Slot::Tensor => "a tensor map and one to five coordinates".into(),
        Slot::TensorMap => "the address of a tensor map".into(),
        Slot::Blocks => "16 bits, one for each block".into(),
        Slot::Cluster => "an address in shared memory of the cluster".into(),
        _ => format!("of type .{}", slot_kind(slot, i).name()),
    }
}
