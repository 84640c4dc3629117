//! The walk that checks the form, the scope and the uniformity of each instruction.
//!
//! **Scope**: a value may be used only inside the block that defines it.
//!
//! **Uniformity**: instructions that a block or a warp must execute together must not be inside a
//! branch that splits it. The walk is a dataflow analysis over the lattice block < warpgroup < warp
//! < lane. Each register has a level, the largest group of threads in which its value is uniform.
//! The level of a result is the maximum of the levels of its operands and of the branches around
//! it.
//!
//! A loop is walked until no level changes, because a variable may become less uniform after an
//! instruction has read it. The walk repeats a loop only if a level changed and some level was
//! derived from the old value. Levels only rise, so few rounds are needed. Form and scope do not
//! change between rounds and are checked in the first one.

use super::error::{BuildError, ErrorKind};
use super::form;
use super::mbarrier::{self, Loops, MbarrierUse};
use super::overlap::OverlapFindings;
use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{Effect, Uniformity};

/// The facts about a register.
#[derive(Clone, Copy)]
pub(super) struct RegisterFacts {
    /// The first instruction that writes it.
    defined: Option<At>,
    /// The block that defines it, numbered in the order of the text.
    home: u32,
    /// The level of the register.
    pub(super) level: Level,
    /// The level that the builder has asserted, if any.
    pinned: Option<Level>,
    /// The most uniform level that was derived from this register. If the register becomes less
    /// uniform than that, the derived level is outdated.
    followed: Level,
}

/// The results of the walk.
pub(super) struct WalkFindings<'p> {
    pub(super) errors: Vec<BuildError>,
    /// The instructions on mbarriers.
    pub(super) uses: Vec<MbarrierUse<'p>>,
    pub(super) needs: Needs,
}

pub(super) fn walk(p: &Program) -> WalkFindings<'_> {
    let mut walk = KernelWalk::new(p);
    walk.block(&p.body, None);
    let KernelWalk {
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
    WalkFindings {
        errors,
        uses,
        needs,
    }
}

/// Returns the final facts about each register and the number of instructions in divergent code.
#[cfg(test)]
pub(super) fn levels(p: &Program) -> (PerRegister<RegisterFacts>, usize) {
    let mut walk = KernelWalk::new(p);
    walk.block(&p.body, None);
    (walk.registers, walk.uniformity.len())
}

/// The level to which the branches around an instruction keep threads together, and the branch that
/// splits them.
type Split = Option<(Level, At)>;

/// The number of no block: the home of registers that are not defined.
const NOWHERE: u32 = 0;

struct KernelWalk<'p> {
    registers: PerRegister<RegisterFacts>,
    /// For each block so far, whether the walk is still inside it.
    open: Vec<bool>,
    /// The current block.
    block: u32,
    /// The number of enclosing loops that are being walked again.
    again: u32,
    /// Whether a level changed from which another level was derived.
    outdated: bool,
    loops: Loops,
    overlap: OverlapFindings,
    uses: Vec<MbarrierUse<'p>>,
    needs: Needs,
    form: Vec<BuildError>,
    scope: Vec<BuildError>,
    uniformity: Vec<BuildError>,
}

impl<'p> KernelWalk<'p> {
    fn new(p: &'p Program) -> Self {
        let unknown = RegisterFacts {
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

        KernelWalk {
            registers,
            open: vec![false],
            block: NOWHERE,
            again: 0,
            outdated: false,
            overlap: OverlapFindings::default(),
            loops: Loops::default(),
            uses: vec![],
            needs: Needs::LEAST,
            form: vec![],
            scope: vec![],
            uniformity: vec![],
        }
    }

    /// Walks a block whose definitions end with it.
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

                    // A condition that splits the block sends at least one warp into each side, so
                    // the block as a whole skips neither.
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

    /// Walks the condition of a loop. Returns the level of the exit predicate.
    fn condition(&mut self, cond: &'p [Stmt], (exit, at): (&Reg, At), split: Split) -> Level {
        let outer = self.loops.condition.replace(at);
        self.until(|walk| {
            let before = walk.registers.at(exit).level;
            // Threads that have left the loop do not evaluate the condition again, so the condition
            // itself runs in diverged code if the exit diverges.
            walk.stmts(cond, narrower(split, before, at));
            walk.registers.at(exit).level == before
        });
        self.loops.condition = outer;
        let level = self.read(exit, at);
        self.follow(exit, level);
        level
    }

    /// Walks the same statements until `done` returns true, and keeps the errors of the last round.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let errors = self.uniformity.len();
        let uses = self.uses.len();
        let again = self.again;
        while !done(self) {
            self.again = again + 1;
            self.uniformity.truncate(errors);
            self.uses.truncate(uses);
        }
        self.again = again;
    }

    #[inline(never)] // keeps its state in registers
    fn inst(&mut self, i: &'p Inst, split: Split) {
        let dst = &*i.dst;
        let src = &*i.src;
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

        // Other results do not depend on the uniformity of the operands, so they never get
        // outdated.
        if level < Level::Lane && i.op.uniformity() == Uniformity::AsOperands {
            for r in src.iter().flat_map(Operand::registers) {
                self.follow(r, level);
            }
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
            self.uses.push(MbarrierUse::new(
                i,
                (base, by),
                around.max(level) < Level::Lane,
                &self.loops,
            ));
        }
    }

    /// Returns the level of the operands together.
    #[inline]
    fn operands(&mut self, src: &[Operand], at: At) -> Level {
        let mut level = Level::Block;
        for o in src {
            match o {
                Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => {
                    level = level.max(self.read(r, at))
                }
                Operand::Group(regs) | Operand::Tensor(regs) => {
                    for r in regs {
                        level = level.max(self.read(r, at));
                    }
                }
                Operand::Special(_, of) => level = level.max(*of),
                Operand::Imm(_) | Operand::Symbol(_) | Operand::Addr(Base::Symbol(_), _) => {}
            }
        }
        level
    }

    /// Returns the level of a register that is read, and reports it if it is out of scope.
    #[inline]
    fn read(&mut self, reg: &Reg, at: At) -> Level {
        let known = self.registers.at(reg);
        let home = known.home;
        let level = known.level;
        if !self.open[home as usize] {
            self.out_of_scope(reg, at);
        }
        level
    }

    /// Records that a result of this level was derived from a register.
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

/// Returns the split inside a branch on a value of this level.
fn narrower(outer: Split, level: Level, at: At) -> Split {
    match outer {
        Some((o, _)) if o >= level => outer,
        _ if level == Level::Block => outer,
        _ => Some((level, at)),
    }
}
