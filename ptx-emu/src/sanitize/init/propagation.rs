//! Propagates uninitialized registers, as Valgrind's memcheck does.
//!
//! The result of an operation on an undefined value is undefined too. Only a use that decides
//! something is a fault: a branch, an address or a store. A conjunction with false and a
//! disjunction with true are defined, even if the other operand is not.
//!
//! Undefined values are tolerated this long because correct programs compute with them. Compilers
//! compute results in advance that may not be needed, and algorithms read one element too far and
//! test for that at the same time.

use crate::machine::interp::interpreter::set_predicates;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::analysis::instruction_text::{Register, named, parts, split};
use crate::module::code::{Op, PredSource};
use crate::module::registers::{Bank, Regs, Undefined};

/// The name parts of instructions that read or write the carry.
const CARRY: [&str; 4] = [".cc", "addc", "subc", "madc"];

/// Returns the lanes in which a predicate is initialized, and those in which it is then true.
fn known(regs: &Regs, source: PredSource) -> (u32, u32) {
    match source {
        PredSource::Register { slot, negated } => {
            let value = regs.pred[slot as usize];
            (
                regs.pred_defined[slot as usize],
                if negated { !value } else { value },
            )
        }
        PredSource::Constant(value) => (u32::MAX, if value { u32::MAX } else { 0 }),
    }
}

/// Returns the lanes in which an operation on predicates may be true, and those in which it may be
/// false.
fn outcomes(regs: &Regs, table: u8, a: PredSource, b: PredSource) -> (u32, u32) {
    let may = |source, wanted: bool| {
        let (known, value) = known(regs, source);
        !known | if wanted { value } else { !value }
    };
    let mut found = (0, 0);
    for case in 0..4 {
        let lanes = may(a, case & 2 != 0) & may(b, case & 1 != 0);
        let to = if table >> case & 1 != 0 {
            &mut found.0
        } else {
            &mut found.1
        };
        *to |= lanes;
    }
    found
}

/// Executes an instruction that reads an uninitialized register, if it may propagate the
/// uninitialized value.
#[cold]
pub(crate) fn hand_on(
    block: &Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &Op,
    u: Undefined,
) -> Checked<()> {
    match op {
        Op::Alu(run, slots) => {
            let to = written_by(block, w.now.pc as usize);
            for_the_others(block, w, mask, u, &to, |w, lanes| {
                run(&mut w.regs, lanes, slots)
            })
        }
        Op::SetP(s) if s.test.with.is_none() => {
            let to: Vec<_> = [s.p, s.q]
                .into_iter()
                .flatten()
                .map(|slot| (Bank::Pred, slot))
                .collect();
            for_the_others(block, w, mask, u, &to, |w, lanes| {
                set_predicates(&mut w.regs, lanes, s)
            })
        }
        Op::Logic { table, d, a, b } => {
            logic_for_the_others(block, w, mask, u, (*table, *d), [*a, *b])
        }
        _ => Err(block.undefined(w, u)),
    }
}

/// Returns the registers that an instruction writes, or none if it reads or writes the carry.
fn written_by(block: &Worker<'_, '_>, pc: usize) -> Vec<Register> {
    let (name, operands) = parts(&block.grid.code.places[pc]);
    if CARRY.iter().any(|part| name.contains(part)) {
        Vec::new()
    } else {
        named(block.grid.code, pc, split(operands).0)
    }
}

fn logic_for_the_others(
    block: &Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    u: Undefined,
    (table, d): (u8, u32),
    [a, b]: [PredSource; 2],
) -> Checked<()> {
    let (holds, fails) = outcomes(&w.regs, table, a, b);
    let unknown = mask & holds & fails;
    let fault = block.undefined(w, u);
    w.regs.set_pred(d, mask & !unknown, holds);
    if unknown != 0 {
        w.regs.put_off(1, d, unknown, fault);
    }
    Ok(())
}

/// Executes an instruction in the lanes whose sources are initialized. Its results are
/// uninitialized in the other lanes.
fn for_the_others(
    block: &Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    u: Undefined,
    to: &[Register],
    run: impl Fn(&mut Warp, u32) -> Result<(), Undefined>,
) -> Checked<()> {
    if to.is_empty() {
        return Err(block.undefined(w, u));
    }
    let name = parts(&block.grid.code.places[w.now.pc as usize]).0;
    let copies = name.starts_with("mov.") || name.starts_with("selp.");
    let mut lanes = mask & !u.lanes;
    let mut missing = vec![(u, block.undefined(w, u))];
    while let Err(more) = run(w, lanes) {
        lanes &= !more.lanes;
        missing.push((more, block.undefined(w, more)));
    }
    for (u, fault) in missing {
        let silent = copies
            && u.bank != Bank::Pred
            && w.regs
                .found_nothing(u.bank.bits(), u.slot, u.lanes)
                .is_none();
        for &(bank, slot) in to {
            if silent && w.lost_at(u.slot, u.lanes).is_none() {
                w.regs.forget(bank.bits(), slot, u.lanes)
            } else {
                w.regs.put_off(bank.bits(), slot, u.lanes, fault.clone())
            }
        }
    }
    Ok(())
}
