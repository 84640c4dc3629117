//! Bit fields as compilers write them: a word is loaded, some of its bits are replaced, and it is stored where it was.
//!
//! The first such store to a word finds it without a value, and that is no mistake: the bits that are kept are as unknown
//! afterwards as before. Only loads whose value goes nowhere else are taken for it.

use crate::code::{Instruction, Op};
use crate::parse::ast::{Entry, Inst, OperandKind, Statement};

/// Instructions between the load and the store that are looked at.
const NEAR: usize = 16;

/// Marks the loads that are the first half of a change of bits.
pub(super) fn mark(entry: &Entry<'_>, ops: &mut [Instruction]) {
    let instructions = || {
        entry.body.statements.iter().filter_map(|s| match s {
            Statement::Inst(inst) => Some(inst),
            _ => None,
        })
    };
    let all: Vec<&Inst<'_>> = instructions().collect();
    for (i, op) in ops.iter_mut().enumerate().take(all.len()) {
        if let Op::Load(transfer) = &mut op.op {
            transfer.keeps_bits = changes_bits(&all, i);
        }
    }
}

fn name<'a>(inst: &Inst<'a>, i: usize) -> Option<&'a str> {
    match inst.operands.get(i)?.kind {
        OperandKind::Name(name) => Some(name),
        _ => None,
    }
}

fn address<'a>(inst: &Inst<'a>, i: usize) -> Option<(&'a str, i64)> {
    match inst.operands.get(i)?.kind {
        OperandKind::Address(Some(name), offset) => Some((name, offset)),
        _ => None,
    }
}

/// Whether the load of number `at` gives a value of which some bits are masked away or replaced, and the rest is stored
/// to the same address.
fn changes_bits(all: &[&Inst<'_>], at: usize) -> bool {
    let (Some(loaded), Some(place)) = (name(all[at], 0), address(all[at], 1)) else { return false };
    let near = &all[at + 1..all.len().min(at + 1 + NEAR)];
    let Some(first) = near.iter().position(|inst| mentions(inst, loaded)) else { return false };
    if !masks(near[first], loaded) {
        return false;
    }
    let Some(mut value) = name(near[first], 0) else { return false };
    for inst in &near[first + 1..] {
        match inst.opcode {
            "st" if address(inst, 0) == Some(place) => {
                return name(inst, 1) == Some(value) && used_once(all, loaded);
            }
            "or" | "bfi" if mentions(inst, value) => match name(inst, 0) {
                Some(next) => value = next,
                None => return false,
            },
            "bra" | "call" | "ret" => return false,
            _ if mentions(inst, value) || name(inst, 0) == Some(place.0) => return false,
            _ => {}
        }
    }
    false
}

/// `and` with a constant, or `bfi` into the value.
fn masks(inst: &Inst<'_>, loaded: &str) -> bool {
    match inst.opcode {
        "and" => {
            name(inst, 1) == Some(loaded)
                && matches!(inst.operands.get(2).map(|o| &o.kind), Some(OperandKind::Number(_)))
        }
        "bfi" => name(inst, 2) == Some(loaded) && name(inst, 1) != Some(loaded),
        _ => false,
    }
}

fn mentions(inst: &Inst<'_>, name: &str) -> bool {
    inst.operands.iter().flat_map(|o| o.names()).any(|(n, _)| n == name)
}

/// Whether a register is named by its load and one instruction more.
fn used_once(all: &[&Inst<'_>], name: &str) -> bool {
    all.iter().filter(|inst| mentions(inst, name)).count() == 2
}
