//! Scope: a value is used only inside the block that defines it.

use super::error::{Error, ErrorKind};
use super::per_register::PerRegister;
use crate::ir::*;

pub(super) fn check(p: &Program) -> Vec<Error> {
    let mut scope = Scope { homes: PerRegister::new(p, None), open: vec![], errors: vec![] };
    scope.block(&[], None, &p.body);
    scope.errors
}

/// Where a register is defined.
#[derive(Clone, Copy)]
struct Home {
    /// The block, by its number in the order of the text.
    block: usize,
    /// The first instruction that writes it.
    defined: At,
}

struct Scope {
    homes: PerRegister<Option<Home>>,
    /// Of each block so far, whether its end is still to come.
    open: Vec<bool>,
    errors: Vec<Error>,
}

impl Scope {
    /// A block: a loop's condition and exit, if it is one's, then the body, which runs after them. What it defines ends
    /// with it.
    fn block(&mut self, cond: &[Stmt], exit: Option<(Reg, At)>, body: &[Stmt]) {
        let block = self.open.len();
        self.open.push(true);
        self.walk(cond, block);
        if let Some((exit, at)) = exit {
            self.read(exit, at);
        }
        self.walk(body, block);
        self.open[block] = false;
    }

    fn walk(&mut self, stmts: &[Stmt], block: usize) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => self.inst(i, block),
                Stmt::If { cond, body, other, at } => {
                    self.read(*cond, at);
                    self.block(&[], None, body);
                    self.block(&[], None, other);
                }
                Stmt::Loop { cond, exit, body, at } => self.block(cond, Some((*exit, at)), body),
            }
        }
    }

    fn inst(&mut self, i: &Inst, block: usize) {
        for o in &i.src {
            registers(o).iter().for_each(|r| self.read(*r, i.at));
        }
        for &d in &i.dst {
            let home = self.homes.at(d).get_or_insert(Home { block, defined: i.at });
            if !self.open[home.block] {
                home.block = block;
            }
        }
    }

    fn read(&mut self, reg: Reg, at: At) {
        let home = *self.homes.at(reg);
        if !home.is_some_and(|home| self.open[home.block]) {
            let defined = home.map_or(at, |home| home.defined);
            self.errors.push(Error { at: Some(at), kind: ErrorKind::OutOfScope { reg, defined } });
        }
    }
}

/// The registers an instruction reads.
pub(super) fn reads(i: &Inst) -> impl Iterator<Item = Reg> {
    i.src.iter().flat_map(registers).copied()
}

/// The registers of an operand.
pub(super) fn registers(o: &Operand) -> &[Reg] {
    match o {
        Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => std::slice::from_ref(r),
        Operand::Group(regs) => regs,
        _ => &[],
    }
}
