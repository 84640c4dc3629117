//! Uniformity: what a block or a warp must reach together stands in no branch that splits it.
//!
//! Each register has the widest group of threads in which it is the same, from the lattice block < warp < lane.
//! A result is as narrow as its narrowest operand and as the branches around it. A loop is walked until the
//! levels of the variables it carries no longer change; levels only narrow, so that is after a few rounds.

use super::error::{Error, ErrorKind};
use super::per_register::PerRegister;
use super::scope::registers;
use crate::ir::*;
use crate::isa::{self, Effect, GridStep};

/// What is wrong, and the level of each register.
pub(super) fn check(p: &Program) -> (PerRegister<Level>, Vec<Error>) {
    let mut pinned = PerRegister::new(p, None);
    for (reg, level) in &p.pinned {
        *pinned.at(*reg) = Some(*level);
    }
    let (levels, defined) = (PerRegister::new(p, Level::Block), PerRegister::new(p, false));
    let mut u = Uniformity {
        pinned,
        levels,
        defined,
        narrowed: false,
        skippable: 0,
        wait: Wait::None,
        errors: vec![],
    };
    u.block(&p.body, None);
    if let Wait::Skippable(at) = u.wait {
        u.errors.push(Error { at: Some(at), kind: ErrorKind::MayNotWait });
    }
    if u.wait == Wait::None && p.triggers() {
        u.errors.push(Error { at: None, kind: ErrorKind::NeverWaits(p.name.clone()) });
    }
    (u.levels, u.errors)
}

/// Whether every block waits for the kernels before: those after it rely on that.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    None,
    /// Some block may not: the place.
    Skippable(At),
    Certain,
}

/// How far the branches around a place keep threads together, and the branch that splits them.
type Split = Option<(Level, At)>;

struct Uniformity {
    pinned: PerRegister<Option<Level>>,
    levels: PerRegister<Level>,
    /// Whether an earlier instruction defines it. Only then can another one have read its level already.
    defined: PerRegister<bool>,
    /// Whether a level changed after an instruction may have read it.
    narrowed: bool,
    /// Branches and loops around this place that a whole block may skip.
    skippable: u32,
    wait: Wait,
    errors: Vec<Error>,
}

impl Uniformity {
    fn block(&mut self, stmts: &[Stmt], split: Split) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => self.inst(i, split),
                Stmt::If { cond, body, other, at } => {
                    let inner = self.split(*cond, at, split);
                    // What splits a block sends some of its warps either way.
                    let whole = u32::from(*self.levels.at(*cond) != Level::Warp);
                    self.skippable += whole;
                    self.block(body, inner);
                    self.block(other, inner);
                    self.skippable -= whole;
                }
                Stmt::Loop { cond, exit, body, at } => self.cycle(cond, *exit, body, at, split),
            }
        }
    }

    fn cycle(&mut self, cond: &[Stmt], exit: Reg, body: &[Stmt], at: At, split: Split) {
        let errors = self.errors.len();
        self.skippable += 1;
        loop {
            let outer = std::mem::take(&mut self.narrowed);
            self.errors.truncate(errors);
            let before = *self.levels.at(exit);
            // Threads that left the loop do not evaluate its condition again.
            let inner = self.split(exit, at, split);
            self.block(cond, inner);
            let inner = self.split(exit, at, split);
            self.block(body, inner);
            let again = self.narrowed || *self.levels.at(exit) != before;
            self.narrowed |= outer;
            if !again {
                self.skippable -= 1;
                return;
            }
        }
    }

    fn split(&mut self, cond: Reg, at: At, outer: Split) -> Split {
        let level = *self.levels.at(cond);
        match outer {
            Some((o, _)) if o >= level => outer,
            _ if level == Level::Block => outer,
            _ => Some((level, at)),
        }
    }

    fn inst(&mut self, i: &Inst, split: Split) {
        if let Some((level, branch)) = split
            && level > i.op.together
        {
            let mnemonic = i.op.mnemonic(i.kind, i.from);
            let kind = ErrorKind::Diverged { mnemonic, needs: i.op.together, branch };
            self.errors.push(Error { at: Some(i.at), kind });
        }
        if i.op.effect == Effect::Grid(GridStep::Wait) && self.wait != Wait::Certain {
            self.wait = if self.skippable == 0 { Wait::Certain } else { Wait::Skippable(i.at) };
        }
        let around = split.map_or(Level::Block, |(level, _)| level);
        let level = around.max(match i.op.uniformity() {
            isa::Uniformity::AsOperands => self.operands(i),
            isa::Uniformity::Same(level) => level,
            isa::Uniformity::Differs => Level::Lane,
        });
        for d in &i.dst {
            let level = self.pinned.at(*d).unwrap_or(level);
            let defined = std::mem::replace(self.defined.at(*d), true);
            let old = self.levels.at(*d);
            self.narrowed |= defined && level > *old;
            *old = level.max(*old);
        }
    }

    fn operands(&mut self, i: &Inst) -> Level {
        let mut level = Level::Block;
        for o in &i.src {
            match o {
                Operand::Special(_, of) => level = level.max(*of),
                _ => registers(o).iter().for_each(|r| level = level.max(*self.levels.at(*r))),
            }
        }
        level
    }
}
