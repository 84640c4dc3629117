//! The walk that checks each instruction: its form, its scope and its uniformity.
//!
//! *Scope*: a value is used only inside the block that defines it.
//!
//! *Uniformity*: what a block or a warp must reach together stands in no branch that splits it. Each register has the
//! widest group of threads in which it is the same, from the lattice block < warpgroup < warp < lane. A result is as narrow as its
//! narrowest operand and as the branches around it. A loop is walked until each of its results is: a variable that it
//! carries may narrow after an instruction has read it, and mostly that instruction's result is as narrow already.
//! Levels only narrow, so that is after a few rounds. Form and scope are what they are in the first.

use super::error::{BuildError, ErrorKind};
use super::form;
use super::mbarrier::{self, Loops, Use};
use super::overlap::Overlap;
use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{Effect, Uniformity};

/// What is known of a register.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// The first instruction that writes it.
    defined: Option<At>,
    /// The block that defines it, by its number in the order of the text.
    home: u32,
    /// How far it is the same.
    pub(super) level: Level,
    /// The level, where the builder knows it.
    pinned: Option<Level>,
    /// The widest level of what follows from it: if it gets narrower than that, what follows is out of date.
    followed: Level,
}

/// What the walk finds.
pub(super) struct Found<'p> {
    pub(super) errors: Vec<BuildError>,
    /// The instructions on mbarriers.
    pub(super) uses: Vec<Use<'p>>,
    pub(super) needs: Needs,
}

pub(super) fn walk(p: &Program) -> Found<'_> {
    let mut walk = Walk::new(p);
    walk.block(&p.body, None);
    let Walk {
        form,
        scope,
        uniformity,
        overlap,
        uses,
        needs,
        ..
    } = walk;
    let errors = [form, scope, uniformity, overlap.errors(&p.name)]
        .into_iter()
        .flatten()
        .collect();
    Found {
        errors,
        uses,
        needs,
    }
}

/// What is known of each register in the end, and how many instructions stand where threads are apart.
#[cfg(test)]
pub(super) fn levels(p: &Program) -> (PerRegister<Known>, usize) {
    let mut walk = Walk::new(p);
    walk.block(&p.body, None);
    (walk.registers, walk.uniformity.len())
}

/// How far the branches around a place keep threads together, and the branch that splits them.
type Split = Option<(Level, At)>;

/// The number of no block: the home of what nothing defines.
const NOWHERE: u32 = 0;

struct Walk<'p> {
    registers: PerRegister<Known>,
    /// Of each block so far, whether its end is still to come.
    open: Vec<bool>,
    /// The block of this place.
    block: u32,
    /// Loops around this place that are walked once more.
    again: u32,
    /// Whether a level changed of which another one follows that did not.
    outdated: bool,
    loops: Loops,
    overlap: Overlap,
    uses: Vec<Use<'p>>,
    needs: Needs,
    form: Vec<BuildError>,
    scope: Vec<BuildError>,
    uniformity: Vec<BuildError>,
}

impl<'p> Walk<'p> {
    fn new(p: &'p Program) -> Self {
        let unknown = Known {
            defined: None,
            home: NOWHERE,
            level: Level::Block,
            pinned: None,
            followed: Level::Lane,
        };
        let mut registers = PerRegister::new(p, unknown);
        for (reg, level) in &p.pinned {
            registers.at(reg).pinned = Some(*level);
        }
        Walk {
            registers,
            open: vec![false],
            block: NOWHERE,
            again: 0,
            outdated: false,
            overlap: Overlap::default(),
            loops: Loops::default(),
            uses: vec![],
            needs: Needs::LEAST,
            form: vec![],
            scope: vec![],
            uniformity: vec![],
        }
    }

    /// A block of its own: what it defines ends with it.
    fn block(&mut self, stmts: &'p [Stmt], split: Split) {
        self.inside(|walk| walk.stmts(stmts, split));
    }

    fn inside(&mut self, walk: impl FnOnce(&mut Self)) {
        let inner = self.open.len();
        self.open.push(true);
        let outer = std::mem::replace(&mut self.block, inner as u32);
        walk(self);
        self.block = outer;
        self.open[inner] = false;
    }

    fn stmts(&mut self, stmts: &'p [Stmt], split: Split) {
        for s in stmts {
            match s {
                Stmt::Inst(i) => self.inst(i, split),
                Stmt::Note(note, at) if self.again == 0 => {
                    self.form.extend(form::note(&note.text, at))
                }
                Stmt::Note(..) => {}
                Stmt::If {
                    cond,
                    body,
                    other,
                    at,
                } => {
                    let level = self.read(cond, at);
                    self.follow(cond, level);
                    let inner = narrower(split, level, at);
                    // What splits a block sends some of its warps either way.
                    let whole = u32::from(!matches!(level, Level::Warp | Level::Warpgroup));
                    self.overlap.skippable += whole;
                    self.block(body, inner);
                    self.block(other, inner);
                    self.overlap.skippable -= whole;
                }
                Stmt::Loop {
                    cond,
                    exit,
                    body,
                    at,
                } => {
                    self.overlap.skippable += 1;
                    self.loops.depth += 1;
                    self.inside(|walk| walk.cycle(cond, (exit, at), body, split));
                    self.loops.depth -= 1;
                    self.overlap.skippable -= 1;
                }
            }
        }
    }

    fn cycle(&mut self, cond: &'p [Stmt], exit: (&Reg, At), body: &'p [Stmt], split: Split) {
        self.until(|walk| {
            let outer = std::mem::take(&mut walk.outdated);
            let level = walk.condition(cond, exit, split);
            let wait = walk.loops.condition.take();
            walk.stmts(body, narrower(split, level, exit.1));
            walk.loops.condition = wait;
            let done = !walk.outdated;
            walk.outdated |= outer;
            done
        });
    }

    /// Walks the condition of a loop, and gives the level on which the loop ends.
    fn condition(&mut self, cond: &'p [Stmt], (exit, at): (&Reg, At), split: Split) -> Level {
        let outer = self.loops.condition.replace(at);
        self.until(|walk| {
            let before = walk.registers.at(exit).level;
            // Threads that left the loop do not evaluate its condition again.
            walk.stmts(cond, narrower(split, before, at));
            walk.registers.at(exit).level == before
        });
        self.loops.condition = outer;
        let level = self.read(exit, at);
        self.follow(exit, level);
        level
    }

    /// Walks the same statements until they are done, with the errors of the last time.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let (errors, uses, again) = (self.uniformity.len(), self.uses.len(), self.again);
        while !done(self) {
            self.again = again + 1;
            self.uniformity.truncate(errors);
            self.uses.truncate(uses);
        }
        self.again = again;
    }

    #[inline(never)] // keeps its state in registers
    fn inst(&mut self, i: &'p Inst, split: Split) {
        let (dst, src) = (&*i.dst, &*i.src);
        if self.again == 0 {
            form::inst(i, dst, src, &mut self.form);
            self.needs.add(i.op);
        }
        let operands = self.operands(src, i.at);
        let around = split.map_or(Level::Block, |(level, _)| level);
        if around > i.op.together {
            self.diverged(i, split);
        }
        let level = around.max(match i.op.uniformity() {
            Uniformity::AsOperands => operands,
            Uniformity::Same(level) => level,
            Uniformity::Differs => Level::Lane,
        });
        if level < Level::Lane && i.op.uniformity() == Uniformity::AsOperands {
            src.iter()
                .flat_map(Operand::registers)
                .for_each(|r| self.follow(r, level));
        }
        for d in dst {
            self.write(d, level, i.at);
        }
        match i.op.effect {
            Effect::Grid(step) => self.overlap.step(step, i.at),
            effect if effect.is_on_mbarrier() => self.on_mbarrier(i, around),
            _ => {}
        }
    }

    fn on_mbarrier(&mut self, i: &'p Inst, around: Level) {
        if let Some((base, by)) = mbarrier::address(i) {
            let level = self.registers.at(&base).level;
            self.follow(&base, level);
            self.uses.push(Use::new(
                i,
                (base, by),
                around.max(level) < Level::Lane,
                &self.loops,
            ));
        }
    }

    /// How far what it reads is the same.
    #[inline]
    fn operands(&mut self, src: &[Operand], at: At) -> Level {
        let mut level = Level::Block;
        for o in src {
            match o {
                Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => {
                    level = level.max(self.read(r, at))
                }
                Operand::Group(regs) | Operand::Tensor(regs) => regs
                    .iter()
                    .for_each(|r| level = level.max(self.read(r, at))),
                Operand::Special(_, of) => level = level.max(*of),
                Operand::Imm(_) | Operand::Symbol(_) | Operand::Addr(Base::Symbol(_), _) => {}
            }
        }
        level
    }

    /// The level of a register that is read here.
    #[inline]
    fn read(&mut self, reg: &Reg, at: At) -> Level {
        let known = self.registers.at(reg);
        let (home, level) = (known.home, known.level);
        if !self.open[home as usize] {
            self.out_of_scope(reg, at);
        }
        level
    }

    /// Notes that something this level follows from a register.
    #[inline]
    fn follow(&mut self, reg: &Reg, level: Level) {
        let known = self.registers.at(reg);
        known.followed = known.followed.min(level);
    }

    #[inline]
    fn write(&mut self, reg: &Reg, level: Level, at: At) {
        let known = self.registers.at(reg);
        let level = known.pinned.unwrap_or(level);
        self.outdated |= level > known.level && level > known.followed;
        known.level = known.level.max(level);
        known.defined.get_or_insert(at);
        if !self.open[known.home as usize] && self.again == 0 {
            known.home = self.block;
        }
    }

    #[cold]
    fn out_of_scope(&mut self, reg: &Reg, at: At) {
        if self.again == 0 {
            let defined = self.registers.at(reg).defined.unwrap_or(at);
            self.scope.push(BuildError {
                at: Some(at),
                kind: ErrorKind::OutOfScope { reg: *reg, defined },
            });
        }
    }

    #[cold]
    fn diverged(&mut self, i: &Inst, split: Split) {
        let Some((_, branch)) = split else { return };
        let kind = ErrorKind::Diverged {
            mnemonic: i.op.mnemonic(i.kind, i.from, i.number()),
            needs: i.op.together,
            branch,
        };
        self.uniformity.push(BuildError {
            at: Some(i.at),
            kind,
        });
    }
}

/// How far threads are together in a branch on a value that is the same this far.
fn narrower(outer: Split, level: Level, at: At) -> Split {
    match outer {
        Some((o, _)) if o >= level => outer,
        _ if level == Level::Block => outer,
        _ => Some((level, at)),
    }
}
