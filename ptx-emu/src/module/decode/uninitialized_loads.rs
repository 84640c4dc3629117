//! Loads of uninitialized local memory that compilers emit on purpose: bit fields and padding.
//!
//! The first store to a bit field loads the word, replaces some bits and stores the word again. The
//! other bits are as undefined afterwards as before. A copy of a structure also loads its padding
//! and stores it elsewhere. Unoptimized code moves such values between registers and passes them to
//! functions. Optimized code copies pairs of words to global memory, and padding counts as
//! initialized from then on.
//!
//! A load is treated in this way only if its value is used for nothing else.

use std::collections::{HashMap, HashSet};

use crate::module::code::{Instruction, InstructionSpace, Op, Unwritten};
use crate::syntax::ast::{Entry, OperandKind, ParsedInstruction, Statement};

/// The maximum number of instructions between the load and the store.
const NEAR: usize = 16;

/// The uses of a register: all, as a destination, as the source of a store to local, generic or
/// parameter memory or of a shuffle, as the source of a store to global or shared memory, and the
/// registers to which it is moved.
#[derive(Clone, Default)]
struct Uses<'a> {
    all: u32,
    written: u32,
    stored: u32,
    sent: u32,
    moved: Vec<&'a str>,
}

/// Marks the loads that may read uninitialized bytes.
pub(crate) fn mark(entry: &Entry<'_>, ops: &mut [Instruction]) {
    let instructions = entry.body.statements.iter().filter_map(|s| match s {
        Statement::Inst(inst) => Some(inst),
        _ => None,
    });
    let all: Vec<&ParsedInstruction<'_>> = instructions.collect();
    let uses = uses(&all);
    let kept = handed_on(&uses);
    for (i, op) in ops.iter_mut().enumerate().take(all.len()) {
        if let Op::Load(transfer) = &mut op.op
            && matches!(
                transfer.space,
                InstructionSpace::Local | InstructionSpace::Generic
            )
        {
            // The register occurs exactly twice, in the load and in the store, so the value goes
            // nowhere else.
            let sent = |name: &str| uses.get(name).is_some_and(|u| (u.all, u.sent) == (2, 1));
            transfer.unwritten = match name(all[i], 0) {
                Some(loaded) if kept.contains(loaded) => Unwritten::Copied,
                Some(loaded)
                    if uses.get(loaded).is_some_and(|u| u.all == 2) && changes_bits(&all, i) =>
                {
                    Unwritten::Zeros
                }
                _ if loaded(all[i]).all(sent) => Unwritten::Gaps,
                _ => Unwritten::Fault,
            };
        }
    }
}

fn uses<'a>(all: &[&ParsedInstruction<'a>]) -> HashMap<&'a str, Uses<'a>> {
    let mut uses = HashMap::<&str, Uses<'a>>::new();
    for inst in all {
        for (name, _) in inst.operands.iter().flat_map(|o| o.names()) {
            uses.entry(name).or_default().all += 1;
        }

        let elsewhere = inst
            .mods
            .iter()
            .any(|(m, _)| m.starts_with(".global") || m.starts_with(".shared"));
        let named = |i: usize| inst.operands.get(i).into_iter().flat_map(|o| o.names());
        match inst.opcode {
            "st" if elsewhere => {
                for (name, _) in named(1) {
                    uses.entry(name).or_default().sent += 1;
                }
            }
            // A shuffle of an uninitialized source leaves its destination uninitialized.
            "st" | "shfl" => {
                for (name, _) in named(1) {
                    uses.entry(name).or_default().stored += 1;
                }
            }
            "ld" | "mov" => {
                for (name, _) in named(0) {
                    uses.entry(name).or_default().written += 1;
                }
            }
            _ => {}
        }

        if let ("mov", Some(to), Some(from)) = (inst.opcode, name(inst, 0), name(inst, 1)) {
            uses.entry(from).or_default().moved.push(to);
        }
    }
    uses
}

/// Returns the registers that are only loaded, moved and stored, and moved only to such registers.
fn handed_on<'a>(uses: &HashMap<&'a str, Uses<'a>>) -> HashSet<&'a str> {
    let only = |u: &Uses<'_>| {
        u.written > 0 && u.all > u.written && u.written + u.stored + u.moved.len() as u32 == u.all
    };
    let mut kept: HashSet<&str> = uses
        .iter()
        .filter(|(_, u)| only(u))
        .map(|(name, _)| *name)
        .collect();
    let mut sources = HashMap::<&str, Vec<&str>>::new();
    for (from, of) in uses {
        for to in of.moved.iter() {
            sources.entry(to).or_default().push(from);
        }
    }

    let mut spoilt: Vec<&str> = sources
        .keys()
        .copied()
        .filter(|to| !kept.contains(to))
        .collect();

    // A register that is moved to one with other uses has other uses itself. This follows moves
    // backwards until nothing changes.
    while let Some(to) = spoilt.pop() {
        let from = sources.get(to).into_iter().flatten().copied();
        spoilt.extend(from.filter(|from| kept.remove(from)));
    }

    kept
}

/// Returns the registers that a load writes.
fn loaded<'a>(load: &'a ParsedInstruction<'_>) -> impl Iterator<Item = &'a str> {
    load.operands
        .first()
        .into_iter()
        .flat_map(|o| o.names())
        .map(|(name, _)| name)
}

fn name<'a>(inst: &ParsedInstruction<'a>, i: usize) -> Option<&'a str> {
    match inst.operands.get(i)?.kind {
        OperandKind::Name(name) => Some(name),
        _ => None,
    }
}

fn address<'a>(inst: &ParsedInstruction<'a>, i: usize) -> Option<(&'a str, i64)> {
    match inst.operands.get(i)?.kind {
        OperandKind::Address(Some(name), offset) => Some((name, offset)),
        _ => None,
    }
}

/// Returns true if the value of the load at index `at` is only used to replace some of its bits and
/// to be stored to the same address.
fn changes_bits(all: &[&ParsedInstruction<'_>], at: usize) -> bool {
    let (Some(loaded), Some(place)) = (name(all[at], 0), address(all[at], 1)) else {
        return false;
    };

    let near = &all[at + 1..all.len().min(at + 1 + NEAR)];
    let Some(first) = near.iter().position(|inst| mentions(inst, loaded)) else {
        return false;
    };

    // The loaded value must be masked before anything else happens to it.
    let Some(mut value) = name(near[first], 0).filter(|_| masks(near[first], loaded)) else {
        return false;
    };

    for inst in &near[first + 1..] {
        match inst.opcode {
            "st" if address(inst, 0) == Some(place) => return name(inst, 1) == Some(value),
            "or" | "bfi" if mentions(inst, value) => match name(inst, 0) {
                Some(next) => value = next,
                None => return false,
            },
            // Behind a branch, the value might be used on another path.
            "bra" | "call" | "ret" => return false,
            _ if mentions(inst, value) || name(inst, 0) == Some(place.0) => return false,
            _ => {}
        }
    }

    false
}

/// Returns true for an `and` with a constant, or a `bfi` into the value.
fn masks(inst: &ParsedInstruction<'_>, loaded: &str) -> bool {
    match inst.opcode {
        "and" => {
            name(inst, 1) == Some(loaded)
                && matches!(
                    inst.operands.get(2).map(|o| &o.kind),
                    Some(OperandKind::Number(_))
                )
        }
        "bfi" => name(inst, 2) == Some(loaded) && name(inst, 1) != Some(loaded),
        _ => false,
    }
}

fn mentions(inst: &ParsedInstruction<'_>, name: &str) -> bool {
    inst.operands
        .iter()
        .flat_map(|o| o.names())
        .any(|(n, _)| n == name)
}
