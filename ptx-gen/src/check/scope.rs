//! Scope: a value is used only inside the block that defines it.

use super::{Error, ErrorKind, PerRegister};
use crate::ir::*;

pub(super) fn check(p: &Program) -> Vec<Error> {
    let mut scope =
        Scope { live: PerRegister::new(p, false), born: PerRegister::new(p, None), errors: vec![] };
    scope.block(&p.body);
    scope.errors
}

struct Scope {
    live: PerRegister<bool>,
    born: PerRegister<Option<At>>,
    errors: Vec<Error>,
}

impl Scope {
    /// A block: what it defines ends with it.
    fn block(&mut self, stmts: &[Stmt]) {
        let mut mine = vec![];
        self.walk(stmts, &mut mine);
        self.end(mine);
    }

    fn end(&mut self, mine: Vec<Reg>) {
        for reg in mine {
            *self.live.at(reg) = false;
        }
    }

    fn walk(&mut self, stmts: &[Stmt], mine: &mut Vec<Reg>) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => self.inst(i, mine),
                Stmt::If { cond, body, other, at } => {
                    self.read(*cond, at);
                    self.block(body);
                    self.block(other);
                }
                // The body sees what the condition defined: it runs after it.
                Stmt::Loop { cond, exit, body, at } => {
                    let mut mine = vec![];
                    self.walk(cond, &mut mine);
                    self.read(*exit, at);
                    self.walk(body, &mut mine);
                    self.end(mine);
                }
            }
        }
    }

    fn inst(&mut self, i: &Inst, mine: &mut Vec<Reg>) {
        for r in reads(i) {
            self.read(r, i.at);
        }
        for &d in &i.dst {
            if !std::mem::replace(self.live.at(d), true) {
                mine.push(d);
            }
            self.born.at(d).get_or_insert(i.at);
        }
    }

    fn read(&mut self, reg: Reg, at: At) {
        if !*self.live.at(reg) {
            let born = self.born.at(reg).unwrap_or(at);
            self.errors.push(Error { at: Some(at), kind: ErrorKind::OutOfScope { reg, born } });
        }
    }
}

/// The registers an instruction reads.
pub(super) fn reads(i: &Inst) -> impl Iterator<Item = Reg> {
    i.src
        .iter()
        .flat_map(|o| match o {
            Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => std::slice::from_ref(r),
            Operand::Group(regs) => regs,
            _ => &[],
        })
        .copied()
}
