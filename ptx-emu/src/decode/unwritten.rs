//! Local memory without a value that is no mistake, as compilers write it: bit fields and gaps of structures.
//!
//! The first store to a bit field loads the word, replaces some bits and stores it where it was; the bits that are kept are
//! as unknown afterwards as before. A copy of a structure loads its gaps too, and stores them elsewhere. Only loads whose
//! value goes nowhere else are taken for either.

use std::collections::HashMap;

use crate::code::{Instruction, Op, Space, Unwritten};
use crate::parse::ast::{Entry, Inst, OperandKind, Statement};

/// Instructions between the load and the store that are looked at.
const NEAR: usize = 16;

/// How often a register is named, and how often as what a store to local or generic addresses stores.
#[derive(Clone, Copy, Default)]
struct Uses {
    all: u32,
    stored: u32,
}

/// Marks the loads that may find bytes without a value.
pub(super) fn mark(entry: &Entry<'_>, ops: &mut [Instruction]) {
    let instructions = entry.body.statements.iter().filter_map(|s| match s {
        Statement::Inst(inst) => Some(inst),
        _ => None,
    });
    let all: Vec<&Inst<'_>> = instructions.collect();
    let uses = uses(&all);
    for (i, op) in ops.iter_mut().enumerate().take(all.len()) {
        if let Op::Load(transfer) = &mut op.op
            && matches!(transfer.space, Space::Local | Space::Generic)
        {
            transfer.unwritten = kind(&all, i, &uses);
        }
    }
}

/// How a load of a single register is used.
fn kind(all: &[&Inst<'_>], at: usize, uses: &HashMap<&str, Uses>) -> Unwritten {
    let Some(found) = name(all[at], 0).and_then(|loaded| uses.get(loaded)) else { return Unwritten::Fault };
    match *found {
        Uses { all: 2.., stored } if stored + 1 == found.all => Unwritten::Copied,
        Uses { all: 2, .. } if changes_bits(all, at) => Unwritten::Zeros,
        _ => Unwritten::Fault,
    }
}

fn uses<'a>(all: &[&Inst<'a>]) -> HashMap<&'a str, Uses> {
    let mut uses = HashMap::<&str, Uses>::new();
    for inst in all {
        for (name, _) in inst.operands.iter().flat_map(|o| o.names()) {
            uses.entry(name).or_default().all += 1;
        }
        let elsewhere = inst.mods.iter().any(|(m, _)| m.starts_with(".global") || m.starts_with(".shared"));
        if inst.opcode == "st" && !elsewhere {
            for (name, _) in inst.operands.get(1).into_iter().flat_map(|o| o.names()) {
                uses.entry(name).or_default().stored += 1;
            }
        }
    }
    uses
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
    let Some(mut value) = name(near[first], 0).filter(|_| masks(near[first], loaded)) else { return false };
    for inst in &near[first + 1..] {
        match inst.opcode {
            "st" if address(inst, 0) == Some(place) => return name(inst, 1) == Some(value),
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
