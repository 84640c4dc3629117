//! Executes instructions with uninitialized operands, if they may propagate them.
//!
//! The rules are those of [`propagation`](crate::sanitize::init::propagation).

use crate::machine::predicates::set_predicates;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::analysis::instruction_text::{Register, parts};
use crate::module::code::instruction::Op;
use crate::module::code::operand::PredSource;
use crate::module::registers::{Bank, Undefined};
use crate::sanitize::init::propagation::{outcomes, written_by};

/// Executes an instruction that reads an uninitialized register, if it may propagate the
/// uninitialized value.
#[cold]
pub(crate) fn propagate(
    block: &Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &Op,
    u: Undefined,
) -> Checked<()> {
    match op {
        Op::Alu(run, slots) => {
            let to = written_by(block.grid.code, w.now.pc as usize);
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

fn logic_for_the_others(
    block: &Block<'_, '_>,
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
    block: &Block<'_, '_>,
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
