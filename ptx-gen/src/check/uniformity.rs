//! Uniformity: what a block or a warp must reach together stands in no branch that splits it.
//!
//! Each register has the widest group of threads in which it is the same, from the lattice block < warp < lane.
//! A result is as narrow as its narrowest operand and as the branches around it. A loop is walked until the
//! levels of the variables it carries no longer change; levels only narrow, so that is after a few rounds.

use super::scope::reads;
use super::{Error, ErrorKind};
use crate::ir::*;
use crate::ty::Class;
use std::collections::BTreeMap;

pub(super) fn check(p: &Program) -> Vec<Error> {
    let pinned = p.pinned.iter().map(|(r, l)| (r.id(), *l)).collect();
    let mut u = Uniformity { pinned, levels: BTreeMap::new(), errors: vec![] };
    u.block(&p.body, None);
    u.errors
}

/// How far the branches around a place keep threads together, and the branch that splits them.
type Split = Option<(Level, At)>;

struct Uniformity {
    pinned: BTreeMap<(Class, u32), Level>,
    levels: BTreeMap<(Class, u32), Level>,
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
                    self.block(body, inner);
                    self.block(other, inner);
                }
                Stmt::Loop { cond, exit, body, at } => self.cycle(cond, *exit, body, at, split),
            }
        }
    }

    fn cycle(&mut self, cond: &[Stmt], exit: Reg, body: &[Stmt], at: At, split: Split) {
        let errors = self.errors.len();
        loop {
            let before = self.levels.clone();
            self.errors.truncate(errors);
            // Threads that left the loop do not evaluate its condition again.
            let inner = self.split(exit, at, split);
            self.block(cond, inner);
            let inner = self.split(exit, at, split);
            self.block(body, inner);
            if self.levels == before {
                return;
            }
        }
    }

    fn split(&self, cond: Reg, at: At, outer: Split) -> Split {
        let level = self.levels.get(&cond.id()).copied().unwrap_or(Level::Block);
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
        let around = split.map_or(Level::Block, |(level, _)| level);
        let level = around.max(i.op.result.unwrap_or_else(|| self.operands(i)));
        for d in &i.dst {
            let level = self.pinned.get(&d.id()).copied().unwrap_or(level);
            let old = self.levels.entry(d.id()).or_insert(level);
            *old = level.max(*old);
        }
    }

    fn operands(&self, i: &Inst) -> Level {
        let special = i.src.iter().filter_map(|o| match o {
            Operand::Special(_, level) => Some(*level),
            _ => None,
        });
        let regs = reads(i).into_iter().filter_map(|r| self.levels.get(&r.id()).copied());
        let shared = changes_under_it(i).then_some(Level::Lane);
        special.chain(regs).chain(shared).max().unwrap_or(Level::Block)
    }
}

/// Whether two threads that execute it with the same operands can get different results.
fn changes_under_it(i: &Inst) -> bool {
    use crate::isa::*;
    let atomic = ATOMIC.rows.contains(&i.op);
    atomic || [&LD_ACQUIRE, &SHFL_UP, &SHFL_DOWN].contains(&i.op)
}
