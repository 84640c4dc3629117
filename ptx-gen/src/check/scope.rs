//! Scope: a value is used only inside the block that defines it.

use super::{Error, ErrorKind};
use crate::ir::*;
use crate::ty::Class;
use std::collections::{BTreeMap, BTreeSet};

type Id = (Class, u32);

pub(super) fn check(p: &Program) -> Vec<Error> {
    let mut scope = Scope::default();
    scope.block(&p.body);
    scope.errors
}

#[derive(Default)]
struct Scope {
    live: BTreeSet<Id>,
    born: BTreeMap<Id, At>,
    errors: Vec<Error>,
}

impl Scope {
    fn block(&mut self, stmts: &[Stmt]) {
        let before = self.live.clone();
        self.open(stmts);
        self.live = before;
    }

    fn open(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => self.inst(i),
                Stmt::If { cond, body, other, at } => {
                    self.read(*cond, at);
                    self.block(body);
                    self.block(other);
                }
                // The body sees what the condition defined: it runs after it.
                Stmt::Loop { cond, exit, body, at } => {
                    let before = self.live.clone();
                    self.open(cond);
                    self.read(*exit, at);
                    self.open(body);
                    self.live = before;
                }
            }
        }
    }

    fn inst(&mut self, i: &Inst) {
        for r in reads(i) {
            self.read(r, i.at);
        }
        for d in &i.dst {
            self.live.insert(d.id());
            self.born.entry(d.id()).or_insert(i.at);
        }
    }

    fn read(&mut self, reg: Reg, at: At) {
        if !self.live.contains(&reg.id()) {
            let born = self.born.get(&reg.id()).copied().unwrap_or(at);
            self.errors.push(Error { at: Some(at), kind: ErrorKind::OutOfScope { reg, born } });
        }
    }
}

/// The registers an instruction reads.
pub(super) fn reads(i: &Inst) -> Vec<Reg> {
    i.src
        .iter()
        .flat_map(|o| match o {
            Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => vec![*r],
            Operand::Group(regs) => regs.clone(),
            _ => vec![],
        })
        .collect()
}
