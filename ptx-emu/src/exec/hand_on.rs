//! Registers without a value that an instruction hands on: who uses them is the mistake.
//!
//! `mov` and `selp` leave what they write unwritten. Where a load [found nothing](super::regs::PutOff), comparisons do so
//! too, and a conjunction with what is false, or a disjunction with what is true, has a value all the same: algorithms look
//! one element too far, and ask whether it is one too far at the same time.

use super::block::{Checked, Worker};
use super::regs::{Bank, Regs, Undefined};
use super::rules::parts;
use super::step::set_predicates;
use super::warp::Warp;
use crate::code::{Op, PredSource};

/// The lanes in which a predicate is known, and in which it is then true.
fn known(regs: &Regs, source: PredSource) -> (u32, u32) {
    match source {
        PredSource::Register { slot, negated } => {
            let value = regs.pred[slot as usize];
            (regs.pred_defined[slot as usize], if negated { !value } else { value })
        }
        PredSource::Constant(value) => (u32::MAX, if value { u32::MAX } else { 0 }),
    }
}

/// The lanes in which an operation on predicates may give true, and in which it may give false.
fn outcomes(regs: &Regs, table: u8, a: PredSource, b: PredSource) -> (u32, u32) {
    let may = |source, wanted: bool| {
        let (known, value) = known(regs, source);
        !known | if wanted { value } else { !value }
    };
    let mut found = (0, 0);
    for case in 0..4 {
        let lanes = may(a, case & 2 != 0) & may(b, case & 1 != 0);
        let to = if table >> case & 1 != 0 { &mut found.0 } else { &mut found.1 };
        *to |= lanes;
    }
    found
}

impl Worker<'_, '_> {
    /// Executes an instruction that reads a register that some lanes have not written, if it hands it on.
    #[cold]
    pub(super) fn hand_on(&self, w: &mut Warp, mask: u32, op: &Op, u: Undefined) -> Checked<()> {
        match op {
            Op::Alu(run, slots) if self.copies(w, u) => {
                self.for_the_others(w, mask, &[(u.bank.bits(), slots.d)], u, |w, lanes| {
                    run(&mut w.regs, lanes, slots)
                })
            }
            Op::SetP(s) if s.test.with.is_none() && u.bank != Bank::Pred => {
                let to: Vec<_> = [s.p, s.q].into_iter().flatten().map(|slot| (1, slot)).collect();
                match w.regs.found_nothing(u.bank.bits(), u.slot, u.lanes) {
                    Some(_) => {
                        self.for_the_others(w, mask, &to, u, |w, lanes| set_predicates(&mut w.regs, lanes, s))
                    }
                    None => Err(self.undefined(w, u)),
                }
            }
            Op::Logic { table, d, a, b } => {
                let (holds, fails) = outcomes(&w.regs, *table, *a, *b);
                let unknown = mask & holds & fails;
                w.regs.set_pred(*d, mask & !unknown, holds);
                match w.regs.found_nothing(1, u.slot, u.lanes).cloned() {
                    Some(fault) if unknown != 0 => w.regs.put_off(1, *d, unknown, Box::new(fault)),
                    None if unknown != 0 => return Err(self.undefined(w, u)),
                    _ => {}
                }
                Ok(())
            }
            _ => Err(self.undefined(w, u)),
        }
    }

    /// Whether the instruction is one that copies a register.
    fn copies(&self, w: &Warp, u: Undefined) -> bool {
        let (name, operands) = parts(&self.grid.code.places[w.now.pc as usize]);
        let moves = name.starts_with("mov.") || name.starts_with("selp.") && u.bank != Bank::Pred;
        moves && !operands.contains('{') && w.lost_at(u.slot, u.lanes).is_none()
    }

    /// Executes an instruction in the lanes that have all it reads; what it writes has no value in the others.
    fn for_the_others(
        &self,
        w: &mut Warp,
        mask: u32,
        to: &[(u32, u32)],
        u: Undefined,
        run: impl Fn(&mut Warp, u32) -> Result<(), Undefined>,
    ) -> Checked<()> {
        let (mut lanes, mut missing) = (mask & !u.lanes, vec![u]);
        while let Err(more) = run(w, lanes) {
            if missing.iter().any(|u| (u.bank, u.slot) == (more.bank, more.slot)) || more.bank != u.bank {
                return Err(self.undefined(w, more));
            }
            lanes &= !more.lanes;
            missing.push(more);
        }
        for u in missing {
            let fault = w.regs.found_nothing(u.bank.bits(), u.slot, u.lanes).cloned();
            for &(bits, slot) in to {
                w.regs.forget(bits, slot, u.lanes);
                fault.iter().for_each(|f| w.regs.put_off(bits, slot, u.lanes, Box::new(f.clone())));
            }
        }
        Ok(())
    }
}
